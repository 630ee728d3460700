#include "framework/parallel/placement.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "framework/base/status.h"
#include "framework/parallel/placement_source.h"

namespace holdfast {
namespace {

constexpr int kCellsPerRank = 16;  // of a group: parts of ranks differ by at most one cell
constexpr int kLeastCells = 256;

int CellsFor(int staying, int groups, int least) {
  const int wanted = std::max({(staying + groups - 1) / groups * kCellsPerRank, 2 * staying, kLeastCells, least});
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>(wanted)));
}

}  // namespace

Placement::Placement(std::vector<std::string> nodes, const ParallelConfig& options, int leaving, int least_cells)
    : nodes_(std::move(nodes)), leaving_(leaving) {
  HOLDFAST_CHECK(num_staying() > 0);
  const int64_t replicas = options.sharding == Sharding::kNoShard ? num_staying() : options.replicas;
  num_groups_ = static_cast<int>(std::min<int64_t>(replicas, num_staying()));
  num_mirrors_ = std::max(0, static_cast<int>(std::min<int64_t>(options.mirrors + 1, num_staying())) - num_groups_);
  num_cells_ = CellsFor(num_staying(), num_groups_, least_cells);
  std::vector<std::string> names(nodes_);
  std::sort(names.begin(), names.end());
  for (const std::string& node : nodes_) {
    node_of_.push_back(static_cast<int>(std::lower_bound(names.begin(), names.end(), node) - names.begin()));
  }
}

Placement::Placement(std::vector<std::string> nodes, const ParallelConfig& options, int leaving)
    : Placement(std::move(nodes), options, leaving, 0) {
  CutGroups();
  for (int group = 0; group < num_groups_; ++group) Serve(group, nullptr);
  ChoosePrimaries(nullptr);
  PlaceMirrors(nullptr);
}

Placement::Placement(std::vector<std::string> nodes, const ParallelConfig& options, int leaving,
                     const Placement& source, absl::Span<const int> source_ranks)
    : Placement(std::move(nodes), options, leaving, source.num_cells()) {
  const Source before(source, source_ranks, num_cells_, num_staying());
  KeepGroups(before);
  for (int group = 0; group < num_groups_; ++group) Serve(group, &before);
  ChoosePrimaries(&before);
  PlaceMirrors(&before);
}

// Of `cells` over `ranks`, the most that one of them gets.
int Placement::Most(int64_t cells, int ranks) const { return static_cast<int>((cells + ranks - 1) / ranks); }

void Placement::CutGroups() {
  for (int64_t rank = 0; rank < num_staying(); ++rank) {
    group_of_.push_back(static_cast<int>(rank * num_groups_ / num_staying()));
  }
}

// Members stay in their group, for another one's weights are other weights; new ones go where the fewest are.
void Placement::KeepGroups(const Source& source) {
  if (num_groups_ == 1 || everybody_serves_all() || source.before.num_groups() != num_groups_) return CutGroups();
  group_of_ = source.group_of;
  std::vector<int> members(static_cast<size_t>(num_groups_));
  for (const int group : group_of_) {
    if (group >= 0) ++members[static_cast<size_t>(group)];
  }
  for (int& group : group_of_) {
    if (group >= 0) continue;
    group = static_cast<int>(std::min_element(members.begin(), members.end()) - members.begin());
    ++members[static_cast<size_t>(group)];
  }
  while (true) {
    const auto [fewest, most] = std::minmax_element(members.begin(), members.end());
    if (*most - *fewest <= 1) return;
    const auto last = std::find(group_of_.rbegin(), group_of_.rend(), static_cast<int>(most - members.begin()));
    *last = static_cast<int>(fewest - members.begin());
    --*most;
    ++*fewest;
  }
}

int Placement::GroupOf(int rank) const {
  return rank < num_staying() ? group_of_[static_cast<size_t>(rank)] : (rank - num_staying()) % num_groups_;
}

std::vector<int> Placement::Group(int group) const {
  std::vector<int> members;
  for (int rank = 0; rank < size(); ++rank) {
    if (GroupOf(rank) == group) members.push_back(rank);
  }
  return members;
}

int Placement::ServerOf(int group, int cell) const {
  if (everybody_serves_all()) return group;
  return servers_[static_cast<size_t>(group) * static_cast<size_t>(num_cells_) + static_cast<size_t>(cell)];
}

std::vector<int> Placement::Holders(int cell) const {
  std::vector<int> holders{PrimaryOf(cell)};
  for (int group = 0; group < num_groups_; ++group) {
    if (group != primary_group_[static_cast<size_t>(cell)]) holders.push_back(ServerOf(group, cell));
  }
  for (size_t at = static_cast<size_t>(cell); at < mirrors_.size(); at += static_cast<size_t>(num_cells_)) {
    if (mirrors_[at] >= 0) holders.push_back(mirrors_[at]);
  }
  return holders;
}

std::vector<int> Placement::LostCells(const std::vector<bool>& alive, const UsedCells& used) const {
  const auto end = alive.begin() + num_staying();
  if (everybody_serves_all() && std::find(alive.begin(), end, true) != end) return {};  // thousands hold each cell
  const auto lives = [&](int rank) { return alive[static_cast<size_t>(rank)]; };
  std::vector<int> lost;
  for (int cell = 0; cell < num_cells_; ++cell) {
    if (lives(PrimaryOf(cell)) || !used.Has(cell, num_cells_)) continue;
    const std::vector<int> holders = Holders(cell);
    if (std::none_of(holders.begin(), holders.end(), lives)) lost.push_back(cell);
  }
  return lost;
}

int64_t Placement::MovedFrom(const Placement& source, absl::Span<const int> source_ranks) const {
  if (source.num_cells() > num_cells_) return std::numeric_limits<int64_t>::max();
  const Source before(source, source_ranks, num_cells_, size());
  int64_t moved = 0;
  std::vector<int> had(static_cast<size_t>(size()), -1);  // by rank: the last cell that it held before
  for (int cell = 0; cell < num_cells_; ++cell) {
    for (const int rank : before.Holders(cell)) had[static_cast<size_t>(rank)] = cell;
    for (const int rank : Holders(cell)) moved += had[static_cast<size_t>(rank)] == cell ? 0 : 1;
  }
  return moved;
}

}  // namespace holdfast
