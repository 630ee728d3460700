// Proves that of what goes on for long only that time counts in which the process ran.

#include "framework/base/freeze_watch.h"

#include <gtest/gtest.h>

namespace holdfast {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

FreezeWatch::Clock::time_point At(FreezeWatch::Clock::duration time) { return FreezeWatch::Clock::time_point(time); }

TEST(FreezeWatch, TimeInWhichItWasFrozenDoesNotCount) {
  FreezeWatch watch(At(seconds(0)), seconds(1));
  FreezeWatch::Since early = At(milliseconds(500)), none;
  for (int second = 1; second <= 10; ++second) watch.Look(At(seconds(second)), {&early, &none});
  EXPECT_EQ(early, At(milliseconds(500)));
  watch.Look(At(seconds(111)), {&early, &none});
  EXPECT_EQ(early, At(milliseconds(100'500))) << "of 101 seconds it has not run for 100";
  EXPECT_EQ(none, std::nullopt);
}

TEST(FreezeWatch, WhatBeganAfterwardsHasJustBegun) {
  FreezeWatch watch(At(seconds(0)), seconds(1));
  FreezeWatch::Since late = At(milliseconds(99'500));
  watch.Look(At(seconds(100)), {&late});
  EXPECT_EQ(late, At(seconds(100)));
}

TEST(FreezeWatch, ALookThatComesLateIsNoFreeze) {
  FreezeWatch watch(At(seconds(0)), seconds(1));
  FreezeWatch::Since since = At(seconds(0));
  for (int time = 5; time <= 100; time += 5) watch.Look(At(seconds(time)), {&since});
  EXPECT_EQ(since, At(seconds(0)));
}

}  // namespace
}  // namespace holdfast
