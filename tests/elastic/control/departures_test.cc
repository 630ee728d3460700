// Which of several nodes that leave at once are let go: those that would be if each was asked about in turn, in worlds
// of any sharding, of which some are gone already. Random, by seed.

#include "elastic/control/departures.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elastic/control/state_source.h"

namespace holdfast {
namespace {

// One after the other, each as if it were the only one.
std::vector<bool> InTurn(const World& source, const Placement& placement, const UsedCells& used, std::vector<bool> here,
                         const std::vector<std::string>& leaving) {
  std::vector<bool> goes;
  for (const std::string& node : leaving) {
    std::vector<bool> without = here;
    for (size_t rank = 0; rank < here.size(); ++rank) {
      if (source.members[rank].node == node) without[rank] = false;
    }
    goes.push_back(placement.LostCells(without, used).empty());
    if (goes.back()) here = without;
  }
  return goes;
}

World RandomWorld(std::mt19937& random) {
  const int size = 1 + static_cast<int>(random() % 9);
  const int per_node = 1 + static_cast<int>(random() % 3);
  const int leaving = random() % 3 == 0 ? static_cast<int>(random() % static_cast<unsigned>(size)) : 0;
  std::vector<Member> members;
  for (int i = 0; i < size; ++i) {
    Member member{{absl::StrCat("w", i), 1}, absl::StrCat("n", i / per_node), "h"};
    member.leaves = i >= size - leaving;
    members.push_back(member);
  }
  return {1, members};
}

TEST(WhoCanGo, ThoseThatWouldIfEachWasAskedAboutInTurn) {
  std::mt19937 random(5);
  int some_kept = 0, some_gone = 0, asked = 0;
  for (int round = 0; round < 3000; ++round) {
    const World source = RandomWorld(random);
    ParallelConfig parallel;
    parallel.sharding = random() % 4 == 0 ? Sharding::kNoShard : Sharding::kFullShard;
    parallel.replicas = 1 + random() % 3;
    parallel.mirrors = random() % 3;
    std::vector<int> cells;
    for (int cell = 0; cell < 5; ++cell) cells.push_back(static_cast<int>(random() % UsedCells::kFinest));
    const UsedCells used = random() % 3 == 0 ? UsedCells(cells) : UsedCells();
    const Placement placement = PlacementOf(source, parallel);
    std::vector<bool> here;
    for (int rank = 0; rank < source.size(); ++rank) here.push_back(random() % 6 != 0);
    if (!placement.LostCells(here, used).empty()) continue;
    std::vector<std::string> leaving{"of no member"};
    for (int node = 0; node < 9; ++node) {
      if (random() % 3 != 0) leaving.push_back(absl::StrCat("n", node));
    }
    std::shuffle(leaving.begin(), leaving.end(), random);
    const std::vector<bool> goes = WhoCanGo(source, placement, used, here, leaving);
    ASSERT_EQ(goes, InTurn(source, placement, used, here, leaving)) << "round " << round;
    ++asked;
    some_kept += std::count(goes.begin(), goes.end(), false) > 0 ? 1 : 0;
    some_gone += std::count(goes.begin(), goes.end(), true) > 1 ? 1 : 0;
  }
  EXPECT_GT(std::min(some_kept, some_gone), asked / 20) << "of " << asked;
}

}  // namespace
}  // namespace holdfast
