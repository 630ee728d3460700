// Proves that a gather plan can be carried out and wastes nothing: over random schedules of nested and overlapping uses
// every Acquire finds its unit, no slot is overwritten while it is in use, no gather waits for a release that comes
// after the Acquire that waits for it, and what is still there is not gathered again.

#include "framework/parallel/gather_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace holdfast {
namespace {

constexpr StoreCall::Kind kAcquire = StoreCall::Kind::kAcquire, kRelease = StoreCall::Kind::kRelease;

using Sizes = std::vector<int64_t>;

/// Plays passes of `schedule` by the plan.
void ExpectRight(const UnitSchedule& schedule, int64_t passes, const Sizes& unit_bytes, int ahead) {
  const GatherPlan plan = PlanGathers(schedule, passes, unit_bytes, ahead);
  std::vector<int64_t> last_use(plan.slot_bytes.size());  // releases after which nobody uses the slot's unit
  std::vector<int> unit_in(plan.slot_bytes.size(), -1);
  std::map<int, int> users;  // of units
  size_t done = 0, acquires = 0;
  int64_t releases = 0;
  size_t most = 0;
  for (int64_t pass = 0; pass < passes; ++pass) {
    for (const StoreCall& call : schedule) {
      if (call.kind == kRelease) {
        ++releases;
        if (--users[call.unit] == 0) users.erase(call.unit);
        const auto slot = std::find(unit_in.begin(), unit_in.end(), call.unit) - unit_in.begin();
        last_use[static_cast<size_t>(slot)] = releases;
      }
      if (call.kind != kAcquire) continue;
      ASSERT_LT(acquires, plan.gather_of_acquire.size());
      const auto needed = static_cast<size_t>(plan.gather_of_acquire[acquires++]);
      for (; done <= needed; ++done) {  // gathers are made in order
        const GatherPlan::Gather& gather = plan.gathers[done];
        const auto slot = static_cast<size_t>(gather.slot);
        EXPECT_LE(gather.after_releases, releases) << "gather " << done << " would wait for ever";
        EXPECT_GE(gather.after_releases, last_use[slot]) << "gather " << done << " overwrites what is in use";
        EXPECT_EQ(users.count(unit_in[slot]), 0u);
        EXPECT_EQ(std::count(unit_in.begin(), unit_in.end(), gather.unit), 0) << "it is there already";
        EXPECT_GE(plan.slot_bytes[slot], unit_bytes[static_cast<size_t>(gather.unit)]);
        unit_in[slot] = gather.unit;
      }
      EXPECT_EQ(unit_in[static_cast<size_t>(plan.gathers[needed].slot)], call.unit);
      ++users[call.unit];
      most = std::max(most, users.size());
    }
  }
  EXPECT_EQ(acquires, plan.gather_of_acquire.size());
  EXPECT_EQ(plan.gathers.size(), done);
  EXPECT_EQ(plan.releases_per_pass * passes, releases);
  EXPECT_EQ(plan.acquires_per_pass * passes, static_cast<int64_t>(acquires));
  if (passes == 0) return;
  EXPECT_EQ(plan.slot_bytes.size(), std::min(unit_bytes.size(), most + static_cast<size_t>(ahead)));
}

/// Units 0 .. n-1, and back.
UnitSchedule ForwardAndBack(int units) {
  UnitSchedule schedule;
  const auto use = [&](int unit) {
    schedule.push_back({kAcquire, unit});
    schedule.push_back({kRelease, unit});
  };
  for (int u = 0; u < units; ++u) use(u);
  for (int u = units - 1; u >= 0; --u) use(u);
  return schedule;
}

TEST(GatherPlanTest, ForwardAndBackWithOneAhead) {
  const GatherPlan plan = PlanGathers(ForwardAndBack(3), 1, Sizes{100, 10, 50}, 1);
  // Two slots: 0 and 1; then 2 takes the place of 0, and backward finds 2 and 1 where they are.
  ASSERT_EQ(plan.gathers.size(), 4u);
  EXPECT_EQ(plan.gather_of_acquire, (std::vector<int>{0, 1, 2, 2, 1, 3}));
  EXPECT_EQ(plan.gathers[2].unit, 2);
  EXPECT_EQ(plan.gathers[2].slot, plan.gathers[0].slot);
  EXPECT_EQ(plan.gathers[2].after_releases, 1);
  EXPECT_EQ(plan.gathers[3].unit, 0);
  EXPECT_EQ(plan.gathers[3].slot, plan.gathers[2].slot);
  EXPECT_EQ(plan.gathers[3].after_releases, 4) << "of the two, the slot that is free first";
  EXPECT_EQ(plan.slot_bytes[static_cast<size_t>(plan.gathers[0].slot)], 100);
}

TEST(GatherPlanTest, WithRoomForAllEachUnitIsGatheredOnce) {
  const GatherPlan plan = PlanGathers(ForwardAndBack(5), 7, Sizes{1, 2, 3, 4, 5}, 5);
  EXPECT_EQ(plan.gathers.size(), 5u);
  EXPECT_EQ(plan.slot_bytes, (Sizes{1, 2, 3, 4, 5}));
}

TEST(GatherPlanTest, NothingToDo) {
  ExpectRight({}, 3, {8, 8}, 1);
  ExpectRight(ForwardAndBack(2), 0, {8, 8}, 1);
}

TEST(GatherPlanTest, RandomSchedules) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const int units = 1 + static_cast<int>(random() % 7);
    Sizes bytes;
    for (int u = 0; u < units; ++u) bytes.push_back(1 + static_cast<int64_t>(random() % 1000));
    UnitSchedule schedule;
    std::vector<int> open;
    for (int calls = static_cast<int>(random() % 40); calls > 0 || !open.empty(); --calls) {
      if (calls > 0 && (open.empty() || random() % 2 == 0)) {
        open.push_back(static_cast<int>(random() % static_cast<unsigned>(units)));
        schedule.push_back({kAcquire, open.back()});
      } else {
        const auto at = open.begin() + static_cast<int64_t>(random() % open.size());
        schedule.push_back({kRelease, *at});
        open.erase(at);
      }
    }
    ExpectRight(schedule, static_cast<int64_t>(random() % 4), bytes, static_cast<int>(random() % 3));
  }
}

}  // namespace
}  // namespace holdfast
