// Proves that a gather plan can be carried out and wastes nothing: over random schedules of nested and overlapping
// uses, of passes that follow each other or take turns by two, every Acquire finds its unit, no slot is overwritten
// while it is in use, no gather waits for a release that comes after the Acquire that waits for it, and what is still
// there is not gathered again.

#include "framework/parallel/gather_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>

namespace holdfast {
namespace {

constexpr StoreCall::Kind kAcquire = StoreCall::Kind::kAcquire, kRelease = StoreCall::Kind::kRelease;

using Sizes = std::vector<int64_t>;

using ByLane = std::array<int64_t, kMaxLanes>;

/// Plays passes of `schedule` by the plan.
void ExpectRight(const UnitSchedule& schedule, int64_t passes, const Sizes& unit_bytes, int ahead,
                 bool two_at_a_time = false) {
  const GatherPlan plan = PlanGathers(schedule, passes, unit_bytes, ahead, two_at_a_time);
  std::vector<ByLane> last_use(plan.slot_bytes.size());  // releases after which nobody uses the slot's unit
  std::vector<int> unit_in(plan.slot_bytes.size(), -1);
  std::map<int, int> users;  // of units
  size_t done = 0;
  ByLane acquires{}, releases{};
  size_t most = 0;
  for (const auto& [pass, call] : CallsOf(schedule, passes, two_at_a_time)) {
    const auto lane = static_cast<size_t>(LaneOf(pass, two_at_a_time));
    if (call.kind == kRelease) {
      ++releases[lane];
      if (--users[call.unit] == 0) users.erase(call.unit);
      const auto slot = std::find(unit_in.begin(), unit_in.end(), call.unit) - unit_in.begin();
      last_use[static_cast<size_t>(slot)] = releases;
    }
    if (call.kind != kAcquire) continue;
    const std::vector<int>& gather_of_acquire = plan.gather_of_acquire[lane];
    ASSERT_LT(static_cast<size_t>(acquires[lane]), gather_of_acquire.size());
    const auto needed = static_cast<size_t>(gather_of_acquire[static_cast<size_t>(acquires[lane]++)]);
    for (; done <= needed; ++done) {  // gathers are made in order
      const GatherPlan::Gather& gather = plan.gathers[done];
      const auto slot = static_cast<size_t>(gather.slot);
      for (size_t l = 0; l < kMaxLanes; ++l) {
        EXPECT_LE(gather.after_releases[l], releases[l]) << "gather " << done << " would wait for ever";
        EXPECT_GE(gather.after_releases[l], last_use[slot][l]) << "gather " << done << " overwrites what is in use";
      }
      EXPECT_EQ(users.count(unit_in[slot]), 0u);
      EXPECT_EQ(std::count(unit_in.begin(), unit_in.end(), gather.unit), 0) << "it is there already";
      EXPECT_GE(plan.slot_bytes[slot], unit_bytes[static_cast<size_t>(gather.unit)]);
      unit_in[slot] = gather.unit;
    }
    EXPECT_EQ(unit_in[static_cast<size_t>(plan.gathers[needed].slot)], call.unit);
    ++users[call.unit];
    most = std::max(most, users.size());
  }
  EXPECT_EQ(plan.gathers.size(), done);
  for (size_t lane = 0; lane < kMaxLanes; ++lane) {
    EXPECT_EQ(acquires[lane], std::ssize(plan.gather_of_acquire[lane]));
    const int64_t of_lane = !two_at_a_time ? (lane == 0 ? passes : 0) : (passes + (lane == 0 ? 1 : 0)) / kMaxLanes;
    EXPECT_EQ(plan.releases_per_pass * of_lane, releases[lane]);
    EXPECT_EQ(plan.acquires_per_pass * of_lane, acquires[lane]);
  }
  if (passes == 0 || (passes == 1 && two_at_a_time)) return;
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
  EXPECT_EQ(plan.gather_of_acquire[0], (std::vector<int>{0, 1, 2, 2, 1, 3}));
  EXPECT_EQ(plan.gathers[2].unit, 2);
  EXPECT_EQ(plan.gathers[2].slot, plan.gathers[0].slot);
  EXPECT_EQ(plan.gathers[2].after_releases, (ByLane{1, 0}));
  EXPECT_EQ(plan.gathers[3].unit, 0);
  EXPECT_EQ(plan.gathers[3].slot, plan.gathers[2].slot);
  EXPECT_EQ(plan.gathers[3].after_releases, (ByLane{4, 0})) << "of the two, the slot that is free first";
  EXPECT_EQ(plan.slot_bytes[static_cast<size_t>(plan.gathers[0].slot)], 100);
}

TEST(GatherPlanTest, WithRoomForAllEachUnitIsGatheredOnce) {
  const GatherPlan plan = PlanGathers(ForwardAndBack(5), 7, Sizes{1, 2, 3, 4, 5}, 5);
  EXPECT_EQ(plan.gathers.size(), 5u);
  EXPECT_EQ(plan.slot_bytes, (Sizes{1, 2, 3, 4, 5}));
}

// Two passes that take turns unit by unit gather no more than one does.
TEST(GatherPlanTest, WhatTwoPassesUseWithinReachIsGatheredOnce) {
  UnitSchedule schedule;
  for (const StoreCall& call : ForwardAndBack(4)) {
    schedule.push_back(call);
    if (call.kind == kAcquire) schedule.push_back({StoreCall::Kind::kPause, 0});
  }
  const Sizes bytes{1, 2, 3, 4};
  EXPECT_LE(PlanGathers(schedule, 2, bytes, 1, /*two_at_a_time=*/true).gathers.size(),
            PlanGathers(schedule, 1, bytes, 1).gathers.size());
}

// A, pause, B, pause, C of each pass.
TEST(CallsOfTest, PassesTakeTurnsWhereTheyPauseAndTheLastIsAlone) {
  using Kind = StoreCall::Kind;
  const UnitSchedule schedule{{Kind::kAcquire, 1}, {Kind::kPause, 0},   {Kind::kRelease, 1},
                              {Kind::kPause, 0},   {Kind::kAcquire, 2}, {Kind::kRelease, 2}};
  std::vector<std::pair<int64_t, int>> order;
  for (const auto& [pass, call] : CallsOf(schedule, 3, /*two_at_a_time=*/true)) {
    EXPECT_NE(call.kind, Kind::kPause);
    order.emplace_back(pass, call.unit);
  }
  const std::vector<std::pair<int64_t, int>> expected{{0, 1}, {1, 1}, {0, 1}, {1, 1}, {0, 2}, {0, 2},
                                                      {1, 2}, {1, 2}, {2, 1}, {2, 1}, {2, 2}, {2, 2}};
  EXPECT_EQ(order, expected);
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
      if (random() % 4 == 0) schedule.push_back({StoreCall::Kind::kPause, 0});
      if (calls > 0 && (open.empty() || random() % 2 == 0)) {
        open.push_back(static_cast<int>(random() % static_cast<unsigned>(units)));
        schedule.push_back({kAcquire, open.back()});
      } else {
        const auto at = open.begin() + static_cast<int64_t>(random() % open.size());
        schedule.push_back({kRelease, *at});
        open.erase(at);
      }
    }
    const auto passes = static_cast<int64_t>(random() % 6);
    const int ahead = static_cast<int>(random() % 3);
    for (const bool two_at_a_time : {false, true}) ExpectRight(schedule, passes, bytes, ahead, two_at_a_time);
  }
}

}  // namespace
}  // namespace holdfast
