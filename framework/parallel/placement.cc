#include "framework/parallel/placement.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "framework/base/status.h"

namespace holdfast {

Placement::Placement(std::vector<std::string> nodes, const ParallelConfig& options, int leaving)
    : nodes_(std::move(nodes)), leaving_(leaving) {
  HF_CHECK(num_staying() > 0);
  const int64_t replicas = options.sharding == Sharding::kNoShard ? num_staying() : options.replicas;
  num_groups_ = static_cast<int>(std::min<int64_t>(replicas, num_staying()));
  num_shards_ = num_staying() / num_groups_;
  holders_.resize(static_cast<size_t>(num_shards_));
  held_.resize(nodes_.size());
  for (int rank = 0; rank < num_slices(); ++rank) AddHolder(ServedShard(rank), rank);
  const int64_t wanted = std::min<int64_t>(options.mirrors + 1, num_staying());
  for (int64_t holders = num_groups_; holders < wanted; ++holders) {
    for (int shard = 0; shard < num_shards_; ++shard) AddHolder(shard, PickMirror(shard));
  }
}

void Placement::AddHolder(int shard, int rank) {
  holders_[static_cast<size_t>(shard)].push_back(rank);
  held_[static_cast<size_t>(rank)].push_back(shard);
}

// On a node that does not hold the shard yet, if there is one; then the rank that holds least; then the next one in the
// ring, so that the mirrors of neighbours are neighbours.
int Placement::PickMirror(int shard) const {
  const std::vector<int>& holders = Holders(shard);
  int best = -1;
  std::tuple<bool, size_t, int> best_cost;
  for (int distance = 1; distance < num_staying(); ++distance) {
    const int rank = (holders.front() + distance) % num_staying();
    if (std::find(holders.begin(), holders.end(), rank) != holders.end()) continue;
    const auto same_node = [&](int h) { return nodes_[static_cast<size_t>(h)] == nodes_[static_cast<size_t>(rank)]; };
    const std::tuple cost{std::any_of(holders.begin(), holders.end(), same_node), HeldShards(rank).size(), distance};
    if (best < 0 || cost < best_cost) {
      best = rank;
      best_cost = cost;
    }
  }
  return best;
}

int Placement::GroupOf(int rank) const {
  return rank < num_slices() ? rank / num_shards_ : (rank - num_slices()) % num_groups_;
}

std::vector<int> Placement::Group(int group) const {
  std::vector<int> members;
  for (int rank = 0; rank < size(); ++rank) {
    if (GroupOf(rank) == group) members.push_back(rank);
  }
  return members;
}

int Placement::SliceOfRank(int rank) const {
  return rank < num_slices() ? ServedShard(rank) * num_groups_ + GroupOf(rank) : -1;
}

std::vector<int> Placement::LostShards(const std::vector<bool>& alive) const {
  std::vector<int> lost;
  for (int shard = 0; shard < num_shards_; ++shard) {
    const std::vector<int>& holders = Holders(shard);
    if (std::none_of(holders.begin(), holders.end(), [&](int rank) { return alive[static_cast<size_t>(rank)]; })) {
      lost.push_back(shard);
    }
  }
  return lost;
}

}  // namespace holdfast
