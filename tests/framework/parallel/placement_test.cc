// Placement, shard map, reduction plan, gather plan and transfer plan hold what they promise, for random worlds:
// everything is held as often as asked for and on other nodes where there are any, nothing twice, nothing left out; the
// load is balanced; and what moves is what has to.

#include "framework/parallel/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "framework/parallel/gather_plan.h"
#include "framework/parallel/reduction_plan.h"
#include "framework/parallel/shard_map.h"
#include "framework/parallel/transfer_plan.h"

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

TEST(Placement, HoldsEveryShardAsOftenAsAskedAndOnOtherNodes) {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    const int size = 1 + static_cast<int>(random() % 12);
    const std::vector<std::string> nodes = RandomNodes(random, size);
    const size_t num_nodes = std::set<std::string>(nodes.begin(), nodes.end()).size();
    const ParallelConfig parallel = RandomParallel(random);
    const Placement p(nodes, parallel);
    size_t held = 0;
    for (int shard = 0; shard < p.num_shards(); ++shard) {
      const std::vector<int>& holders = p.Holders(shard);
      ASSERT_EQ(std::set<int>(holders.begin(), holders.end()).size(), holders.size());
      const int64_t wanted = std::max<int64_t>(std::min<int64_t>(parallel.mirrors + 1, size), p.num_groups());
      ASSERT_EQ(static_cast<int64_t>(holders.size()), wanted);
      std::set<std::string> on;
      for (const int rank : holders) {
        on.insert(nodes[static_cast<size_t>(rank)]);
        const std::vector<int>& of_rank = p.HeldShards(rank);
        ASSERT_NE(std::find(of_rank.begin(), of_rank.end(), shard), of_rank.end());
      }
      if (p.num_groups() == 1) {
        ASSERT_EQ(on.size(), std::min(holders.size(), num_nodes)) << "mirrors share nodes";
      }
      held += holders.size();
    }
    std::set<int> slices;
    for (int rank = 0; rank < size; ++rank) {
      held -= p.HeldShards(rank).size();
      if (p.SliceOfRank(rank) < 0) continue;
      ASSERT_EQ(p.RankOfSlice(p.SliceOfRank(rank)), rank);
      ASSERT_EQ(p.ShardOfSlice(p.SliceOfRank(rank)), p.ServedShard(rank));
      ASSERT_EQ(p.HeldShards(rank).front(), p.ServedShard(rank));
      slices.insert(p.SliceOfRank(rank));
      ASSERT_EQ(p.Group(p.GroupOf(rank))[static_cast<size_t>(p.ServedShard(rank))], rank);
    }
    ASSERT_EQ(held, 0u);
    ASSERT_EQ(static_cast<int>(slices.size()), p.num_slices());
    int in_groups = 0;
    for (int g = 0; g < p.num_groups(); ++g) in_groups += static_cast<int>(p.Group(g).size());
    ASSERT_EQ(in_groups, size);
  }
}

TEST(Placement, ThoseThatLeaveHoldNothingAndTheOthersHoldAsIfTheyWereGone) {
  std::mt19937 random(9);
  for (int round = 0; round < 200; ++round) {
    const int size = 2 + static_cast<int>(random() % 8), leaving = 1 + static_cast<int>(random() % (size - 1));
    std::vector<std::string> nodes = RandomNodes(random, size);
    const ParallelConfig parallel = RandomParallel(random);
    const Placement p(nodes, parallel, leaving);
    nodes.resize(static_cast<size_t>(size - leaving));
    const Placement without(nodes, parallel);
    ASSERT_EQ(p.num_shards(), without.num_shards());
    for (int shard = 0; shard < p.num_shards(); ++shard) ASSERT_EQ(p.Holders(shard), without.Holders(shard));
    for (int rank = size - leaving; rank < size; ++rank) {
      ASSERT_TRUE(p.HeldShards(rank).empty());
      ASSERT_EQ(p.SliceOfRank(rank), -1);
      const std::vector<int> group = p.Group(p.GroupOf(rank));
      ASSERT_NE(std::find(group.begin(), group.end(), rank), group.end()) << "a guest computes";
    }
  }
}

TEST(Placement, MirrorsAreSpreadEvenly) {
  for (int size = 2; size <= 16; ++size) {
    const Placement p(std::vector<std::string>(static_cast<size_t>(size), "one"), {.mirrors = 1});
    for (int rank = 0; rank < size; ++rank) EXPECT_EQ(p.HeldShards(rank).size(), 2u) << size;
  }
}

TEST(Placement, AWholeNodeMayGoIfThereIsAnother) {
  for (const int64_t replicas : {1, 2}) {
    const std::vector<std::string> nodes{"a", "a", "b", "b"};
    const Placement p(nodes, {.replicas = replicas});
    EXPECT_TRUE(p.LostShards({true, true, false, false}).empty());
    EXPECT_TRUE(p.LostShards({false, false, true, true}).empty());
    EXPECT_EQ(p.LostShards({false, false, false, false}).size(), static_cast<size_t>(p.num_shards()));
  }
}

TEST(ShardMap, CutsEveryUnitWithoutHoleOrOverlapAndBalanced) {
  std::mt19937 random(2);
  for (int round = 0; round < 200; ++round) {
    const ParameterLayout layout = RandomLayout(random);
    const int shards = 1 + static_cast<int>(random() % 5), groups = 1 + static_cast<int>(random() % 3);
    const ShardMap map(layout, random() % 2 == 0 ? DType::kBF16 : DType::kF32, shards, groups);
    for (int u = 0; u < layout.num_units(); ++u) {
      const Unit& unit = layout.units()[static_cast<size_t>(u)];
      std::vector<bool> covered(static_cast<size_t>(unit.elements)), image(static_cast<size_t>(map.ImageBytes(u)));
      int64_t largest_chunk = 0;
      for (const Chunk& chunk : layout.chunks()) largest_chunk = std::max(largest_chunk, chunk.elements);
      for (int slice = 0; slice < map.num_slices(); ++slice) {
        const Range range = map.SliceElements(u, slice);
        ASSERT_LE(range.size(), unit.elements / map.num_slices() + largest_chunk);
        for (int64_t e = range.begin; e < range.end; ++e) {
          ASSERT_FALSE(covered[static_cast<size_t>(e)]);
          covered[static_cast<size_t>(e)] = true;
        }
      }
      ASSERT_EQ(std::count(covered.begin(), covered.end(), false), 0);
      for (int shard = 0; shard < shards; ++shard) {
        const Range bytes = map.ShardImage(u, shard);
        for (int64_t b = bytes.begin; b < bytes.end; ++b) {
          ASSERT_FALSE(image[static_cast<size_t>(b)]);
          image[static_cast<size_t>(b)] = true;
        }
        int64_t pieces = 0;
        for (const ParameterPiece& piece : map.Pieces(u, map.ShardElements(u, shard)))
          pieces += piece.end - piece.begin;
        ASSERT_EQ(pieces, map.ShardElements(u, shard).size());
      }
    }
  }
}

TEST(ReductionPlan, GivesEveryMicrobatchToOneRankInOrder) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    std::vector<int64_t> counts(1 + random() % 9);
    for (int64_t& count : counts) count = static_cast<int64_t>(random() % 5);
    ++counts[random() % counts.size()];
    const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    for (const ReductionMode mode : {ReductionMode::kEveryMicrobatch, ReductionMode::kOnce}) {
      const ReductionPlan plan(counts, mode);
      int64_t next = 0;
      for (int wave = 0; wave < plan.num_waves(); ++wave) {
        for (int rank = 0; rank < plan.size(); ++rank) {
          const MicrobatchRun& run = plan.Run(wave, rank);
          if (run.count > 0) {
            ASSERT_EQ(run.first, next);
          }
          if (mode == ReductionMode::kEveryMicrobatch) {
            ASSERT_LE(run.count, 1);
          }
          next += run.count;
        }
      }
      ASSERT_EQ(next, total);
      if (mode == ReductionMode::kOnce) {
        ASSERT_EQ(plan.num_waves(), 1);
      }
      for (int rank = 0; rank < plan.size(); ++rank) {
        ASSERT_EQ(static_cast<int64_t>(plan.MicrobatchesOf(rank).size()), counts[static_cast<size_t>(rank)]);
      }
    }
  }
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
        while (next < plan.gathers.size() && plan.gathers[next].after_releases <= releases)
          gather();  // as early as can be
        if (call.kind == Kind::kRelease) {
          --users[static_cast<size_t>(call.unit)];
          ++releases;
        } else {
          const auto index = static_cast<size_t>(plan.gather_of_acquire[acquire++]);
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
    if (!source.LostShards(alive).empty()) continue;
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
    const Placement target(RandomNodes(random, after), parallel, leaving);
    const ShardMap source_map(layout, DType::kBF16, source.num_shards(), source.num_groups());
    const ShardMap target_map(layout, DType::kBF16, target.num_shards(), target.num_groups());
    const auto transfers = PlanTransfer({&source, &source_map}, ranks, {&target, &target_map});
    std::set<std::pair<int, int>> have;  // (rank, chunk)
    for (int chunk = 0; chunk < static_cast<int>(layout.chunks().size()); ++chunk) {
      for (const int r : source.Holders(source_map.ShardOfChunk(chunk))) {
        if (ranks[static_cast<size_t>(r)] >= 0) have.insert({ranks[static_cast<size_t>(r)], chunk});
      }
    }
    const auto at_first = have;
    for (const ChunkTransfer& t : transfers) {
      ASSERT_TRUE(at_first.contains({t.from, t.chunk})) << "sent by one who has it not";
      ASSERT_TRUE(have.insert({t.to, t.chunk}).second) << "moved though it is there";
    }
    for (int chunk = 0; chunk < static_cast<int>(layout.chunks().size()); ++chunk) {
      for (const int r : target.Holders(target_map.ShardOfChunk(chunk))) ASSERT_TRUE(have.contains({r, chunk}));
    }
    size_t in_rounds = 0;
    for (const Range& r : TransferRounds(layout, transfers, 1 << 20)) in_rounds += static_cast<size_t>(r.size());
    ASSERT_EQ(in_rounds, transfers.size());
  }
}

}  // namespace
}  // namespace holdfast
