#include "elastic/control/departures.h"

#include <algorithm>
#include <map>
#include <set>

namespace holdfast {
namespace {

constexpr int kGone = -2;

/// By rank of `source`: its place in `leaving`, kStays, or kGone if it is not here.
std::vector<int> PlacesOf(const World& source, const std::vector<bool>& here, const std::vector<std::string>& leaving) {
  std::map<std::string, int> place_of;
  for (size_t i = 0; i < leaving.size(); ++i) place_of.emplace(leaving[i], static_cast<int>(i));
  std::vector<int> places;
  places.reserve(here.size());
  for (size_t rank = 0; rank < here.size(); ++rank) {
    const auto found = place_of.find(source.members[rank].node);
    places.push_back(!here[rank] ? kGone : found == place_of.end() ? kStays : found->second);
  }
  return places;
}

std::vector<int> CellsToAskAbout(const World& source, const Placement& placement, const UsedCells& used) {
  const bool all_hold_all = placement.num_groups() == source.size() - source.num_leaving();
  std::vector<int> cells;
  for (int cell = 0; cell < placement.num_cells() && !(all_hold_all && !cells.empty()); ++cell) {
    if (used.Has(cell, placement.num_cells())) cells.push_back(cell);
  }
  return cells;
}

}  // namespace

std::vector<bool> WhoCanGo(const World& source, const Placement& placement, const UsedCells& used,
                           const std::vector<bool>& here, const std::vector<std::string>& leaving) {
  const std::vector<int> places = PlacesOf(source, here, leaving);
  const auto place = [&](int rank) { return places[static_cast<size_t>(rank)]; };
  // A cell keeps nobody but the last in line of its holders: while one before that decides, the last is still there.
  std::vector<std::vector<int>> kept_by(leaving.size());  // cells, by place of that one
  for (const int cell : CellsToAskAbout(source, placement, used)) {
    const std::vector<int> holders = placement.Holders(cell);
    if (std::any_of(holders.begin(), holders.end(), [&](int rank) { return place(rank) == kStays; })) continue;
    const int last =
        place(*std::max_element(holders.begin(), holders.end(), [&](int a, int b) { return place(a) < place(b); }));
    if (last >= 0) kept_by[static_cast<size_t>(last)].push_back(cell);
  }
  std::vector<bool> goes(leaving.size(), true);
  for (size_t i = 0; i < leaving.size(); ++i) {
    goes[i] = std::all_of(kept_by[i].begin(), kept_by[i].end(), [&](int cell) {
      const std::vector<int> holders = placement.Holders(cell);
      return std::any_of(holders.begin(), holders.end(), [&](int rank) {
        return place(rank) >= 0 && static_cast<size_t>(place(rank)) < i && !goes[static_cast<size_t>(place(rank))];
      });
    });
  }
  return goes;
}

std::vector<std::vector<int>> LastHolders(const World& source, const Placement& placement, const UsedCells& used,
                                          const std::vector<bool>& here, const std::vector<int>& part_of) {
  const auto stays = [&](int rank) {
    return here[static_cast<size_t>(rank)] && part_of[static_cast<size_t>(rank)] == kStays;
  };
  std::set<std::vector<int>> last;
  for (const int cell : CellsToAskAbout(source, placement, used)) {
    if (stays(placement.PrimaryOf(cell))) continue;  // as of most cells
    const std::vector<int> holders = placement.Holders(cell);
    if (std::any_of(holders.begin(), holders.end(), stays)) continue;
    std::set<int> parts;
    for (const int rank : holders) {
      if (here[static_cast<size_t>(rank)]) parts.insert(part_of[static_cast<size_t>(rank)]);
    }
    last.emplace(parts.begin(), parts.end());
  }
  return {last.begin(), last.end()};
}

}  // namespace holdfast
