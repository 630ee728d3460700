// Placement, shard map, reduction plan, gather plan and transfer plan hold what they promise, for random worlds:
// everything is held as often as asked for and on other nodes where there are any, nothing twice, nothing left out; the
// load is balanced; and what moves is what has to.

#include "framework/parallel/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <set>

#include "framework/parallel/gather_plan.h"
#include "framework/parallel/reduction_plan.h"
#include "framework/parallel/shard_map.h"
#include "framework/parallel/sharded_state.h"
#include "framework/parallel/transfer_plan.h"
#include "tests/framework/base/slower.h"
#include "tests/framework/parallel/held_cells.h"
#include "tests/framework/parallel/plain_mirrors.h"

namespace holdfast {
namespace {

std::vector<std::string> RandomNodes(std::mt19937& random, int size) {
  std::vector<std::string> nodes;
  for (int node = 0; static_cast<int>(nodes.size()) < size; ++node) {
    for (auto n = 1 + random() % 4; n > 0 && static_cast<int>(nodes.size()) < size; --n) {
      nodes.push_back("node" + std::to_string(node));
    }
  }
  return nodes;
}

ParallelConfig RandomParallel(std::mt19937& random) {
  return {.sharding = static_cast<Sharding>(random() % 3),
          .replicas = 1 + static_cast<int64_t>(random() % 4),
          .mirrors = static_cast<int64_t>(random() % 4)};
}

ParameterLayout RandomLayout(std::mt19937& random) {
  std::vector<ParameterSpec> parameters;
  std::vector<std::string> units;
  const int num_units = 1 + static_cast<int>(random() % 5);
  for (int u = 0; u < num_units; ++u) {
    units.push_back("unit" + std::to_string(u));
    for (auto n = 1 + random() % 4; n > 0; --n) {
      ParameterSpec p;
      p.name = units.back() + "." + std::to_string(n);
      p.shape = random() % 3 == 0
                    ? Shape{static_cast<int64_t>(1 + random() % 500)}
                    : Shape{static_cast<int64_t>(1 + random() % 900), static_cast<int64_t>(1 + random() % 700)};
      p.unit = u;
      parameters.push_back(p);
    }
  }
  return ParameterLayout(std::move(parameters), std::move(units));
}

std::vector<std::string> OwnNodes(int size) {
  std::vector<std::string> nodes;
  for (int rank = 0; rank < size; ++rank) nodes.push_back("node" + std::to_string(rank));
  return nodes;
}

int64_t CopiesOf(const ParallelConfig& parallel, const Placement& p, int staying) {
  return std::max<int64_t>(std::min<int64_t>(parallel.mirrors + 1, staying), p.num_groups());
}

/// Everything is held as often as asked for, served once to each group, and by nobody who leaves.
void ExpectWhole(const Placement& p, const std::vector<std::string>& nodes, const ParallelConfig& parallel,
                 int leaving = 0) {
  const int staying = p.size() - leaving;
  for (int cell = 0; cell < p.num_cells(); ++cell) {
    const std::vector<int> holders = p.Holders(cell);
    ASSERT_EQ(std::set<int>(holders.begin(), holders.end()).size(), holders.size());
    ASSERT_EQ(static_cast<int64_t>(holders.size()), CopiesOf(parallel, p, staying));
    ASSERT_EQ(holders.front(), p.PrimaryOf(cell));
    ASSERT_EQ(p.ServerOf(p.GroupOf(holders.front()), cell), holders.front());
    for (int group = 0; group < p.num_groups(); ++group) {
      ASSERT_EQ(p.GroupOf(p.ServerOf(group, cell)), group);
      ASSERT_NE(std::find(holders.begin(), holders.end(), p.ServerOf(group, cell)), holders.end());
    }
    std::set<std::string> on;
    for (const int rank : holders) {
      ASSERT_LT(rank, staying);
      on.insert(nodes[static_cast<size_t>(rank)]);
    }
    const std::set<std::string> there(nodes.begin(), nodes.begin() + staying);
    if (p.num_groups() == 1) {
      ASSERT_EQ(on.size(), std::min(holders.size(), there.size())) << "mirrors share nodes";
    }
  }
  int in_groups = 0;
  for (int g = 0; g < p.num_groups(); ++g) in_groups += static_cast<int>(p.Group(g).size());
  ASSERT_EQ(in_groups, p.size());
}

TEST(Placement, HoldsEveryCellAsOftenAsAskedAndOnOtherNodes) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const int size = 1 + static_cast<int>(random() % 12);
    const std::vector<std::string> nodes = RandomNodes(random, size);
    const ParallelConfig parallel = RandomParallel(random);
    const Placement p(nodes, parallel);
    ExpectWhole(p, nodes, parallel);
    ASSERT_EQ(Placement::FromTable(nodes, parallel, 0, p.Table()).value(), p);
    ASSERT_EQ(Placement::FromTable(nodes, parallel, 0, {}).value(), p);
    for (int group = 0; group < p.num_groups();
         ++group) {  // one run for each rank, so that nothing has to be put in order
      int runs = 0;
      for (int cell = 0; cell < p.num_cells(); ++cell) {
        runs += cell == 0 || p.ServerOf(group, cell) != p.ServerOf(group, cell - 1) ? 1 : 0;
      }
      ASSERT_EQ(runs, static_cast<int>(p.Group(group).size()));
    }
  }
}

TEST(Placement, ThoseThatLeaveHoldNothingAndTheOthersHoldAsIfTheyWereGone) {
  std::mt19937 random(9);
  for (int round = 0; round < 100; ++round) {
    const int size = 2 + static_cast<int>(random() % 8), leaving = 1 + static_cast<int>(random() % (size - 1));
    std::vector<std::string> nodes = RandomNodes(random, size);
    const ParallelConfig parallel = RandomParallel(random);
    const Placement p(nodes, parallel, leaving);
    ExpectWhole(p, nodes, parallel, leaving);
    nodes.resize(static_cast<size_t>(size - leaving));
    const Placement without(nodes, parallel);
    ASSERT_EQ(p.num_cells(), without.num_cells());
    for (int cell = 0; cell < p.num_cells(); ++cell) ASSERT_EQ(p.Holders(cell), without.Holders(cell));
    for (int rank = size - leaving; rank < size; ++rank) {
      const std::vector<int> group = p.Group(p.GroupOf(rank));
      ASSERT_NE(std::find(group.begin(), group.end(), rank), group.end()) << "a compute-only rank computes";
    }
  }
}

/// Most and least cells that a rank serves, and holds.
struct Load {
  explicit Load(const Placement& p) {
    std::vector<int> served(static_cast<size_t>(p.size()));
    for (int cell = 0; cell < p.num_cells(); ++cell) ++served[static_cast<size_t>(p.ServerOf(0, cell))];
    const std::vector<std::vector<int>> held = HeldCells(p);
    for (int rank = 0; rank < p.size(); ++rank) {
      const auto holds = static_cast<int>(held[static_cast<size_t>(rank)].size());
      most_held = std::max(most_held, holds);
      least_held = std::min(least_held, holds);
      most_served = std::max(most_served, served[static_cast<size_t>(rank)]);
    }
  }
  int most_held = 0, least_held = INT_MAX, most_served = 0;
};

/// Pairs of ranks that are all holders of some cell: lost at the same moment, they take it with them.
std::set<std::pair<int, int>> FatalPairs(const Placement& p) {
  std::set<std::pair<int, int>> pairs;
  for (int cell = 0; cell < p.num_cells(); ++cell) {
    std::vector<int> holders = p.Holders(cell);
    std::sort(holders.begin(), holders.end());
    if (holders.size() == 2) pairs.insert({holders[0], holders[1]});
  }
  return pairs;
}

// Each rank's cells are mirrored by two others, half by each: only neighbours on the ring must not go together.
TEST(Placement, MirrorsAreEvenAndWithTwoNeighbours) {
  for (int size = 2; size <= 64; ++size) {
    const Placement p(OwnNodes(size), {.mirrors = 1});
    const Load load(p);
    EXPECT_LE(load.most_held - load.least_held, 2) << size;
    std::vector<std::map<int, int>> mirrors(static_cast<size_t>(size));
    for (int cell = 0; cell < p.num_cells(); ++cell) {
      ++mirrors[static_cast<size_t>(p.PrimaryOf(cell))][p.Holders(cell)[1]];
    }
    for (const auto& of_rank : mirrors) {
      ASSERT_EQ(static_cast<int>(of_rank.size()), std::min(size - 1, 2)) << size;
      EXPECT_LE(std::abs(of_rank.begin()->second - of_rank.rbegin()->second), 1) << size;
    }
    EXPECT_EQ(static_cast<int>(FatalPairs(p).size()), size == 2 ? 1 : size);
  }
}

// Several ranks of a node, also of nodes of different sizes: mirrors are on other nodes and each rank has two.
TEST(Placement, NeighboursStandOnDifferentNodes) {
  for (const std::vector<std::string>& nodes : {std::vector<std::string>{"a", "a", "b", "b"},
                                                {"a", "a", "a", "b", "b", "b", "c"},
                                                {"a", "b", "b", "b", "c", "c"},
                                                {"a", "a", "a", "a", "b", "b", "b", "b", "c", "c", "c", "c"}}) {
    const Placement p(nodes, {.mirrors = 1});
    const auto pairs = FatalPairs(p);
    EXPECT_EQ(pairs.size(), nodes.size());
    for (const auto& [x, y] : pairs) EXPECT_NE(nodes[static_cast<size_t>(x)], nodes[static_cast<size_t>(y)]);
  }
}

TEST(Placement, AWholeNodeMayGoIfThereIsAnother) {
  for (const int64_t replicas : {1, 2}) {
    const std::vector<std::string> nodes{"a", "a", "b", "b"};
    const Placement p(nodes, {.replicas = replicas});
    EXPECT_TRUE(p.LostCells({true, true, false, false}).empty());
    EXPECT_TRUE(p.LostCells({false, false, true, true}).empty());
    EXPECT_EQ(p.LostCells({false, false, false, false}).size(), static_cast<size_t>(p.num_cells()));
  }
}

/// Ranks of a world of `size` after `lost` is gone.
std::vector<int> Without(int lost, int size) {
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(rank == lost ? -1 : rank - (rank > lost ? 1 : 0));
  return ranks;
}

double Fraction(int64_t cells, const Placement& p) { return static_cast<double>(cells) / p.num_cells(); }

// The bound that is promised: 3/N of the state, and in general one N-th more than there are copies. And the next step
// waits for nothing: what is served was held by who serves it.
TEST(Placement, ALossMovesAtMostThreeNthsAndAJoinNoMore) {
  for (const int size : {3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 64, 128, 200, 256, 512, 1024}) {
    if (size > 1024 / kSlower) break;
    for (const int64_t mirrors : {1, 2}) {
      const ParallelConfig parallel{.mirrors = mirrors};
      const Placement before(OwnNodes(size), parallel);
      const double bound = static_cast<double>(mirrors + 2) / size;
      for (const int lost : {0, size / 2, size - 1}) {
        const std::vector<int> ranks = Without(lost, size);
        std::vector<std::string> nodes = OwnNodes(size);
        nodes.erase(nodes.begin() + lost);
        const Placement after(nodes, parallel, 0, before, ranks);
        EXPECT_LE(Fraction(after.MovedFrom(before, ranks), after), bound) << size << " loses " << lost;
        int late = 0;
        for (int cell = 0; cell < after.num_cells(); ++cell) {
          bool had = false;
          for (const int r : before.Holders(cell * before.num_cells() / after.num_cells())) {
            had = had || ranks[static_cast<size_t>(r)] == after.PrimaryOf(cell);
          }
          late += had ? 0 : 1;
        }
        EXPECT_EQ(late, 0) << size << " loses " << lost;
        // It comes back: to where it was, with nothing moving but what it lost.
        std::vector<int> back(static_cast<size_t>(size - 1));
        for (int rank = 0; rank < size - 1; ++rank) back[static_cast<size_t>(rank)] = rank + (rank >= lost ? 1 : 0);
        if (before.num_cells() == after.num_cells()) {
          EXPECT_EQ(before.MovedFrom(after, back), std::ssize(HeldCells(before)[static_cast<size_t>(lost)])) << size;
        }
        const Placement joined(OwnNodes(size), parallel, 0, after, back);
        EXPECT_LE(Fraction(joined.MovedFrom(after, back), joined), bound) << size << " gets " << lost;
      }
    }
  }
}

struct Figures {
  double fatal = 0, moved = 0, most_served = 0, most_held = 0;  // of pairs, of the state, and of an even part
};
std::ostream& operator<<(std::ostream& out, const Figures& f) {
  char text[100];
  std::snprintf(text, sizeof(text), "%.4f of pairs fatal, %.4f moved, at most %.3f served, %.3f held", f.fatal, f.moved,
                f.most_served, f.most_held);
  return out << text;
}
Figures FiguresOf(const Placement& p, int64_t moved) {
  const double n = p.size(), cells = p.num_cells(), copies = std::min(n, 2.0);
  const Load load(p);
  return {static_cast<double>(FatalPairs(p).size()) / (n * (n - 1) / 2), static_cast<double>(moved) / cells,
          load.most_served * n / cells, load.most_held * n / cells / copies};
}

// One mirror, each rank on a node of its own: the table of framework/parallel/README.md.
TEST(Placement, ARingStaysARingWhenSomebodyGoesAndComesBack) {
  for (const int size : {3, 4, 8, 16, 64, 1024}) {
    const ParallelConfig parallel{.mirrors = 1};
    const Placement before(OwnNodes(size), parallel);
    const int lost = size / 2;
    std::vector<std::string> nodes = OwnNodes(size);
    nodes.erase(nodes.begin() + lost);
    const std::vector<int> ranks = Without(lost, size);
    const Placement after(nodes, parallel, 0, before, ranks);
    std::vector<int> back;
    for (int rank = 0; rank < size - 1; ++rank) back.push_back(rank + (rank >= lost ? 1 : 0));
    const Figures fresh = FiguresOf(before, 0), loss = FiguresOf(after, after.MovedFrom(before, ranks));
    const Figures is_back = FiguresOf(before, before.MovedFrom(after, back));
    std::cout << "N = " << size << ", fresh: " << fresh << "\n  one lost: " << loss << "\n  it is back: " << is_back
              << "\n";
    const double cell = static_cast<double>(size) / before.num_cells();  // of an even part
    EXPECT_EQ(static_cast<int>(FatalPairs(before).size()), size);
    EXPECT_LE(fresh.most_held, 1 + cell);
    EXPECT_EQ(static_cast<int>(FatalPairs(after).size()), size == 3 ? 1 : size - 1) << "the ring is not closed";
    EXPECT_LE(loss.moved, 2.0 / size + cell / size);
    EXPECT_LE(loss.most_served, 1 + cell);
    EXPECT_LE(loss.most_held, 1.25 + cell);
    EXPECT_LE(is_back.moved, 2.0 / size + cell / size);
  }
}

// Over many changes: the bound holds for each, whatever came before, and parts stay even.
TEST(Placement, StaysEvenAndMovesLittleOverManyChanges) {
  std::mt19937 random(5);
  for (int round = 0; round < 12 / kSlower; ++round) {
    const ParallelConfig parallel{.mirrors = 1 + static_cast<int64_t>(random() % 2)};
    const auto start = 4 + static_cast<int>(random() % 20);
    std::vector<std::string> nodes = OwnNodes(start);
    Placement now(nodes, parallel);
    for (int change = 0; change < 60; ++change) {
      const auto size = static_cast<int>(nodes.size());
      std::vector<int> ranks(nodes.size());
      std::iota(ranks.begin(), ranks.end(), 0);
      if (size > 3 && random() % 2 == 0) {
        const auto lost = static_cast<int>(random() % nodes.size());
        nodes.erase(nodes.begin() + lost);
        ranks = Without(lost, size);
      } else {
        nodes.push_back("later" + std::to_string(change));
      }
      const Placement next(nodes, parallel, 0, now, ranks);
      ExpectWhole(next, nodes, parallel);
      const auto larger = static_cast<double>(std::max<size_t>(nodes.size(), static_cast<size_t>(size)));
      const double bound = static_cast<double>(parallel.mirrors + 2) / larger;
      EXPECT_LE(Fraction(next.MovedFrom(now, ranks), next), bound + 1e-9) << size << " to " << nodes.size();
      ASSERT_EQ(Placement::FromTable(nodes, parallel, 0, next.Table()).value(), next);
      const Load load(next);
      const double even = static_cast<double>(next.num_cells()) / static_cast<double>(nodes.size());
      EXPECT_LE(load.most_served, even * 1.125 + 1);
      EXPECT_LE(load.most_held, even * static_cast<double>(parallel.mirrors + 1) * 1.25 + 2);
      now = next;
    }
  }
}

// The same with all strategies, many nodes and members that leave: nothing is left out.
TEST(Placement, IsWholeAfterAnyChange) {
  std::mt19937 random(6);
  for (int round = 0; round < 60; ++round) {
    const ParallelConfig parallel = RandomParallel(random);
    const auto before = 1 + static_cast<int>(random() % 9);
    std::vector<std::string> nodes = RandomNodes(random, before);
    Placement now(nodes, parallel);
    for (int change = 0; change < 10; ++change) {
      std::vector<int> places(1 + random() % 9), ranks;
      std::iota(places.begin(), places.end(), 0);
      const auto size = static_cast<int>(places.size());
      std::shuffle(places.begin(), places.end(), random);
      for (int rank = 0; rank < now.size(); ++rank) {
        const bool stays = !places.empty() && random() % 3 != 0;
        ranks.push_back(stays ? places.back() : -1);
        if (stays) places.pop_back();
      }
      nodes = RandomNodes(random, size);
      const auto leaving = static_cast<int>(random() % static_cast<unsigned>(size));
      const Placement next(nodes, parallel, leaving, now, ranks);
      ExpectWhole(next, nodes, parallel, leaving);
      ASSERT_EQ(Placement::FromTable(nodes, parallel, leaving, next.Table()).value(), next);
      now = next;
    }
  }
}

/// A node for each rank, nodes of up to four, a few nodes, or one.
std::vector<std::string> NodesOfAnyKind(std::mt19937& random, int size) {
  const auto kind = random() % 4;
  if (kind == 0) return OwnNodes(size);
  if (kind == 1) return RandomNodes(random, size);
  const unsigned num_nodes = kind == 2 ? 2 + static_cast<unsigned>(random() % 3) : 1;
  std::vector<std::string> nodes;
  for (int rank = 0; rank < size; ++rank) nodes.push_back("node" + std::to_string(random() % num_nodes));
  std::sort(nodes.begin(), nodes.end());
  return nodes;
}

void ExpectPlainMirrors(const Placement& p, int leaving, const std::optional<PlacementBefore>& before = std::nullopt) {
  const std::vector<std::vector<int>> plain = PlainHolders(p, leaving, before);
  for (int cell = 0; cell < p.num_cells(); ++cell) ASSERT_EQ(p.Holders(cell), plain[static_cast<size_t>(cell)]) << cell;
}

/// Cells of ranks that did not have them, by definition: each is looked for among those who had it.
int64_t PlainMoved(const Placement& p, const Placement& before, const std::vector<int>& ranks) {
  int64_t moved = 0;
  for (int cell = 0; cell < p.num_cells(); ++cell) {
    std::set<int> had;
    for (const int r : before.Holders(cell / (p.num_cells() / before.num_cells()))) {
      had.insert(ranks[static_cast<size_t>(r)]);
    }
    for (const int rank : p.Holders(cell)) moved += had.contains(rank) ? 0 : 1;
  }
  return moved;
}

// Mirrors are found without looking at all ranks for every cell; they are those that looking at all would find. So is
// what moves.
TEST(Placement, MirrorsAreThoseOfThePlainDefinition) {
  std::mt19937 random(11);
  for (int round = 0; round < 200 / kSlower; ++round) {
    SCOPED_TRACE(round);
    ParallelConfig parallel = RandomParallel(random);
    parallel.mirrors = 1 + static_cast<int64_t>(random() % 4);
    int leaving = 0;
    std::optional<Placement> now;
    for (int change = 0; change < 6; ++change) {
      const int size = 1 + static_cast<int>(random() % (round % 4 == 0 ? 60 : 12));
      const std::vector<std::string> nodes = NodesOfAnyKind(random, size);
      const int leaving_now = random() % 3 == 0 ? static_cast<int>(random() % static_cast<unsigned>(size)) : 0;
      if (!now.has_value()) {
        now = Placement(nodes, parallel, leaving_now);
        ExpectPlainMirrors(*now, leaving_now);
      } else {
        std::vector<int> places(static_cast<size_t>(size)), ranks;
        std::iota(places.begin(), places.end(), 0);
        if (random() % 2 == 0) std::shuffle(places.begin(), places.end(), random);
        const auto losses = 1 + random() % 8;  // one in so many is lost
        for (int rank = 0; rank < now->size(); ++rank) {
          const bool stays = !places.empty() && random() % losses < std::max(losses - 1, 1ul);
          ranks.push_back(stays ? places.back() : -1);
          if (stays) places.pop_back();
        }
        const Placement next(nodes, parallel, leaving_now, *now, ranks);
        ExpectPlainMirrors(next, leaving_now, PlacementBefore{*now, leaving, ranks});
        ASSERT_EQ(next.MovedFrom(*now, ranks), PlainMoved(next, *now, ranks));
        now = next;
      }
      if (HasFatalFailure()) return;
      leaving = leaving_now;
    }
  }
}

// It is told to everybody with each world: a few numbers for each rank, though each has 16 cells and as many mirrors.
TEST(Placement, ATableIsSmall) {
  constexpr int kSize = 1024;
  const ParallelConfig parallel{.mirrors = 1};
  const Placement first(OwnNodes(kSize), parallel);
  EXPECT_LT(first.Table().size(), size_t{8} * kSize);
  const Placement next(OwnNodes(kSize - 1), parallel, 0, first, Without(7, kSize));
  EXPECT_LT(next.Table().size(), size_t{8} * kSize);
  std::vector<int> half(kSize - 1, -1);
  std::iota(half.begin(), half.begin() + kSize / 2, 0);
  EXPECT_LT(Placement(OwnNodes(kSize / 2), parallel, 0, next, half).Table().size(), size_t{8} * kSize);
}

TEST(Placement, ATableThatMakesNoSenseIsAnError) {
  const std::vector<std::string> nodes = OwnNodes(4);
  const ParallelConfig parallel{.mirrors = 1};
  const std::vector<uint32_t> good = Placement(nodes, parallel).Table();
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::vector<uint32_t> bad = good;
    for (auto n = 1 + random() % 3; n > 0; --n) {
      uint32_t& number = bad[random() % bad.size()];
      number = random() % 2 == 0 ? static_cast<uint32_t>(random()) : static_cast<uint32_t>(random() % 300);
    }
    if (random() % 3 == 0) bad.resize(random() % bad.size());
    const auto parsed = Placement::FromTable(nodes, parallel, 0, bad);
    if (bad.empty()) continue;
    if (parsed.ok()) {
      ExpectWhole(*parsed, nodes, parallel);
    } else {
      ASSERT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
    }
  }
  EXPECT_FALSE(Placement::FromTable(OwnNodes(3), parallel, 0, good).ok()) << "of more ranks than there are";
  const ParallelConfig no_shard{.sharding = Sharding::kNoShard};
  std::vector<uint32_t> one_group = Placement(nodes, no_shard).Table();
  ASSERT_EQ(one_group[2], 9u) << "groups of four ranks that ascend by one";
  one_group[2] = 8;  // all in the first
  EXPECT_FALSE(Placement::FromTable(nodes, no_shard, 0, one_group).ok()) << "of groups without members";
}

// As many as a run may have, each a group of its own: there is no table of who serves whom.
TEST(Placement, ManyThatHoldTheWholeModel) {
  const std::vector<std::string> nodes = OwnNodes(4100);
  const ParallelConfig parallel{.sharding = Sharding::kNoShard};
  const Placement p(nodes, parallel);
  EXPECT_EQ(Placement::FromTable(nodes, parallel, 0, p.Table()).value(), p);
}

// What a model does not use is never lost; what it uses is, whichever cut is asked.
TEST(UsedCells, AreThoseOfTheChunks) {
  std::mt19937 random(8);
  for (int round = 0; round < 50; ++round) {
    const ParameterLayout layout = RandomLayout(random);
    const UsedCells used(layout);
    for (const int size : {3, 40, 300}) {
      const Placement p(OwnNodes(size), {.mirrors = 1});
      const ShardMap map(layout, DType::kF32, p);
      std::set<int> cells;
      for (int chunk = 0; chunk < static_cast<int>(layout.chunks().size()); ++chunk)
        cells.insert(map.CellOfChunk(chunk));
      for (int cell = 0; cell < p.num_cells(); ++cell) {
        ASSERT_EQ(used.Has(cell, p.num_cells()), cells.contains(cell));
        ASSERT_TRUE(UsedCells().Has(cell, p.num_cells()));
      }
      const std::vector<bool> nobody(static_cast<size_t>(size));
      EXPECT_EQ(p.LostCells(nobody, used), std::vector<int>(cells.begin(), cells.end()));
    }
  }
}

/// Whether the ranges lie in [0, size) and none in another.
bool LieApart(Ranges ranges, int64_t size) {
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  int64_t end = 0;
  for (const Range& range : ranges) {
    if (range.begin < end || range.end < range.begin) return false;
    end = range.end;
  }
  return end <= size;
}

TEST(ShardMap, CutsEveryUnitWithoutHoleOrOverlapAndBalanced) {
  std::mt19937 random(2);
  for (int round = 0; round < 150; ++round) {
    const ParameterLayout layout = RandomLayout(random);
    const int size = 1 + static_cast<int>(random() % 7);
    const Placement placement(RandomNodes(random, size), RandomParallel(random));
    const ShardMap map(layout, random() % 2 == 0 ? DType::kBF16 : DType::kF32, placement);
    const Placement finer(OwnNodes(200), {}), finest(OwnNodes(400), {});
    const ShardMap fine(layout, DType::kBF16, finer), finer_still(layout, DType::kBF16, finest);
    for (int chunk = 0; chunk < static_cast<int>(layout.chunks().size()); ++chunk) {
      const int factor = finest.num_cells() / finer.num_cells();
      ASSERT_EQ(finer_still.CellOfChunk(chunk) / factor, fine.CellOfChunk(chunk))
          << "cells are not cut out of larger ones";
    }
    for (int u = 0; u < layout.num_units(); ++u) {
      const Unit& unit = layout.units()[static_cast<size_t>(u)];
      Ranges summed;
      int64_t all_elements = 0;
      int64_t largest_chunk = 0;
      for (const Chunk& chunk : layout.chunks()) largest_chunk = std::max(largest_chunk, chunk.elements);
      for (int rank = 0; rank < size; ++rank) {
        int64_t elements = 0;
        for (const Range& run : map.Summed(u, rank)) {
          const Range range = map.Elements(u, run);
          elements += range.size();
          summed.push_back(range);
        }
        all_elements += elements;
        ASSERT_EQ(map.CountElements(u, map.Summed(u, rank)), elements);
        if (placement.num_groups() == 1 || placement.num_groups() == size) {
          ASSERT_LE(elements, unit.elements / size * 17 / 16 + 2 * largest_chunk);
        }
      }
      ASSERT_EQ(all_elements, unit.elements);
      ASSERT_TRUE(LieApart(summed, unit.elements));
      for (int group = 0; group < placement.num_groups(); ++group) {
        Ranges served;
        int64_t elements = 0;
        for (const int rank : placement.Group(group)) {
          for (const Range& run : map.Served(u, rank)) {
            served.push_back(map.ComputeWeightsOfChunks(u, run));
            int64_t pieces = 0;
            for (const ParameterPiece& piece : map.Pieces(u, map.Elements(u, run))) pieces += piece.end - piece.begin;
            ASSERT_EQ(pieces, map.Elements(u, run).size());
            elements += pieces;
          }
        }
        ASSERT_EQ(elements, unit.elements);
        ASSERT_TRUE(LieApart(served, map.ComputeWeightBytes(u)));
      }
    }
  }
}

TEST(EvenMicrobatches, GivesTheFirstRanksOneMore) {
  EXPECT_EQ(EvenMicrobatches(7, 3), (std::vector<int64_t>{3, 2, 2}));
  EXPECT_EQ(EvenMicrobatches(2, 4), (std::vector<int64_t>{1, 1, 0, 0}));
}

// Plays a plan: whoever acquires a unit must find it in its slot, and no slot is filled while it is in use.
TEST(GatherPlan, BringsEveryUnitInTimeAndOverwritesNothingInUse) {
  using Kind = StoreCall::Kind;
  const UnitSchedule schedule{{Kind::kAcquire, 0}, {Kind::kRelease, 0}, {Kind::kAcquire, 1}, {Kind::kRelease, 1},
                              {Kind::kAcquire, 2}, {Kind::kRelease, 2}, {Kind::kAcquire, 3}, {Kind::kAcquire, 0},
                              {Kind::kRelease, 3}, {Kind::kRelease, 0}, {Kind::kAcquire, 2}, {Kind::kRelease, 2},
                              {Kind::kAcquire, 1}, {Kind::kRelease, 1}};
  const std::vector<int64_t> bytes{100, 10, 10, 5};
  for (const int ahead : {0, 1, 2, 4}) {
    const GatherPlan plan = PlanGathers(schedule, 3, bytes, ahead);
    std::vector<int> in_slot(plan.slot_bytes.size(), -1), users(4, 0);
    size_t next = 0, acquire = 0;
    int64_t releases = 0;
    const auto gather = [&] {
      const GatherPlan::Gather& g = plan.gathers[next++];
      int& unit = in_slot[static_cast<size_t>(g.slot)];
      if (unit >= 0) {
        EXPECT_EQ(users[static_cast<size_t>(unit)], 0) << "overwritten in use";
      }
      EXPECT_GE(plan.slot_bytes[static_cast<size_t>(g.slot)], bytes[static_cast<size_t>(g.unit)]);
      unit = g.unit;
    };
    for (int pass = 0; pass < 3; ++pass) {
      for (const StoreCall& call : schedule) {
        while (next < plan.gathers.size() && plan.gathers[next].after_releases[0] <= releases)
          gather();  // as early as can be
        if (call.kind == Kind::kRelease) {
          --users[static_cast<size_t>(call.unit)];
          ++releases;
        } else {
          const auto index = static_cast<size_t>(plan.gather_of_acquire[0][acquire++]);
          ASSERT_LT(index, next) << "not there yet";
          ASSERT_EQ(in_slot[static_cast<size_t>(plan.gathers[index].slot)], call.unit);
          ++users[static_cast<size_t>(call.unit)];
        }
      }
    }
    EXPECT_EQ(next, plan.gathers.size());
    if (ahead == 4) {
      EXPECT_EQ(plan.gathers.size(), 4u) << "everything fits: each unit once";
    }
    EXPECT_EQ(plan.releases_per_pass, 7);
    EXPECT_EQ(plan.acquires_per_pass, 7);
  }
}

TEST(TransferPlan, MovesWhatIsMissingFromWhoHasIt) {
  std::mt19937 random(4);
  for (int round = 0; round < 300; ++round) {
    const ParameterLayout layout = RandomLayout(random);
    const ParallelConfig parallel = RandomParallel(random);
    const int before = 1 + static_cast<int>(random() % 7);
    const Placement source(RandomNodes(random, before), parallel);
    std::vector<bool> alive(static_cast<size_t>(before));
    for (size_t r = 0; r < alive.size(); ++r) alive[r] = random() % 3 != 0;
    if (!source.LostCells(alive).empty()) continue;
    const auto survivors = static_cast<int>(std::count(alive.begin(), alive.end(), true));
    const int after = survivors + static_cast<int>(random() % 3);
    std::vector<int> places(static_cast<size_t>(after)), ranks;
    std::iota(places.begin(), places.end(), 0);
    std::shuffle(places.begin(), places.end(), random);
    for (const bool lives : alive) {
      ranks.push_back(lives ? places.back() : -1);
      if (lives) places.pop_back();
    }
    const int leaving = static_cast<int>(random() % static_cast<unsigned>(after));
    const std::vector<std::string> nodes = RandomNodes(random, after);
    const Placement target =
        random() % 2 == 0 ? Placement(nodes, parallel, leaving) : Placement(nodes, parallel, leaving, source, ranks);
    const ShardMap source_map(layout, DType::kBF16, source), target_map(layout, DType::kBF16, target);
    const auto transfers = PlanTransfer(source_map, ranks, target_map);
    std::set<std::pair<int, int>> have;  // (rank, chunk)
    for (int chunk = 0; chunk < static_cast<int>(layout.chunks().size()); ++chunk) {
      for (const int r : source_map.Holders(chunk)) {
        if (ranks[static_cast<size_t>(r)] >= 0) have.insert({ranks[static_cast<size_t>(r)], chunk});
      }
    }
    const auto at_first = have;
    for (const ChunkTransfer& t : transfers) {
      ASSERT_TRUE(at_first.contains({t.from, t.chunk})) << "sent by one who has it not";
      ASSERT_TRUE(have.insert({t.to, t.chunk}).second) << "moved though it is there";
    }
    for (int chunk = 0; chunk < static_cast<int>(layout.chunks().size()); ++chunk) {
      for (const int r : target_map.Holders(chunk)) ASSERT_TRUE(have.contains({r, chunk}));
    }
    constexpr int64_t kMax = 1 << 20;
    size_t in_rounds = 0;
    std::map<std::pair<int, int>, int> last;  // of a pair: the chunk that went last
    for (const std::vector<ChunkTransfer>& moved :
         TransferRounds(LayoutOf(*MakeOptimizer({}), layout), transfers, after, kMax)) {
      std::map<int, std::vector<int64_t>> sent, received;
      for (const ChunkTransfer& t : moved) {
        const auto bytes =
            LayoutOf(*MakeOptimizer({}), layout).ChunkBytes(layout.chunks()[static_cast<size_t>(t.chunk)]);
        sent[t.from].push_back(static_cast<int64_t>(bytes));
        received[t.to].push_back(static_cast<int64_t>(bytes));
        const auto [it, is_new] = last.try_emplace({t.from, t.to}, t.chunk);
        ASSERT_TRUE(is_new || it->second < t.chunk);
        it->second = t.chunk;
      }
      for (const auto* side : {&sent, &received}) {
        for (const auto& [rank, sizes] : *side) {
          ASSERT_TRUE(sizes.size() == 1 || std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) <= kMax);
        }
      }
      ASSERT_FALSE(moved.empty());
      in_rounds += moved.size();
    }
    ASSERT_EQ(in_rounds, transfers.size());
  }
}

}  // namespace
}  // namespace holdfast
