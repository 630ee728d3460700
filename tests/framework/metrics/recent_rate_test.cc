// Proves that a rate follows what has happened of late, by counting under times that are made up.
#include "framework/metrics/recent_rate.h"

#include <gtest/gtest.h>

namespace holdfast {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(RecentRateTest, FollowsASlowdownWithinMoments) {
  RecentRate rate;
  RecentRate::Time now{};
  EXPECT_EQ(rate.PerSecond(now), 0);
  int64_t done = 0;
  for (int i = 0; i < 600; ++i) rate.Add(now += milliseconds(800), ++done);
  EXPECT_NEAR(rate.PerSecond(now), 1.25, 0.01);
  for (int i = 0; i < 4; ++i) rate.Add(now += seconds(30), ++done);
  EXPECT_NEAR(rate.PerSecond(now), 1.0 / 30, 0.005);
  for (int i = 0; i < 60; ++i) rate.Add(now += milliseconds(800), ++done);
  EXPECT_NEAR(rate.PerSecond(now), 1.25, 0.05);
}

TEST(RecentRateTest, AStandstillCounts) {
  RecentRate rate;
  RecentRate::Time now{};
  for (int i = 0; i < 100; ++i) rate.Add(now += milliseconds(1000), i);
  EXPECT_NEAR(rate.PerSecond(now), 1, 0.01);
  EXPECT_LT(rate.PerSecond(now + seconds(30)), 0.6);
}

TEST(RecentRateTest, KeepsFewMarksOfManyCounts) {
  RecentRate rate;
  RecentRate::Time now{};
  for (int i = 0; i < 100'000; ++i) rate.Add(now += milliseconds(1), i);
  EXPECT_NEAR(rate.PerSecond(now), 1000, 1);
}

}  // namespace
}  // namespace holdfast
