#include "tests/framework/parallel/plain_mirrors.h"

#include <algorithm>
#include <climits>
#include <numeric>
#include <set>
#include <tuple>

namespace holdfast {
namespace {

constexpr int kGone = -1;

bool Contains(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

class PlainMirrors {
 public:
  PlainMirrors(const Placement& placement, int leaving, const std::optional<PlacementBefore>& before)
      : p_(placement),
        before_(before),
        staying_(placement.size() - leaving),
        copies_(placement.num_groups() + placement.num_mirrors()),
        most_((p_.num_cells() * copies_ + staying_ - 1) / staying_),
        held_(static_cast<size_t>(staying_)),
        holders_(static_cast<size_t>(p_.num_cells())),
        partners_(static_cast<size_t>(staying_)),
        last_(static_cast<size_t>(staying_), kGone) {
    if (!before.has_value()) return;
    std::set<int> had_cells;
    for (int old = 0; old < before->placement.size() - before->leaving; ++old) had_cells.insert(Now(old));
    for (int rank = 0; rank < staying_; ++rank) {
      if (!had_cells.contains(rank)) new_ranks_.push_back(rank);
    }
  }

  std::vector<std::vector<int>> Choose() {
    for (int cell = 0; cell < p_.num_cells(); ++cell) {
      Add(cell, p_.PrimaryOf(cell));
      for (int group = 0; group < p_.num_groups(); ++group) {
        if (p_.ServerOf(group, cell) != p_.PrimaryOf(cell)) Add(cell, p_.ServerOf(group, cell));
      }
    }
    if (p_.num_mirrors() == 0) return holders_;
    if (before_.has_value()) {
      KeepMirrors();
      FindPartners();
    }
    MakeRing();
    FindHalves();
    for (int copies = p_.num_groups() + 1; copies <= copies_; ++copies) {
      for (int cell = 0; cell < p_.num_cells(); ++cell) {
        if (static_cast<int>(Of(cell).size()) < copies) Add(cell, Pick(cell));
      }
    }
    return holders_;
  }

 private:
  std::vector<int>& Of(int cell) { return holders_[static_cast<size_t>(cell)]; }
  int Held(int rank) const { return held_[static_cast<size_t>(rank)]; }
  void Add(int cell, int rank) {
    Of(cell).push_back(rank);
    ++held_[static_cast<size_t>(rank)];
  }
  std::set<int> NodesOf(const std::vector<int>& ranks) const {
    std::set<int> nodes;
    for (const int rank : ranks) nodes.insert(p_.NodeOf(rank));
    return nodes;
  }
  bool SharesNode(int rank, const std::vector<int>& holders) const {
    return std::any_of(holders.begin(), holders.end(),
                       [&](int holder) { return p_.NodeOf(holder) == p_.NodeOf(rank); });
  }

  int Now(int old_rank) const {
    const int rank = before_->ranks[static_cast<size_t>(old_rank)];
    return rank < staying_ ? rank : kGone;
  }
  std::vector<int> HeldBefore(int cell) const {
    std::vector<int> holders;
    for (const int rank : before_->placement.Holders(cell / (p_.num_cells() / before_->placement.num_cells()))) {
      if (Now(rank) >= 0) holders.push_back(Now(rank));
    }
    return holders;
  }

  void KeepMirrors() {
    const int limit = new_ranks_.empty() ? INT_MAX : most_ + most_ / 16;
    std::vector<int> all(static_cast<size_t>(staying_));
    std::iota(all.begin(), all.end(), 0);
    const size_t num_nodes = NodesOf(all).size();
    for (const bool is_new : {true, false}) {
      for (int cell = 0; cell < p_.num_cells(); ++cell) {
        std::vector<int> have = HeldBefore(cell);
        if (Contains(have, p_.PrimaryOf(cell)) == is_new) continue;
        while (static_cast<int>(Of(cell).size()) < copies_) {
          std::erase_if(have, [&](int rank) {
            const bool is_apart = NodesOf(Of(cell)).size() == num_nodes || !SharesNode(rank, Of(cell));
            return Held(rank) >= limit || Contains(Of(cell), rank) || !is_apart;
          });
          if (have.empty()) break;
          Add(cell, *std::min_element(have.begin(), have.end(), [&](int a, int b) { return Held(a) < Held(b); }));
        }
      }
    }
  }

  void Pair(int a, int b) {
    if (a == b) return;
    partners_[static_cast<size_t>(a)].insert(b);
    partners_[static_cast<size_t>(b)].insert(a);
  }
  void FindPartners() {
    std::vector<std::set<int>> of_gone(before_->ranks.size());
    for (int cell = 0; cell < before_->placement.num_cells(); ++cell) {
      for (const int a : before_->placement.Holders(cell)) {
        for (const int b : before_->placement.Holders(cell)) {
          if (a == b || Now(b) < 0) continue;
          if (Now(a) >= 0) Pair(Now(a), Now(b));
          if (Now(a) < 0) of_gone[static_cast<size_t>(a)].insert(Now(b));
        }
      }
    }
    for (const std::set<int>& ranks : of_gone) {
      for (const int a : ranks) {
        for (const int b : ranks) Pair(a, b);
      }
    }
  }

  void MakeRing() {
    std::vector<int> ranks(static_cast<size_t>(staying_)), on_node(static_cast<size_t>(p_.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    for (const int rank : ranks) ++on_node[static_cast<size_t>(p_.NodeOf(rank))];
    std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
      const int x = p_.NodeOf(a), y = p_.NodeOf(b);
      return std::tuple(-on_node[static_cast<size_t>(x)], x) < std::tuple(-on_node[static_cast<size_t>(y)], y);
    });
    ring_.resize(ranks.size());
    for (size_t i = 0; i < ranks.size(); ++i) {  // the even places first
      const size_t even = (ranks.size() + 1) / 2;
      ring_[i < even ? 2 * i : 2 * (i - even) + 1] = ranks[i];
    }
  }

  // Of the cells that a rank sums, the second half.
  void FindHalves() {
    std::vector<std::vector<int>> summed(static_cast<size_t>(staying_));
    second_half_.resize(static_cast<size_t>(p_.num_cells()));
    for (int cell = 0; cell < p_.num_cells(); ++cell) summed[static_cast<size_t>(p_.PrimaryOf(cell))].push_back(cell);
    for (const std::vector<int>& cells : summed) {
      for (size_t i = cells.size() / 2; i < cells.size(); ++i) second_half_[static_cast<size_t>(cells[i])] = true;
    }
  }

  int Pick(int cell) {
    if (!before_.has_value()) return Neighbour(cell, most_ + 2);
    const int partner = Partner(cell);
    if (partner >= 0) return partner;
    const int rank = Neighbour(cell, most_);
    for (const int holder : Of(cell)) Pair(holder, rank);
    return rank;
  }

  int Partner(int cell) {
    const std::vector<int>& holders = Of(cell);
    int& last = last_[static_cast<size_t>(holders[0])];
    std::vector<int> candidates;
    for (const int rank : partners_[static_cast<size_t>(holders[0])]) {
      if (std::all_of(holders.begin() + 1, holders.end(),
                      [&](int holder) { return partners_[static_cast<size_t>(holder)].contains(rank); })) {
        candidates.push_back(rank);
      }
    }
    candidates.insert(candidates.end(), new_ranks_.begin(), new_ranks_.end());
    std::erase_if(candidates, [&](int rank) { return Held(rank) >= most_ + most_ / 4 || SharesNode(rank, holders); });
    if (candidates.empty()) return last = kGone;
    const int best =
        *std::min_element(candidates.begin(), candidates.end(), [&](int a, int b) { return Held(a) < Held(b); });
    if (!Contains(candidates, last) || Held(last) > Held(best) + most_ / 8) last = best;
    return last;
  }

  int Neighbour(int cell, int enough) {
    const std::vector<int>& holders = Of(cell);
    const auto size = static_cast<int>(ring_.size());
    const auto owner = static_cast<int>(std::find(ring_.begin(), ring_.end(), holders[0]) - ring_.begin());
    int best = kGone;
    std::tuple<bool, int> best_cost;
    for (int i = 0; i < 2 * size; ++i) {
      const bool forward = (i % 2 == 1) == second_half_[static_cast<size_t>(cell)];
      const int distance = i / 2 + 1;
      const int rank = ring_[static_cast<size_t>((owner + (forward ? distance : 2 * size - distance)) % size)];
      if (Contains(holders, rank)) continue;
      const std::tuple cost{SharesNode(rank, holders), std::max(0, Held(rank) + 1 - enough)};
      if (best >= 0 && cost >= best_cost) continue;
      best = rank;
      best_cost = cost;
    }
    return best;
  }

  const Placement& p_;
  const std::optional<PlacementBefore>& before_;
  const int staying_, copies_, most_;
  std::vector<int> held_;                  // by rank
  std::vector<std::vector<int>> holders_;  // by cell
  std::vector<std::set<int>> partners_;    // by rank
  std::vector<int> last_;                  // by primary
  std::vector<int> ring_, new_ranks_;
  std::vector<bool> second_half_;  // by cell
};

}  // namespace

std::vector<std::vector<int>> PlainHolders(const Placement& placement, int leaving,
                                           const std::optional<PlacementBefore>& before) {
  return PlainMirrors(placement, leaving, before).Choose();
}

}  // namespace holdfast
