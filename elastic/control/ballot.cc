#include "elastic/control/ballot.h"

#include <algorithm>
#include <map>
#include <utility>

#include "framework/parallel/sharded_state.h"

namespace holdfast {
namespace {

std::pair<uint32_t, uint32_t> BitsOf(const VoteMessage& vote) { return {vote.loss_bits, vote.grad_norm_bits}; }

}  // namespace

bool Ballot::Add(int rank, VoteMessage vote) {
  if (vote.step != step_ || HasVoted(rank)) return false;
  votes_[static_cast<size_t>(rank)] = std::move(vote);
  ++count_;
  return true;
}

std::vector<int> Ballot::Dissenters() const {
  std::map<std::pair<uint32_t, uint32_t>, size_t> counts;
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

double Ballot::StallSeconds() const {
  double longest = 0;
  for (const auto& vote : votes_) longest = std::max(longest, vote->stall_seconds);
  return longest;
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
