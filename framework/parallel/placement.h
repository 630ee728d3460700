#pragma once
// Who holds what in a world. The model's state is cut into cells (shard_map.h says where they lie in a model), at least
// 16 for a rank; ranks form G replica groups. In every group each cell has one rank that serves its weights to the
// group's members. One of a cell's serving ranks is its primary: it sums the cell's gradients, tells its digests and
// writes it to checkpoints. A cell's holders are its serving ranks and, where groups do not suffice, mirrors on other
// nodes, which keep its state but serve nobody. While one holder is alive nothing is lost.
//
//   no_shard       G = number of ranks: everybody has everything.
//   shard_grad_op  G = replicas; weights stay gathered for a whole step.
//   full_shard     the same; weights are gathered for each use.
//
// The first placement of a run is a pure function of the world: each rank serves one range of cells, and these are
// mirrored by its two neighbours on a ring, half by each. Two ranks lost at the same moment take the last copy of
// something with them only if they are neighbours. A later one is made from the one before it, so that what need not
// move stays: it depends on what has been, and so travels with its world as a table (Table, FromTable). A placement
// decides no bits.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/config/config.h"
#include "framework/parallel/used_cells.h"

namespace holdfast {

class Placement {
 public:
  /// The first one. `nodes`: the failure domain of each rank, at least one rank; ranks of one node stand together. More
  /// replicas or mirrors than ranks allow count as the most that they do. The last `leaving` ranks, fewer than all, are
  /// compute-only ranks, which hold nothing: what they held before moves to others while they are still there.
  Placement(std::vector<std::string> nodes, const ParallelConfig& options, int leaving = 0);

  /// The one after `source`, of which rank r is rank source_ranks[r] here, or gone (-1). A cell that has lost a serving
  /// rank is served by a mirror; its load moves on round the ring, from mirror to mirror. A rank that is new gets an
  /// even part.
  Placement(std::vector<std::string> nodes, const ParallelConfig& options, int leaving, const Placement& source,
            absl::Span<const int> source_ranks);

  /// From a Table() that may come from anywhere; an empty one is that of the first placement. InvalidArgument.
  static absl::StatusOr<Placement> FromTable(std::vector<std::string> nodes, const ParallelConfig& options, int leaving,
                                             absl::Span<const uint32_t> table);
  /// Compact: a range of cells whose ranks are the same, or ascend by one, is one entry.
  std::vector<uint32_t> Table() const;

  int size() const { return static_cast<int>(nodes_.size()); }
  /// A power of two; those of a placement with more cells are cut out of those of one with fewer.
  int num_cells() const { return num_cells_; }
  int num_groups() const { return num_groups_; }
  /// Of each cell.
  int num_mirrors() const { return num_mirrors_; }

  /// Ranks of one failure domain have the same number, from 0.
  int NodeOf(int rank) const { return node_of_[static_cast<size_t>(rank)]; }
  /// The replica group whose members serve `rank` its weights.
  int GroupOf(int rank) const;
  /// Members of a group, ascending; compute-only ranks are among them.
  std::vector<int> Group(int group) const;
  /// The rank that serves `cell` to `group`.
  int ServerOf(int group, int cell) const;
  /// The rank that sums the gradients of `cell`.
  int PrimaryOf(int cell) const { return ServerOf(primary_group_[static_cast<size_t>(cell)], cell); }

  /// All ranks that hold the state of `cell`, its primary first, then its other serving ranks, then its mirrors.
  std::vector<int> Holders(int cell) const;

  /// Cells, of those that the model uses, of which no holder is left if of all ranks only those with alive[rank] are.
  std::vector<int> LostCells(const std::vector<bool>& alive, const UsedCells& used = {}) const;

  /// How many cells (of this size) of how many ranks have to move here from the placement before, given as in the
  /// constructor.
  int64_t MovedFrom(const Placement& source, absl::Span<const int> source_ranks) const;

  friend bool operator==(const Placement&, const Placement&) = default;

 private:
  struct Source;
  class MirrorPicker;
  static constexpr int kNobody = -1;

  Placement(std::vector<std::string> nodes, const ParallelConfig& options, int leaving, int least_cells);

  int num_staying() const { return size() - leaving_; }
  bool everybody_serves_all() const { return num_groups_ == num_staying(); }
  int Most(int64_t cells, int ranks) const;
  void CutGroups();
  void KeepGroups(const Source& source);
  void Serve(int group, const Source* source);
  void ChoosePrimaries(const Source* source);
  void KeepServing(int group, const Source& source, std::vector<std::vector<int>>* served) const;
  void BalanceServing(int group, int most, const Source& source, std::vector<std::vector<int>>* served) const;
  void GiveUpServing(const std::vector<int>& ranks, int most, std::vector<std::vector<int>>* served) const;
  void PlaceMirrors(const Source* source);
  std::vector<int> Ring() const;
  absl::Status Check() const;

  std::vector<std::string> nodes_;
  int leaving_ = 0;
  int num_cells_ = 0, num_groups_ = 1, num_mirrors_ = 0;  // mirrors of each cell
  std::vector<int> node_of_;                              // by rank
  std::vector<int> group_of_;                             // by rank that stays
  std::vector<int> servers_;                              // [group][cell]; empty if everybody serves everything
  std::vector<int> mirrors_;                              // [mirror][cell]
  std::vector<int> primary_group_;                        // [cell]
};

}  // namespace holdfast
