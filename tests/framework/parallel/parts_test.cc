// Proves that a unit that is cut at parts (experts) has each part whole on one rank of every group, in any world: fewer
// parts than ranks and more, parts of uneven sizes, after losses and joins, with mirrors; and that the rest of the
// model is cut as without it.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "framework/parallel/shard_map.h"
#include "framework/parallel/used_cells.h"

namespace holdfast {
namespace {

constexpr int kLayers = 6;

/// Layers of a dense unit and one of `parts` parts, of which every third is twice as large.
ParameterLayout LayoutWith(int parts) {
  std::vector<ParameterSpec> parameters;
  std::vector<std::string> units;
  for (int layer = 0; layer < kLayers; ++layer) {
    parameters.push_back({.name = "dense", .shape = {7, 40'000}, .unit = 2 * layer});
    for (int part = 0; part < parts; ++part) {
      const int64_t rows = part % 3 == 2 ? 4 : 2;
      parameters.push_back({.name = "up", .shape = {rows, 50'000}, .unit = 2 * layer + 1, .part = part});
      parameters.push_back({.name = "down", .shape = {rows, 1000}, .unit = 2 * layer + 1, .part = part});
    }
    units.insert(units.end(), {"dense", "experts"});
  }
  return ParameterLayout(std::move(parameters), std::move(units));
}

std::vector<std::string> Nodes(int size) {
  std::vector<std::string> nodes;
  for (int rank = 0; rank < size; ++rank) nodes.push_back("node" + std::to_string(rank));
  return nodes;
}

/// [unit][part]: chunks [first, end).
Range ChunksOf(const Unit& unit, int part) {
  const auto next = static_cast<size_t>(part) + 1;
  return {unit.parts[static_cast<size_t>(part)],
          next < unit.parts.size() ? unit.parts[next] : unit.first_chunk + unit.num_chunks};
}

void ExpectWholeParts(const ParameterLayout& layout, const Placement& placement, int parts) {
  const ShardMap map(layout, DType::kBF16, placement);
  for (int u = 1; u < layout.num_units(); u += 2) {
    const Unit& unit = layout.units()[static_cast<size_t>(u)];
    ASSERT_EQ(std::ssize(unit.parts), parts);
    for (int part = 0; part < parts; ++part) {
      const Range chunks = ChunksOf(unit, part);
      for (int64_t c = chunks.begin; c < chunks.end; ++c) {
        const auto chunk = static_cast<int>(c);
        EXPECT_EQ(map.Holders(chunk), map.Holders(static_cast<int>(chunks.begin)));
        EXPECT_EQ(map.PrimaryOf(chunk), map.PrimaryOf(static_cast<int>(chunks.begin)));
        for (int rank = 0; rank < placement.size(); ++rank) {
          const int server = map.ServerOfPart(u, part, rank);
          EXPECT_TRUE(map.Serves(server, chunk)) << "rank " << server;
          EXPECT_EQ(placement.GroupOf(server), placement.GroupOf(rank));
          EXPECT_EQ(map.Serves(rank, chunk), rank == server);
        }
      }
    }
  }
}

ParallelConfig Groups(int64_t replicas) {
  ParallelConfig options;
  options.replicas = replicas;
  return options;
}

TEST(PartsTest, AreWholeInEveryWorld) {
  for (const int parts : {1, 2, 3, 5, 8, 13}) {
    const ParameterLayout layout = LayoutWith(parts);
    for (const int64_t replicas : {1, 2}) {
      for (int size = 1; size <= 9; ++size) {
        SCOPED_TRACE(testing::Message() << parts << " parts, " << size << " ranks, " << replicas << " groups");
        ExpectWholeParts(layout, Placement(Nodes(size), Groups(replicas)), parts);
      }
    }
  }
}

TEST(PartsTest, StayWholeThroughLossesAndJoins) {
  const ParameterLayout layout = LayoutWith(5);
  Placement placement(Nodes(6), Groups(1));
  const std::vector<std::vector<int>> changes{{0, 1, -1, 2, 3, 4}, {0, 1, 2, 3, -1}, {0, 1, 2, 3}, {1, 0, 2, -1, 3, 4}};
  const std::vector<int> sizes{5, 4, 6, 5};
  for (size_t i = 0; i < changes.size(); ++i) {
    placement = Placement(Nodes(sizes[i]), Groups(1), 0, placement, changes[i]);
    ExpectWholeParts(layout, placement, 5);
  }
}

TEST(PartsTest, AreSpreadOverTheRanks) {
  for (const int size : {2, 4, 8}) {
    const ParameterLayout layout = LayoutWith(8);
    const Placement placement(Nodes(size), Groups(1));
    const ShardMap map(layout, DType::kBF16, placement);
    for (int u = 1; u < layout.num_units(); u += 2) {
      std::vector<int> served(static_cast<size_t>(size));
      for (int part = 0; part < 8; ++part) ++served[static_cast<size_t>(map.ServerOfPart(u, part, 0))];
      EXPECT_LE(*std::max_element(served.begin(), served.end()), 8 / size + 1) << size << " ranks, unit " << u;
    }
  }
}

TEST(PartsTest, FewerPartsThanRanksAreWithOthersInEachLayer) {
  const ParameterLayout layout = LayoutWith(1);
  const Placement placement(Nodes(8), Groups(1));
  const ShardMap map(layout, DType::kBF16, placement);
  std::set<int> servers;
  for (int u = 1; u < layout.num_units(); u += 2) servers.insert(map.ServerOfPart(u, 0, 0));
  EXPECT_GE(servers.size(), size_t{kLayers} - 2);
}

TEST(PartsTest, CellsOfAFinerCutLieInsideThoseOfACoarserOne) {
  const ParameterLayout layout = LayoutWith(5);
  const std::vector<int> coarse = CellsOfChunks(layout, 256), fine = CellsOfChunks(layout, 4096);
  ASSERT_EQ(coarse.size(), layout.chunks().size());
  for (size_t c = 0; c < coarse.size(); ++c) EXPECT_EQ(fine[c] / 16, coarse[c]);
  for (int u = 0; u < layout.num_units(); u += 2) {  // dense units, chunk by chunk
    const Unit& unit = layout.units()[static_cast<size_t>(u)];
    const std::set<int> cells(fine.begin() + unit.first_chunk, fine.begin() + unit.first_chunk + unit.num_chunks);
    EXPECT_EQ(std::ssize(cells), unit.num_chunks);
  }
}

}  // namespace
}  // namespace holdfast
