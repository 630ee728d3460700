#pragma once
// Which parts of a run of microbatches may be added up before they are sent: the nodes of the summation tree that lie
// inside the run.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace holdfast {

/// 2^level microbatches from `first`, a multiple of 2^level.
struct AlignedBlock {
  int64_t first = 0;
  int level = 0;
  friend bool operator==(const AlignedBlock&, const AlignedBlock&) = default;
};

/// The fewest aligned blocks that make up [first, first + count), in order. Pushing the sum of each into a
/// SummationTree (Close(level)) gives the bits of pushing every microbatch by itself.
inline std::vector<AlignedBlock> AlignedBlocks(int64_t first, int64_t count) {
  std::vector<AlignedBlock> blocks;
  while (count > 0) {
    const int fits = static_cast<int>(std::bit_width(static_cast<uint64_t>(count))) - 1;
    const int aligned = first == 0 ? fits : std::countr_zero(static_cast<uint64_t>(first));
    const int level = std::min(fits, aligned);
    blocks.push_back({first, level});
    first += int64_t{1} << level;
    count -= int64_t{1} << level;
  }
  return blocks;
}

}  // namespace holdfast
