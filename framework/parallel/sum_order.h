#pragma once
// In which order the contributions of a step's microbatches 0 .. M-1 are added: a part of a run's config, because it
// decides bits. The result depends on the contributions only, never on who computed which of them.
//
// tree    the binary tree over aligned power-of-two blocks. Whoever computes a range of microbatches sends its aligned
//         blocks only, but adding one after another takes log2(M) partial sums at once.
// chains  blocks of a fixed number of microbatches; inside a block one after another, then block after block. At most
//         two partial sums, the block at work and the blocks before it; one if a block is a single microbatch.

#include <cstdint>
#include <vector>

#include "framework/config/config.h"

namespace holdfast {

/// Microbatches [first, first + count).
struct MicrobatchRange {
  int64_t first = 0, count = 0;
  int64_t end() const { return first + count; }
  friend bool operator==(const MicrobatchRange&, const MicrobatchRange&) = default;
};

class SumOrder {
 public:
  static SumOrder Tree() { return SumOrder(0); }
  /// `block` microbatches, at least 1.
  static SumOrder Chains(int64_t block) { return SumOrder(block); }
  static SumOrder Of(const BatchConfig& batch);

  /// Whether the sum of `later` is added to the sum of `earlier`, which ends where it begins, as soon as both are
  /// there.
  bool Joins(const MicrobatchRange& earlier, const MicrobatchRange& later) const;
  /// The fewest pieces of `range`, in order, that can be added up without the microbatches before and after them.
  std::vector<MicrobatchRange> Pieces(const MicrobatchRange& range) const;
  /// Microbatches of a block of chains; 0 = tree.
  int64_t block() const { return block_; }

 private:
  explicit SumOrder(int64_t block) : block_(block) {}
  int64_t block_;
};

}  // namespace holdfast
