#pragma once
// Who holds what, as a pure function of the world. The model's state is cut into S shards (of every unit a contiguous
// run of whole chunks, balanced); ranks form G replica groups of S ranks each, rank = group * S + shard. A group serves
// the weights of forward and backward to its members. The N - G * S ranks that are left over serve nothing; they
// compute as guests of a group.
//
//   no_shard       S = 1, G = N: everybody has everything.
//   shard_grad_op  S = N / replicas, G = replicas; weights stay gathered for a whole step.
//   full_shard     the same; weights are gathered for each use.
//
// A shard consists of G slices, one for each of its serving ranks, which sums the slice's gradients. A shard's holders
// are its serving ranks and, where groups do not suffice, mirrors on other nodes, which keep its state but serve
// nobody. While one holder is alive nothing is lost.

#include <string>
#include <vector>

#include "framework/config/config.h"

namespace holdfast {

class Placement {
 public:
  /// `nodes`: the failure domain of each rank, at least one rank; ranks of one node stand together. More replicas or
  /// mirrors than ranks allow count as the most that they do. The last `leaving` ranks, fewer than all, are guests that
  /// hold nothing: what they held before moves to others while they are still there.
  Placement(std::vector<std::string> nodes, const ParallelConfig& options, int leaving = 0);

  int size() const { return static_cast<int>(nodes_.size()); }
  int num_shards() const { return num_shards_; }
  int num_groups() const { return num_groups_; }
  int num_slices() const { return num_shards_ * num_groups_; }

  /// The replica group whose members serve `rank` its weights.
  int GroupOf(int rank) const;
  /// Members of a group: its S serving ranks by shard, then its guests.
  std::vector<int> Group(int group) const;
  /// The shard that `rank` serves to its group, or -1 for a guest.
  int ServedShard(int rank) const { return rank < num_slices() ? rank % num_shards_ : -1; }

  /// Slices shard * G ... shard * G + G - 1 make up a shard.
  int ShardOfSlice(int slice) const { return slice / num_groups_; }
  /// The rank that sums the gradients of a slice.
  int RankOfSlice(int slice) const { return slice % num_groups_ * num_shards_ + slice / num_groups_; }
  /// The slice that `rank` sums, or -1 for a guest.
  int SliceOfRank(int rank) const;

  /// All ranks that hold the state of `shard`, serving ranks first.
  const std::vector<int>& Holders(int shard) const { return holders_[static_cast<size_t>(shard)]; }
  /// Shards whose state `rank` holds, the served one first.
  const std::vector<int>& HeldShards(int rank) const { return held_[static_cast<size_t>(rank)]; }

  /// Shards of which no holder is left if of all ranks only those with alive[rank] are.
  std::vector<int> LostShards(const std::vector<bool>& alive) const;

 private:
  int num_staying() const { return size() - leaving_; }
  void AddHolder(int shard, int rank);
  int PickMirror(int shard) const;

  std::vector<std::string> nodes_;
  int leaving_ = 0;
  int num_shards_ = 1, num_groups_ = 1;
  std::vector<std::vector<int>> holders_, held_;
};

}  // namespace holdfast
