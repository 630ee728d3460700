#pragma once
// Which rank computes which microbatches of a step, and in which waves their gradients are reduced: a pure function of
// how many each rank is given. Any plan gives the bits of the serial sum, because contributions are pushed into the
// summation tree in microbatch order, each as the sum of an aligned block.

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace holdfast {

/// Microbatches [first, first + count).
struct MicrobatchRun {
  int64_t first = 0, count = 0;
  friend bool operator==(const MicrobatchRun&, const MicrobatchRun&) = default;
};

enum class ReductionMode : uint8_t {
  kEveryMicrobatch,  // a wave is at most one microbatch of each rank: gradients of one microbatch exist at a time
  kOnce,             // one wave: each rank adds up the aligned blocks of its whole run first, and sends those only
};

class ReductionPlan {
 public:
  /// `microbatches`: how many of the step each rank computes, by rank.
  ReductionPlan(absl::Span<const int64_t> microbatches, ReductionMode mode);

  int num_waves() const { return static_cast<int>(waves_.size()); }
  int size() const { return size_; }
  /// Over the ranks, in order, the runs of wave 0, then those of wave 1, ... are 0 .. M - 1 without gap or overlap.
  const MicrobatchRun& Run(int wave, int rank) const {
    return waves_[static_cast<size_t>(wave)][static_cast<size_t>(rank)];
  }
  /// Indices of the microbatches of `rank`, ascending.
  std::vector<int64_t> MicrobatchesOf(int rank) const;

 private:
  int size_;
  std::vector<std::vector<MicrobatchRun>> waves_;
};

/// Even split of `total` microbatches over `size` ranks; the first ones get one more.
std::vector<int64_t> EvenMicrobatches(int64_t total, int size);

}  // namespace holdfast
