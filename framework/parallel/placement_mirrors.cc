// Who mirrors each cell.

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>

#include "framework/parallel/placement.h"
#include "framework/parallel/placement_source.h"

namespace holdfast {

/// Chooses who mirrors a cell, so that few pairs of ranks are the only holders of something.
class Placement::MirrorPicker {
 public:
  /// `most`: cells that one rank is to hold.
  MirrorPicker(const Placement& placement, const Source* source, int most)
      : p_(placement),
        is_first_(source == nullptr),
        most_(most),
        ring_(placement.Ring()),
        place_(ring_.size()),
        partners_(ring_.size()),
        last_(ring_.size(), kNobody) {
    for (size_t i = 0; i < ring_.size(); ++i) place_[static_cast<size_t>(ring_[i])] = static_cast<int>(i);
    FindHalves();
    if (source != nullptr) FindPartners(*source);
  }

  int Pick(int cell, const std::vector<int>& holders, const std::vector<int>& held) {
    if (is_first_) return Neighbour(cell, holders, held);
    const int partner = Partner(cell, holders, held);
    if (partner >= 0) return partner;
    const int rank = Neighbour(cell, holders, held);
    for (const int holder : holders) Pair(holder, rank);
    return rank;
  }

 private:
  // Of the cells of each rank the second half goes to the other neighbour first.
  void FindHalves() {
    const auto cells = static_cast<size_t>(p_.num_cells_);
    std::vector<int> summed(ring_.size()), seen(ring_.size());
    for (size_t cell = 0; cell < cells; ++cell) ++summed[static_cast<size_t>(p_.PrimaryOf(static_cast<int>(cell)))];
    for (size_t cell = 0; cell < cells; ++cell) {
      const auto owner = static_cast<size_t>(p_.PrimaryOf(static_cast<int>(cell)));
      second_half_.push_back(seen[owner]++ >= summed[owner] / 2);
    }
  }

  // Ranks that held something together before; and those who did so with the same one that is gone, so that its
  // neighbours on the ring become each other's.
  void FindPartners(const Source& source) {
    std::vector<std::set<int>> of_gone(source.ranks.size());
    for (int cell = 0; cell < source.before.num_cells(); ++cell) {
      const std::vector<int> holders = source.before.Holders(cell);
      for (const int a : holders) {
        for (const int b : holders) {
          const int rank = source.RankOf(b);
          if (a == b || rank < 0) continue;
          if (source.RankOf(a) >= 0) Pair(source.RankOf(a), rank);
          if (source.RankOf(a) < 0) of_gone[static_cast<size_t>(a)].insert(rank);
        }
      }
    }
    for (const std::set<int>& ranks : of_gone) {
      for (const int a : ranks) {
        for (const int b : ranks) Pair(a, b);
      }
    }
    for (int rank = 0; rank < p_.num_staying(); ++rank) {
      if (source.group_of[static_cast<size_t>(rank)] < 0) new_ranks_.push_back(rank);
    }
  }
  void Pair(int a, int b) {
    if (a == b) return;
    partners_[static_cast<size_t>(a)].insert(b);
    partners_[static_cast<size_t>(b)].insert(a);
  }

  bool SharesNode(int rank, const std::vector<int>& holders) const {
    return std::any_of(holders.begin(), holders.end(), [&](int holder) {
      return p_.node_of_[static_cast<size_t>(holder)] == p_.node_of_[static_cast<size_t>(rank)];
    });
  }

  /// Of the ranks that are partners of all holders, or are new and have to get something, the one that holds least, or
  /// the one that was chosen for the cell before, if that holds little more: runs are longer. -1 if none has room on
  /// another node.
  int Partner(int cell, const std::vector<int>& holders, const std::vector<int>& held) {
    const int limit = most_ + most_ / 4;
    int& last = last_[static_cast<size_t>(p_.PrimaryOf(cell))];
    int best = kNobody;
    bool last_has_room = false;
    const auto consider = [&](int rank) {
      const int holds = held[static_cast<size_t>(rank)];
      if (holds >= limit || std::find(holders.begin(), holders.end(), rank) != holders.end()) return;
      if (SharesNode(rank, holders)) return;
      last_has_room = last_has_room || rank == last;
      if (best < 0 || holds < held[static_cast<size_t>(best)]) best = rank;
    };
    for (const int rank : partners_[static_cast<size_t>(holders[0])]) {
      const auto is_partner = [&](int holder) { return partners_[static_cast<size_t>(holder)].contains(rank); };
      if (std::all_of(holders.begin() + 1, holders.end(), is_partner)) consider(rank);
    }
    for (const int rank : new_ranks_) consider(rank);
    const auto load = [&](int rank) { return held[static_cast<size_t>(rank)]; };
    if (!last_has_room || load(last) > load(best) + most_ / 8) last = best;
    return last;
  }

  /// The nearest on the ring, on a node that does not hold the cell, if there is one, and with room.
  int Neighbour(int cell, const std::vector<int>& holders, const std::vector<int>& held) const {
    const auto size = static_cast<int>(ring_.size());
    const int owner = place_[static_cast<size_t>(p_.PrimaryOf(cell))];
    const int enough = most_ + (is_first_ ? 2 : 0);  // halves of parts are rounded
    int best = kNobody;
    std::tuple<bool, int> best_cost;
    for (int i = 0; i < 2 * size; ++i) {
      const bool forward = (i % 2 == 1) == second_half_[static_cast<size_t>(cell)];
      const int distance = i / 2 + 1;
      const int rank = ring_[static_cast<size_t>((owner + (forward ? distance : 2 * size - distance)) % size)];
      if (std::find(holders.begin(), holders.end(), rank) != holders.end()) continue;
      const std::tuple cost{SharesNode(rank, holders), std::max(0, held[static_cast<size_t>(rank)] + 1 - enough)};
      if (best >= 0 && cost >= best_cost) continue;
      best = rank;
      best_cost = cost;
      if (cost == std::tuple{false, 0}) break;
    }
    return best;
  }

  const Placement& p_;
  const bool is_first_;
  const int most_;
  std::vector<int> ring_, place_;        // rank by place, place by rank
  std::vector<bool> second_half_;        // by cell
  std::vector<std::set<int>> partners_;  // by rank
  std::vector<int> new_ranks_;
  std::vector<int> last_;  // by primary: who was chosen for the cell before
};

// Whoever holds a cell keeps it as a mirror, unless it has more than its part or stands on a node that has the cell
// anyway; then others get it.
void Placement::PlaceMirrors(const Source* source) {
  mirrors_.assign(static_cast<size_t>(num_mirrors_) * static_cast<size_t>(num_cells_), kNobody);
  if (num_mirrors_ == 0) return;
  const int most = Most(int64_t{num_cells_} * (num_groups_ + num_mirrors_), num_staying());
  std::vector<int> held(static_cast<size_t>(num_staying()));
  std::vector<std::vector<int>> holders(static_cast<size_t>(num_cells_));
  const size_t num_nodes = std::set<int>(node_of_.begin(), node_of_.begin() + num_staying()).size();
  for (int cell = 0; cell < num_cells_; ++cell) {
    holders[static_cast<size_t>(cell)] = Holders(cell);
    for (const int rank : holders[static_cast<size_t>(cell)]) ++held[static_cast<size_t>(rank)];
  }
  const auto add = [&](int cell, int rank) {
    std::vector<int>& of_cell = holders[static_cast<size_t>(cell)];
    const auto mirror = static_cast<int>(of_cell.size()) - num_groups_;
    mirrors_[static_cast<size_t>(mirror) * static_cast<size_t>(num_cells_) + static_cast<size_t>(cell)] = rank;
    of_cell.push_back(rank);
    ++held[static_cast<size_t>(rank)];
  };
  const auto is_apart = [&](const std::vector<int>& ranks, int rank) {
    std::set<int> nodes;
    for (const int r : ranks) nodes.insert(node_of_[static_cast<size_t>(r)]);
    return nodes.size() == num_nodes || !nodes.contains(node_of_[static_cast<size_t>(rank)]);
  };
  // Without anybody new nothing is given away: a loss moves only copies that were lost.
  const bool some_are_new = source != nullptr && std::find(source->group_of.begin(), source->group_of.end(), kNobody) !=
                                                     source->group_of.end();
  const int limit = some_are_new ? most + most / 16 : std::numeric_limits<int>::max();
  // First where a rank that is new serves: it is others who have to keep these.
  std::vector<int> order;
  for (const bool is_new : {true, false}) {
    for (int cell = 0; cell < num_cells_ && source != nullptr; ++cell) {
      const std::vector<int> have = source->Holders(cell);
      if ((std::find(have.begin(), have.end(), PrimaryOf(cell)) == have.end()) == is_new) order.push_back(cell);
    }
  }
  for (const int cell : order) {
    std::vector<int> have = source->Holders(cell);
    std::vector<int>& of_cell = holders[static_cast<size_t>(cell)];
    while (static_cast<int>(of_cell.size()) < num_groups_ + num_mirrors_) {
      std::erase_if(have, [&](int rank) {
        return held[static_cast<size_t>(rank)] >= limit ||
               std::find(of_cell.begin(), of_cell.end(), rank) != of_cell.end() || !is_apart(of_cell, rank);
      });
      if (have.empty()) break;
      add(cell, *std::min_element(have.begin(), have.end(), [&](int a, int b) {
            return held[static_cast<size_t>(a)] < held[static_cast<size_t>(b)];
          }));
    }
  }
  MirrorPicker picker(*this, source, most);
  for (int mirror = 1; mirror <= num_mirrors_; ++mirror) {
    for (int cell = 0; cell < num_cells_; ++cell) {
      const std::vector<int>& of_cell = holders[static_cast<size_t>(cell)];
      if (static_cast<int>(of_cell.size()) < num_groups_ + mirror) add(cell, picker.Pick(cell, of_cell, held));
    }
  }
}

// Ranks in an order in which neighbours stand on different nodes, as far as no node has more than half of them: those
// of one node, the largest first, take every second place.
std::vector<int> Placement::Ring() const {
  std::vector<int> on_node(nodes_.size()), ranks(static_cast<size_t>(num_staying()));
  std::iota(ranks.begin(), ranks.end(), 0);
  for (const int rank : ranks) ++on_node[static_cast<size_t>(node_of_[static_cast<size_t>(rank)])];
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    const int x = node_of_[static_cast<size_t>(a)], y = node_of_[static_cast<size_t>(b)];
    return std::tuple(-on_node[static_cast<size_t>(x)], x) < std::tuple(-on_node[static_cast<size_t>(y)], y);
  });
  std::vector<int> ring(ranks.size());
  size_t place = 0;
  for (const int rank : ranks) {
    ring[place] = rank;
    place += 2;
    if (place >= ring.size() && place % 2 == 0) place = 1;
  }
  return ring;
}

}  // namespace holdfast
