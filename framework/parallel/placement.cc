#include "framework/parallel/placement.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr int kCellsPerRank = 16;  // of a group: parts of ranks differ by at most one cell
constexpr int kLeastCells = 256;
constexpr int kMaxCells = UsedCells::kFinest;
constexpr int64_t kMaxServers = int64_t{1} << 26;  // of all groups together
constexpr int kNobody = -1;

int CellsFor(int staying, int groups, int least) {
  const int wanted = std::max({(staying + groups - 1) / groups * kCellsPerRank, 2 * staying, kLeastCells, least});
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>(wanted)));
}

/// Each run is its first value and 2 * its length, or that and 1 if its values ascend by 1, as the mirrors of a rank's
/// cells do.
void AppendRunLengths(absl::Span<const int> values, std::vector<uint32_t>* table) {
  for (size_t i = 0; i < values.size();) {
    size_t end = i + 1;
    const int step = end < values.size() && values[end] == values[i] + 1 ? 1 : 0;
    while (end < values.size() && values[end] == values[end - 1] + step) ++end;
    table->push_back(static_cast<uint32_t>(values[i]));
    table->push_back(static_cast<uint32_t>(2 * (end - i)) + static_cast<uint32_t>(step));
    i = end;
  }
}

/// Takes the ranges of `count` values below `limit` off the front of `table`.
absl::Status TakeRunLengths(size_t count, int limit, absl::Span<const uint32_t>* table, std::vector<int>* values) {
  const size_t first = values->size();
  while (values->size() - first < count) {
    if (table->size() < 2) return absl::InvalidArgumentError("a placement that is cut off");
    const uint32_t value = (*table)[0], length = (*table)[1] / 2, step = (*table)[1] % 2;
    if (length == 0 || length > count - (values->size() - first) ||
        uint64_t{value} + uint64_t{step} * (length - 1) >= static_cast<uint64_t>(limit)) {
      return absl::InvalidArgumentError(absl::StrCat("a placement with ", length, " values from ", value, " on"));
    }
    for (uint32_t i = 0; i < length; ++i) values->push_back(static_cast<int>(value + step * i));
    table->remove_prefix(2);
  }
  return absl::OkStatus();
}

}  // namespace

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

// Whoever served a cell keeps it; else another holder takes it, for which nothing has to move. Whoever serves too much
// then gives some to their mirrors (BalanceServing), and what is still too much goes to whoever has least.
void Placement::Serve(int group, const Source* source) {
  if (everybody_serves_all()) return;
  std::vector<int> ranks;
  for (int rank = 0; rank < num_staying(); ++rank) {
    if (GroupOf(rank) == group) ranks.push_back(rank);
  }
  const int most = Most(num_cells_, static_cast<int>(ranks.size()));
  const size_t base = servers_.size();
  servers_.resize(base + static_cast<size_t>(num_cells_), kNobody);
  std::vector<std::vector<int>> served(static_cast<size_t>(num_staying()));  // cells, by rank
  if (source != nullptr) {
    KeepServing(group, *source, &served);
    BalanceServing(group, most, *source, &served);
    GiveUpServing(ranks, most, &served);
  }
  for (const int rank : ranks) {
    for (const int cell : served[static_cast<size_t>(rank)]) servers_[base + static_cast<size_t>(cell)] = rank;
  }
  // What is left goes in runs: to each rank, in turn, as much as it lacks of its part. The rest is less than a cell
  // each.
  std::vector<int> lacks, load(static_cast<size_t>(num_staying()));
  for (size_t i = 0; i < ranks.size(); ++i) {
    const int64_t n = static_cast<int64_t>(ranks.size()), at = static_cast<int64_t>(i);
    const auto part = static_cast<int>((at + 1) * num_cells_ / n - at * num_cells_ / n);
    int& serves = load[static_cast<size_t>(ranks[i])];
    serves = static_cast<int>(served[static_cast<size_t>(ranks[i])].size());
    lacks.push_back(std::max(0, part - serves));
  }
  size_t next = 0;
  for (int cell = 0; cell < num_cells_; ++cell) {
    int& server = servers_[base + static_cast<size_t>(cell)];
    if (server >= 0) continue;
    while (next < ranks.size() && lacks[next] == 0) ++next;
    if (next < ranks.size()) --lacks[next];
    const auto has_less = [&](int a, int b) { return load[static_cast<size_t>(a)] < load[static_cast<size_t>(b)]; };
    server = next < ranks.size() ? ranks[next] : *std::min_element(ranks.begin(), ranks.end(), has_less);
    ++load[static_cast<size_t>(server)];
  }
}

void Placement::KeepServing(int group, const Source& source, std::vector<std::vector<int>>* served) const {
  std::vector<int> open;
  for (int cell = 0; cell < num_cells_; ++cell) {
    const int rank = source.Server(group, cell);
    if (rank >= 0 && GroupOf(rank) == group) {
      (*served)[static_cast<size_t>(rank)].push_back(cell);
    } else {
      open.push_back(cell);
    }
  }
  for (const int cell : open) {
    std::vector<int> holders = source.Holders(cell);
    std::erase_if(holders, [&](int rank) { return GroupOf(rank) != group; });
    const auto best = std::min_element(holders.begin(), holders.end(), [&](int a, int b) {
      return (*served)[static_cast<size_t>(a)].size() < (*served)[static_cast<size_t>(b)].size();
    });
    if (best != holders.end()) (*served)[static_cast<size_t>(*best)].push_back(cell);
  }
}

// Who serves too much gives a cell to one that mirrors it, that one gives one of its own on, and so round the ring
// until somebody has room (chained declustering, Hsiao and DeWitt 1990): after a loss all serve alike, and nothing has
// moved.
void Placement::BalanceServing(int group, int most, const Source& source, std::vector<std::vector<int>>* served) const {
  struct Step {
    int from = kNobody, cell = 0;  // whose cell is to be taken
  };
  std::vector<bool> hopeless(served->size());  // nobody with room can be reached
  for (int first = 0; first < num_staying(); ++first) {
    while (static_cast<int>((*served)[static_cast<size_t>(first)].size()) > most &&
           !hopeless[static_cast<size_t>(first)]) {
      std::vector<Step> steps(served->size());
      std::vector<int> reached{first};
      int last = kNobody;
      for (size_t i = 0; i < reached.size() && last < 0; ++i) {
        for (const int cell : (*served)[static_cast<size_t>(reached[i])]) {
          for (const int rank : source.Holders(cell)) {
            Step& step = steps[static_cast<size_t>(rank)];
            const bool is_new = rank != first && step.from < 0 && GroupOf(rank) == group;
            if (!is_new || hopeless[static_cast<size_t>(rank)]) continue;
            step = {reached[i], cell};
            reached.push_back(rank);
            if (static_cast<int>((*served)[static_cast<size_t>(rank)].size()) < most) last = rank;
            if (last >= 0) break;
          }
          if (last >= 0) break;
        }
      }
      if (last < 0) {
        for (const int rank : reached) hopeless[static_cast<size_t>(rank)] = true;
        break;
      }
      for (int to = last; to != first; to = steps[static_cast<size_t>(to)].from) {
        const Step& step = steps[static_cast<size_t>(to)];
        std::erase((*served)[static_cast<size_t>(step.from)], step.cell);
        (*served)[static_cast<size_t>(to)].push_back(step.cell);
      }
    }
  }
}

// Its last cells, to those who have less than their part; an eighth too much is better than a step that has to wait.
void Placement::GiveUpServing(const std::vector<int>& ranks, int most, std::vector<std::vector<int>>* served) const {
  const int least = num_cells_ / static_cast<int>(ranks.size());
  const bool some_lack = std::any_of(ranks.begin(), ranks.end(), [&](int rank) {
    return static_cast<int>((*served)[static_cast<size_t>(rank)].size()) < least - least / 8;
  });
  for (const int rank : ranks) {
    std::vector<int>& cells = (*served)[static_cast<size_t>(rank)];
    std::sort(cells.begin(), cells.end());
    const int keeps = some_lack ? most : most + most / 8;
    if (static_cast<int>(cells.size()) > keeps) cells.resize(static_cast<size_t>(keeps));
  }
}

// Of several serving ranks: the one before, or the one that has least to sum.
void Placement::ChoosePrimaries(const Source* source) {
  primary_group_.assign(static_cast<size_t>(num_cells_), 0);
  if (num_groups_ == 1) return;
  const int most = Most(num_cells_, num_staying());
  std::vector<int> summed(static_cast<size_t>(num_staying()));
  const auto choose = [&](int cell, int group) {
    primary_group_[static_cast<size_t>(cell)] = group;
    ++summed[static_cast<size_t>(ServerOf(group, cell))];
  };
  std::vector<int> open;
  for (int64_t cell = 0; cell < num_cells_; ++cell) {
    const auto slice = static_cast<int>(cell * num_staying() / num_cells_);
    int group = slice % num_groups_;
    if (source != nullptr) {
      const int rank = source->Primary(static_cast<int>(cell));
      group = rank < 0 ? kNobody : GroupOf(rank);
      if (group >= 0 && ServerOf(group, static_cast<int>(cell)) != rank) group = kNobody;
      if (group >= 0 && summed[static_cast<size_t>(rank)] >= most) group = kNobody;
    }
    if (group >= 0) {
      choose(static_cast<int>(cell), group);
    } else {
      open.push_back(static_cast<int>(cell));
    }
  }
  for (const int cell : open) {
    int best = 0;
    for (int group = 1; group < num_groups_; ++group) {
      if (summed[static_cast<size_t>(ServerOf(group, cell))] < summed[static_cast<size_t>(ServerOf(best, cell))]) {
        best = group;
      }
    }
    choose(cell, best);
  }
}

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

std::vector<int> Placement::HeldCells(int rank) const {
  std::vector<int> cells;
  if (rank >= num_staying()) return cells;
  for (int cell = 0; cell < num_cells_; ++cell) {
    bool holds = ServerOf(GroupOf(rank), cell) == rank;
    for (size_t at = static_cast<size_t>(cell); at < mirrors_.size(); at += static_cast<size_t>(num_cells_)) {
      holds = holds || mirrors_[at] == rank;
    }
    if (holds) cells.push_back(cell);
  }
  return cells;
}

std::vector<int> Placement::LostCells(const std::vector<bool>& alive, const UsedCells& used) const {
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
  for (int cell = 0; cell < num_cells_; ++cell) {
    const std::vector<int> have = before.Holders(cell);
    for (const int rank : Holders(cell)) moved += std::find(have.begin(), have.end(), rank) == have.end() ? 1 : 0;
  }
  return moved;
}

// Cells, then ranges of: groups of ranks, serving ranks by group, groups of primaries, mirrors. What follows from the
// config and the number of ranks is left out.
std::vector<uint32_t> Placement::Table() const {
  std::vector<uint32_t> table{static_cast<uint32_t>(num_cells_)};
  AppendRunLengths(group_of_, &table);
  AppendRunLengths(servers_, &table);
  AppendRunLengths(primary_group_, &table);
  AppendRunLengths(mirrors_, &table);
  return table;
}

absl::StatusOr<Placement> Placement::FromTable(std::vector<std::string> nodes, const ParallelConfig& options,
                                               int leaving, absl::Span<const uint32_t> table) {
  if (table.empty()) return Placement(std::move(nodes), options, leaving);
  if (!std::has_single_bit(table[0]) || table[0] > kMaxCells) {
    return absl::InvalidArgumentError(absl::StrCat("a placement of ", table[0], " cells"));
  }
  Placement placement(std::move(nodes), options, leaving, static_cast<int>(table[0]));
  if (placement.num_cells_ != static_cast<int>(table[0])) {
    return absl::InvalidArgumentError(absl::StrCat("a placement of ", table[0], " cells for ", placement.size()));
  }
  table.remove_prefix(1);
  const auto cells = static_cast<size_t>(placement.num_cells_), groups = static_cast<size_t>(placement.num_groups_);
  const int staying = placement.num_staying();
  if (!placement.everybody_serves_all() && int64_t{placement.num_cells_} * placement.num_groups_ > kMaxServers) {
    return absl::InvalidArgumentError(absl::StrCat("a placement of ", cells, " cells in ", groups, " groups"));
  }
  RETURN_IF_ERROR(TakeRunLengths(static_cast<size_t>(staying), placement.num_groups_, &table, &placement.group_of_));
  if (!placement.everybody_serves_all()) {
    RETURN_IF_ERROR(TakeRunLengths(groups * cells, staying, &table, &placement.servers_));
  }
  RETURN_IF_ERROR(TakeRunLengths(cells, placement.num_groups_, &table, &placement.primary_group_));
  RETURN_IF_ERROR(
      TakeRunLengths(static_cast<size_t>(placement.num_mirrors_) * cells, staying, &table, &placement.mirrors_));
  if (!table.empty()) return absl::InvalidArgumentError("a placement with something behind it");
  RETURN_IF_ERROR(placement.Check());
  return placement;
}

absl::Status Placement::Check() const {
  for (int cell = 0; cell < num_cells_; ++cell) {
    for (int group = 0; group < num_groups_; ++group) {
      if (GroupOf(ServerOf(group, cell)) != group) {
        return absl::InvalidArgumentError(absl::StrCat("cell ", cell, " is served to group ", group, " by another"));
      }
    }
    std::vector<int> holders = Holders(cell);
    std::sort(holders.begin(), holders.end());
    if (std::adjacent_find(holders.begin(), holders.end()) != holders.end()) {
      return absl::InvalidArgumentError(absl::StrCat("cell ", cell, " is held twice by one rank"));
    }
  }
  return absl::OkStatus();
}

}  // namespace holdfast
