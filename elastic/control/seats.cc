#include "elastic/control/seats.h"

#include <algorithm>
#include <vector>

#include "elastic/control/state_source.h"

namespace holdfast {
namespace {

constexpr size_t kMaxWorlds = 8;

/// The same workers in the same places, whichever processes they are.
bool HaveSameSeats(const World& a, const World& b) {
  return std::equal(a.members.begin(), a.members.end(), b.members.begin(), b.members.end(),
                    [](const Member& x, const Member& y) {
                      return x.id.name == y.id.name && x.node == y.node && x.leaves == y.leaves;
                    });
}

}  // namespace

void Seats::Remember(const World& world) {
  std::erase_if(worlds_, [&](const World& other) { return HaveSameSeats(world, other); });
  worlds_.push_front(world);
  if (worlds_.size() > kMaxWorlds) worlds_.pop_back();
}

PlacementTable Seats::PlacementFor(const World& world, const World& source, const ParallelConfig& parallel) const {
  if (source.generation == 0) return {};
  std::vector<int> source_ranks;
  source_ranks.reserve(source.members.size());
  for (const Member& member : source.members) source_ranks.push_back(world.RankOf(member.id));
  const Placement before = PlacementOf(source, parallel);
  const Placement least(NodesOf(world), parallel, world.num_leaving(), before, source_ranks);
  const auto had =
      std::find_if(worlds_.begin(), worlds_.end(), [&](const World& other) { return HaveSameSeats(world, other); });
  if (had == worlds_.end()) return least.Table();
  const Placement old = PlacementOf(*had, parallel);
  std::vector<bool> is_new(world.members.size(), true);
  for (const int rank : source_ranks) {
    if (rank >= 0) is_new[static_cast<size_t>(rank)] = false;
  }
  int64_t lost = 0;  // what those that hold nothing now had
  for (int cell = 0; cell < old.num_cells(); ++cell) {
    for (const int rank : old.Holders(cell)) lost += is_new[static_cast<size_t>(rank)] ? 1 : 0;
  }
  const bool moves_little =
      old.num_cells() == least.num_cells() &&
      old.MovedFrom(before, source_ranks) <= std::max(lost, least.MovedFrom(before, source_ranks));
  return moves_little ? had->placement : least.Table();
}

}  // namespace holdfast
