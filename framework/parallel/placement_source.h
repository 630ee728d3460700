#pragma once
// The placement before another one, as that one is made from it. Only for the files of Placement.

#include <vector>

#include "absl/types/span.h"
#include "framework/parallel/placement.h"

namespace holdfast {

/// The placement before, in cells and ranks of this one.
struct Placement::Source {
  Source(const Placement& placement, absl::Span<const int> new_ranks, int cells, int staying)
      : before(placement),
        ranks(new_ranks.begin(), new_ranks.end()),
        cells_per_cell(cells / placement.num_cells()),
        group_of(static_cast<size_t>(staying), kNobody) {
    for (int& rank : ranks) {
      if (rank >= staying) rank = kNobody;  // who leaves holds nothing from now on
    }
    for (int r = 0; r < before.num_staying(); ++r) {
      const int rank = ranks[static_cast<size_t>(r)];
      if (rank >= 0) group_of[static_cast<size_t>(rank)] = before.GroupOf(r);
    }
  }
  int RankOf(int old_rank) const { return ranks[static_cast<size_t>(old_rank)]; }
  std::vector<int> Holders(int cell) const {
    std::vector<int> holders;
    for (const int r : before.Holders(cell / cells_per_cell)) {
      if (RankOf(r) >= 0) holders.push_back(RankOf(r));
    }
    return holders;
  }
  int Server(int group, int cell) const {
    return group < before.num_groups() ? RankOf(before.ServerOf(group, cell / cells_per_cell)) : kNobody;
  }
  int Primary(int cell) const { return RankOf(before.PrimaryOf(cell / cells_per_cell)); }

  const Placement& before;
  std::vector<int> ranks;
  int cells_per_cell;
  std::vector<int> group_of;  // by rank here: its group there
};

}  // namespace holdfast
