#include "elastic/control/ballot.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "framework/parallel/sharded_state.h"

namespace holdfast {
namespace {

using VoteBits = std::tuple<uint32_t, uint32_t, uint64_t>;

VoteBits BitsOf(const VoteMessage& vote) { return {vote.loss_bits, vote.grad_norm_bits, vote.statistics_digest}; }

}  // namespace

bool Ballot::Add(int rank, VoteMessage vote) {
  if (vote.step != step_ || HasVoted(rank)) return false;
  votes_[static_cast<size_t>(rank)] = std::move(vote);
  ++count_;
  return true;
}

std::vector<int> Ballot::Dissenters() const {
  std::map<VoteBits, size_t> counts;
  for (const auto& vote : votes_) ++counts[BitsOf(*vote)];
  const auto most =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const bool majority = 2 * most->second > votes_.size();
  std::vector<int> ranks;
  for (size_t rank = 0; rank < votes_.size(); ++rank) {
    if (!majority || BitsOf(*votes_[rank]) != most->first) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

std::vector<Ballot::Difference> Ballot::DifferingCopies() const {
  struct Holding {
    int32_t chunk;
    uint64_t digest;
    int rank;
    bool read;
  };
  std::vector<Holding> all;
  for (size_t rank = 0; rank < votes_.size(); ++rank) {
    const VoteMessage& vote = *votes_[rank];
    for (const auto* digests : {&vote.digests, &vote.copies, &vote.mirrors}) {
      for (const ChunkDigest& d : *digests) {
        all.push_back({d.chunk, d.digest, static_cast<int>(rank), digests != &vote.mirrors});
      }
    }
  }
  std::sort(all.begin(), all.end(),
            [](const Holding& a, const Holding& b) { return std::pair(a.chunk, a.rank) < std::pair(b.chunk, b.rank); });
  std::vector<Difference> differences;
  for (size_t first = 0, end = 0; first < all.size(); first = end) {
    std::map<uint64_t, size_t> counts;
    for (end = first; end < all.size() && all[end].chunk == all[first].chunk; ++end) ++counts[all[end].digest];
    if (counts.size() == 1) continue;
    const auto most = std::max_element(counts.begin(), counts.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    Difference difference{.chunk = all[first].chunk, .majority = 2 * most->second > end - first, .ranks = {}};
    for (size_t i = first; i < end; ++i) {
      if (difference.majority && all[i].digest == most->first) continue;
      difference.ranks.push_back(all[i].rank);
      difference.read |= all[i].read;
    }
    differences.push_back(std::move(difference));
  }
  return differences;
}

double Ballot::StallSeconds() const {
  double longest = 0;
  for (const auto& vote : votes_) longest = std::max(longest, vote->stall_seconds);
  return longest;
}

ExchangedBytes Ballot::Exchanged() const {
  ExchangedBytes sum;
  for (const auto& vote : votes_) sum += vote->exchanged;
  return sum;
}

std::vector<ChunkDigest> Ballot::Digests() const {
  std::vector<ChunkDigest> digests;
  for (const auto& vote : votes_) digests.insert(digests.end(), vote->digests.begin(), vote->digests.end());
  std::sort(digests.begin(), digests.end(),
            [](const ChunkDigest& a, const ChunkDigest& b) { return a.chunk < b.chunk; });
  return digests;
}

uint64_t StateDigest(const std::vector<ChunkDigest>& chunks) {
  std::vector<uint64_t> digests;
  digests.reserve(chunks.size());
  for (const ChunkDigest& chunk : chunks) digests.push_back(chunk.digest);
  return StateDigest(absl::MakeConstSpan(digests));
}

}  // namespace holdfast
