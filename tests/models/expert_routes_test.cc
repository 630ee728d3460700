// Proves that each home has one relay on each node, that in a turn no member hands on rows of two homes, and that the
// members of two nodes exchange in pairs.

#include "models/expert_routes.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>
#include <vector>

namespace holdfast {
namespace {

TEST(ExpertRoutesTest, OnOneNodeEachHomeSendsByItself) {
  const ExpertRoutes routes(std::vector<int>{0, 0, 0}, std::vector<int>{0, 2});
  EXPECT_EQ(routes.num_nodes(), 1);
  ASSERT_EQ(routes.num_turns(), 1);
  EXPECT_FALSE(routes.Crosses(0));
  EXPECT_EQ(routes.HomeOf(0, 0), 0);
  EXPECT_EQ(routes.HomeOf(1, 0), -1);
  EXPECT_EQ(routes.HomeOf(2, 0), 2);
}

TEST(ExpertRoutesTest, MembersOfTwoNodesExchangeInPairs) {
  const ExpertRoutes routes(std::vector<int>{0, 0, 1, 1}, std::vector<int>{0, 1, 2, 3});
  EXPECT_EQ(routes.RelayOf(0, 1), 2);
  EXPECT_EQ(routes.RelayOf(1, 1), 3);
  EXPECT_EQ(routes.RelayOf(2, 0), 0);
  EXPECT_EQ(routes.RelayOf(3, 0), 1);
  ASSERT_EQ(routes.num_turns(), 2);
  EXPECT_FALSE(routes.Crosses(0));
  EXPECT_TRUE(routes.Crosses(1));
}

TEST(ExpertRoutesTest, NodesReceiveFromDifferentNodesInATurn) {
  const std::vector<int> nodes{0, 0, 1, 1, 2, 2, 3, 3};
  const ExpertRoutes routes(nodes, std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7});
  ASSERT_EQ(routes.num_turns(), 4);
  for (int turn = 0; turn < 4; ++turn) {
    std::set<std::pair<int, int>> pairs;
    for (int member = 0; member < 8; ++member) {
      pairs.emplace(routes.NodeOf(routes.HomeOf(member, turn)), routes.NodeOf(member));
    }
    EXPECT_EQ(pairs.size(), 4U) << turn;
  }
}

TEST(ExpertRoutesTest, EveryHomeReachesEveryNodeOnceWhateverTheSizes) {
  const std::vector<int> nodes{0, 1, 0, 2, 0, 2, 3}, homes{1, 2, 3, 4, 6};
  const ExpertRoutes routes(nodes, homes);
  std::map<std::pair<int, int>, int> times;  // by home and node
  for (int turn = 0; turn < routes.num_turns(); ++turn) {
    for (int member = 0; member < 7; ++member) {
      const int home = routes.HomeOf(member, turn);
      if (home < 0) continue;
      ++times[{home, routes.NodeOf(member)}];
      EXPECT_EQ(routes.RelayOf(home, routes.NodeOf(member)), member);
      EXPECT_EQ(routes.TurnOf(home, routes.NodeOf(member)), turn);
    }
  }
  EXPECT_EQ(times.size(), homes.size() * 4);
  for (const auto& [pair, n] : times) EXPECT_EQ(n, 1);
}

}  // namespace
}  // namespace holdfast
