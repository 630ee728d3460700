// Who mirrors each cell.

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

#include "framework/parallel/least_elsewhere.h"
#include "framework/parallel/placement.h"
#include "framework/parallel/placement_source.h"

namespace holdfast {

/// Chooses who mirrors a cell, so that few pairs of ranks are the only holders of something.
class Placement::MirrorPicker {
 public:
  /// `most`: cells that one rank is to hold. `held`: those that each rank holds.
  MirrorPicker(const Placement& placement, const Source* source, int most, const std::vector<int>& held)
      : p_(placement),
        is_first_(source == nullptr),
        most_(most),
        ring_(placement.Ring()),
        place_(ring_.size()),
        partners_(ring_.size()),
        new_place_(ring_.size(), kNobody),
        last_(ring_.size(), kNobody),
        held_(held) {
    for (size_t i = 0; i < ring_.size(); ++i) place_[static_cast<size_t>(ring_[i])] = static_cast<int>(i);
    FindHalves();
    if (source != nullptr) FindPartners(*source);
    std::vector<int> ring_nodes, excess, places(ring_.size());
    for (const int rank : ring_) {
      ring_nodes.push_back(p_.NodeOf(rank));
      excess.push_back(Excess(rank));
    }
    std::iota(places.begin(), places.end(), 0);
    std::vector<int> new_nodes, new_held;
    for (const int rank : new_ranks_) {
      new_place_[static_cast<size_t>(rank)] = static_cast<int>(new_nodes.size());
      new_nodes.push_back(p_.NodeOf(rank));
      new_held.push_back(Held(rank));
    }
    const int most_out = p_.num_groups_ + p_.num_mirrors_;  // nodes and places of holders
    on_other_nodes_.emplace(ring_nodes, excess, p_.size(), most_out);
    anywhere_.emplace(places, excess, p_.num_staying(), most_out);
    new_on_other_nodes_.emplace(new_nodes, new_held, p_.size(), most_out);
  }

  /// Of a cell that `holders` hold; that rank then holds one cell more.
  int Pick(int cell, const std::vector<int>& holders) {
    std::vector<int> nodes;
    for (const int holder : holders) nodes.push_back(p_.NodeOf(holder));
    int rank = is_first_ ? kNobody : Partner(cell, holders, nodes);
    if (rank < 0) {
      rank = Neighbour(cell, holders, nodes);
      for (const int holder : holders) {
        if (!is_first_) Pair(holder, rank);
      }
    }
    Add(rank);
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

  int Held(int rank) const { return held_[static_cast<size_t>(rank)]; }
  /// Cells beyond what is enough, with one more.
  int Excess(int rank) const {
    const int enough = most_ + (is_first_ ? 2 : 0);  // halves of parts are rounded
    return std::max(0, Held(rank) + 1 - enough);
  }
  void Add(int rank) {
    const int before = Excess(rank), place = place_[static_cast<size_t>(rank)];
    ++held_[static_cast<size_t>(rank)];
    if (const int excess = Excess(rank); excess != before) {
      on_other_nodes_->Set(place, excess);
      anywhere_->Set(place, excess);
    }
    const int new_place = new_place_[static_cast<size_t>(rank)];
    if (new_place >= 0) new_on_other_nodes_->Set(new_place, Held(rank));
  }

  /// Of the ranks that are partners of all holders, or are new and have to get something, the one that holds least, or
  /// the one that was chosen for the cell before, if that holds little more: runs are longer. -1 if none has room on
  /// another node.
  int Partner(int cell, const std::vector<int>& holders, const std::vector<int>& nodes) {
    const int limit = most_ + most_ / 4;
    int& last = last_[static_cast<size_t>(p_.PrimaryOf(cell))];
    int best = kNobody;
    bool last_has_room = false;
    const auto has_room = [&](int rank) {
      return Held(rank) < limit && std::find(nodes.begin(), nodes.end(), p_.NodeOf(rank)) == nodes.end();
    };
    for (const int rank : partners_[static_cast<size_t>(holders[0])]) {
      const auto is_partner = [&](int holder) { return partners_[static_cast<size_t>(holder)].contains(rank); };
      if (!std::all_of(holders.begin() + 1, holders.end(), is_partner) || !has_room(rank)) continue;
      last_has_room = last_has_room || rank == last;
      if (best < 0 || Held(rank) < Held(best)) best = rank;
    }
    new_on_other_nodes_->LeaveOut(nodes);
    const int least = new_on_other_nodes_->Least();
    if (least < limit && (best < 0 || least < Held(best))) {
      const int place = new_on_other_nodes_->First(0, static_cast<int>(new_ranks_.size()), least);
      best = new_ranks_[static_cast<size_t>(place)];
    }
    last_has_room = last_has_room || (last >= 0 && new_place_[static_cast<size_t>(last)] >= 0 && has_room(last));
    if (!last_has_room || Held(last) > Held(best) + most_ / 8) last = best;
    return last;
  }

  /// The nearest on the ring, on a node that does not hold the cell, if there is one, and with room.
  int Neighbour(int cell, const std::vector<int>& holders, const std::vector<int>& nodes) {
    const int near = NextWithRoom(cell, nodes);
    if (near >= 0) return near;
    on_other_nodes_->LeaveOut(nodes);
    if (on_other_nodes_->Least() != LeastElsewhere::kNone) return Nearest(cell, *on_other_nodes_);
    std::vector<int> places;
    for (const int holder : holders) places.push_back(place_[static_cast<size_t>(holder)]);
    anywhere_->LeaveOut(places);
    return Nearest(cell, *anywhere_);
  }

  /// The nearest, if it is one of the next few: for most cells it is, and then this is quicker.
  int NextWithRoom(int cell, const std::vector<int>& nodes) const {
    constexpr int kFew = 4;
    const int size = p_.num_staying(), owner = place_[static_cast<size_t>(p_.PrimaryOf(cell))];
    for (int i = 0; i < 2 * std::min(kFew, size); ++i) {
      const bool forward = (i % 2 == 1) == second_half_[static_cast<size_t>(cell)];
      const int distance = i / 2 + 1;
      const int rank = ring_[static_cast<size_t>((owner + (forward ? distance : size - distance)) % size)];
      if (Excess(rank) == 0 && std::find(nodes.begin(), nodes.end(), p_.NodeOf(rank)) == nodes.end()) return rank;
    }
    return kNobody;
  }

  /// Of the places in `ring` that count and have the least excess.
  int Nearest(int cell, const LeastElsewhere& ring) const {
    const int size = p_.num_staying(), owner = place_[static_cast<size_t>(p_.PrimaryOf(cell))], least = ring.Least();
    int ahead = ring.First(owner, size, least), behind = ring.Last(0, owner, least);
    if (ahead < 0) ahead = size + ring.First(0, owner, least);
    if (behind < 0) behind = ring.Last(owner, size, least) - size;
    const int forward = ahead - owner, back = owner - behind;
    const bool is_forward = second_half_[static_cast<size_t>(cell)] ? forward < back : forward <= back;
    return ring_[static_cast<size_t>((is_forward ? ahead : behind + size) % size)];
  }

  const Placement& p_;
  const bool is_first_;
  const int most_;
  std::vector<int> ring_, place_;                            // rank by place, place by rank
  std::vector<bool> second_half_;                            // by cell
  std::vector<std::set<int>> partners_;                      // by rank
  std::vector<int> new_ranks_, new_place_;                   // ascending; by rank: where it stands there
  std::vector<int> last_;                                    // by primary: who was chosen for the cell before
  std::vector<int> held_;                                    // by rank
  std::optional<LeastElsewhere> on_other_nodes_, anywhere_;  // excess by place on the ring; labels: nodes, places
  std::optional<LeastElsewhere> new_on_other_nodes_;         // cells held, by place among new ranks; labels: nodes
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
  MirrorPicker picker(*this, source, most, held);
  for (int mirror = 1; mirror <= num_mirrors_; ++mirror) {
    for (int cell = 0; cell < num_cells_; ++cell) {
      const std::vector<int>& of_cell = holders[static_cast<size_t>(cell)];
      if (static_cast<int>(of_cell.size()) < num_groups_ + mirror) add(cell, picker.Pick(cell, of_cell));
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
