#pragma once
// Which rank computes which microbatches of a step, and in which waves their gradients are reduced: a pure function of
// how many each rank is given. Any plan gives the bits of the serial sum, because contributions are added in microbatch
// order, each as the sum of a piece of the sum's order.

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "framework/parallel/sum_order.h"

namespace holdfast {

enum class ReductionMode : uint8_t {
  kEveryMicrobatch,  // a wave is at most one microbatch of each rank: gradients of one microbatch exist at a time
  kPieces,           // ranks add up what they can first, and send that only
};

/// With kPieces and a tree there is one wave: each rank's whole range, sent as aligned blocks. With chains a wave is
/// one block of each rank, so a rank holds one sum while it sends another; what is left of less than a block each goes
/// microbatch by microbatch. A world of one sends nothing: one wave.
class ReductionPlan {
 public:
  /// `microbatches`: how many of the step each rank computes, by rank.
  ReductionPlan(absl::Span<const int64_t> microbatches, ReductionMode mode, const SumOrder& order);

  ReductionMode mode() const { return mode_; }
  int num_waves() const { return static_cast<int>(waves_.size()); }
  int size() const { return size_; }
  /// Over the ranks, in order, the ranges of wave 0, then those of wave 1, ... are 0 .. M - 1 without gap or overlap.
  const MicrobatchRange& RangeOf(int wave, int rank) const { return At(wave, rank).range; }
  /// What the rank sends of it.
  const std::vector<MicrobatchRange>& Pieces(int wave, int rank) const { return At(wave, rank).pieces; }
  /// The most pieces that any rank sends in the wave.
  size_t MaxPieces(int wave) const;
  /// The most microbatches of the wave that any rank computes.
  int64_t MaxMicrobatches(int wave) const;
  /// Indices of the microbatches of `rank`, ascending.
  std::vector<int64_t> MicrobatchesOf(int rank) const;

 private:
  struct Share {
    MicrobatchRange range;
    std::vector<MicrobatchRange> pieces;
  };
  const Share& At(int wave, int rank) const { return waves_[static_cast<size_t>(wave)][static_cast<size_t>(rank)]; }
  /// Waves in which each rank that has `length` microbatches left, or fewer if `part` will do, computes them.
  void AddWaves(const SumOrder& order, int64_t length, bool part, std::vector<int64_t>* left, int64_t* next);

  ReductionMode mode_;
  int size_;
  std::vector<std::vector<Share>> waves_;
};

/// Even split of `total` microbatches over `size` ranks; the first ones get one more.
std::vector<int64_t> EvenMicrobatches(int64_t total, int size);

}  // namespace holdfast
