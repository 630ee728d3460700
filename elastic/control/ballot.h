#pragma once
// The votes of one step.

#include <cstdint>
#include <optional>
#include <vector>

#include "elastic/control/messages.h"

namespace holdfast {

class Ballot {
 public:
  Ballot() = default;
  Ballot(int64_t step, int ranks) : step_(step), votes_(static_cast<size_t>(ranks)) {}

  int64_t step() const { return step_; }
  bool complete() const { return count_ == votes_.size(); }
  bool HasVoted(int rank) const { return votes_[static_cast<size_t>(rank)].has_value(); }

  /// False, and nothing changes, if the rank has voted or the vote is for another step.
  bool Add(int rank, VoteMessage vote);

  // Of a complete ballot:
  const VoteMessage& vote(int rank) const { return *votes_[static_cast<size_t>(rank)]; }
  /// Ranks whose loss, gradient norm or statistics differ from those of the majority; all ranks if no value has one.
  std::vector<int> Dissenters() const;
  /// A chunk whose holders do not agree.
  struct Difference {
    int32_t chunk = 0;
    bool majority = false;   // more than half of the holders agree, and `ranks` are the others; else they are all
    bool read = false;       // steps are computed with the copy of one of `ranks`
    std::vector<int> ranks;  // ascending
  };
  /// In order of chunks.
  std::vector<Difference> DifferingCopies() const;
  /// The longest that a rank was held up by a checkpoint.
  double StallSeconds() const;
  /// By all ranks.
  ExchangedBytes Exchanged() const;
  /// Of all ranks, in order of chunks.
  std::vector<ChunkDigest> Digests() const;

 private:
  int64_t step_ = 0;
  size_t count_ = 0;
  std::vector<std::optional<VoteMessage>> votes_;  // by rank
};

/// Of the whole state, from the digests of all its chunks, in their order.
uint64_t StateDigest(const std::vector<ChunkDigest>& chunks);

}  // namespace holdfast
