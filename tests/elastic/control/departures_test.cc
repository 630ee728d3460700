// Which of several nodes that leave at once are let go: those that would be if each was asked about in turn. And which
// sets of ranks take a last copy with them: those without which a cell is lost. In worlds of any sharding, of which
// some are gone already. Random, by seed.

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

ParallelConfig RandomParallel(std::mt19937& random) {
  ParallelConfig parallel;
  parallel.sharding = random() % 4 == 0 ? Sharding::kNoShard : Sharding::kFullShard;
  parallel.replicas = 1 + random() % 3;
  parallel.mirrors = random() % 3;
  return parallel;
}

UsedCells RandomCells(std::mt19937& random) {
  std::vector<int> cells;
  for (int cell = 0; cell < 5; ++cell) cells.push_back(static_cast<int>(random() % UsedCells::kFinest));
  return random() % 3 == 0 ? UsedCells(cells) : UsedCells();
}

TEST(LastHolders, ASetCanGoIfItHoldsNoLastCopies) {
  std::mt19937 random(6);
  int can = 0, cannot = 0;
  for (int round = 0; round < 3000; ++round) {
    const World source = RandomWorld(random);
    const Placement placement = PlacementOf(source, RandomParallel(random));
    const UsedCells used = RandomCells(random);
    constexpr int kParts = 3;
    std::vector<bool> here;
    std::vector<int> part_of;
    for (int rank = 0; rank < source.size(); ++rank) {
      here.push_back(random() % 6 != 0);
      part_of.push_back(static_cast<int>(random() % (kParts + 1)) - 1);
    }
    const auto last = LastHolders(source, placement, used, here, part_of);
    for (unsigned set = 0; set < 1u << kParts; ++set) {
      const auto goes = [&](int part) { return part != kStays && (set >> part & 1) != 0; };
      std::vector<bool> others = here;
      for (size_t rank = 0; rank < here.size(); ++rank) others[rank] = here[rank] && !goes(part_of[rank]);
      const bool can_go = std::none_of(last.begin(), last.end(), [&](const std::vector<int>& holders) {
        return std::all_of(holders.begin(), holders.end(), goes);
      });
      ASSERT_EQ(can_go, placement.LostCells(others, used).empty()) << "round " << round << ", set " << set;
      ++(can_go ? can : cannot);
    }
  }
  EXPECT_GT(std::min(can, cannot), 1000);
}

TEST(WhoCanGo, ThoseThatWouldIfEachWasAskedAboutInTurn) {
  std::mt19937 random(5);
  int some_kept = 0, some_gone = 0, asked = 0;
  for (int round = 0; round < 3000; ++round) {
    const World source = RandomWorld(random);
    const Placement placement = PlacementOf(source, RandomParallel(random));
    const UsedCells used = RandomCells(random);
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
