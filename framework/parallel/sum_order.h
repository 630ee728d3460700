#pragma once
// In which order the contributions of a step's microbatches 0 .. M-1 are added: a part of a run's config, because it
// decides bits. The result depends on the contributions only, never on who computed which of them.
//
// tree    the binary tree over aligned power-of-two blocks. Whoever computes a run of microbatches sends its aligned
//         blocks only, but adding one after another takes log2(M) partial sums at once.
// chains  blocks of a fixed number of microbatches; inside a block one after another, then block after block. At most
//         two partial sums, the block at work and the blocks before it; one if a block is a single microbatch.

#include <cstdint>
#include <vector>

#include "framework/config/config.h"

namespace holdfast {

/// Microbatches [first, first + count).
struct MicrobatchRun {
  int64_t first = 0, count = 0;
  int64_t end() const { return first + count; }
  friend bool operator==(const MicrobatchRun&, const MicrobatchRun&) = default;
};

class SumOrder {
 public:
  static SumOrder Tree() { return SumOrder(0); }
  /// `block` microbatches, at least 1.
  static SumOrder Chains(int64_t block) { return SumOrder(block); }
  static SumOrder Of(const BatchConfig& batch);

  /// Whether the sum of `later` is added to the sum of `earlier`, which ends where it begins, as soon as both are
  /// there.
  bool Joins(const MicrobatchRun& earlier, const MicrobatchRun& later) const;
  /// The fewest pieces of `run`, in order, that can be added up without the microbatches before and after them.
  std::vector<MicrobatchRun> Pieces(const MicrobatchRun& run) const;
  /// The most partial sums there are after any of the microbatches of `run`, added one by one.
  int MaxSums(const MicrobatchRun& run) const;
  /// Microbatches of a block of chains; 0 = tree.
  int64_t block() const { return block_; }

 private:
  explicit SumOrder(int64_t block) : block_(block) {}
  int64_t block_;
};

}  // namespace holdfast
