// Proves that what comes again and again is logged at once, and then as rarely as was asked for, with its number.

#include "framework/base/rare_log.h"

#include <gtest/gtest.h>

#include <vector>

namespace holdfast {
namespace {

using std::chrono::seconds;

TEST(RareLog, TheFirstIsLoggedAtOnceAndTheNextWithHowManyCameBetween) {
  RareLog log(seconds(10));
  EXPECT_EQ(log.Line(seconds(100), "a"), "a");
  for (int i = 1; i < 10; ++i) EXPECT_EQ(log.Line(seconds(100 + i), "b"), std::nullopt);
  EXPECT_EQ(log.Line(seconds(110), "c"), "c (and 9 times before, since the last line)");
  EXPECT_EQ(log.Line(seconds(115), "d"), std::nullopt);
  EXPECT_EQ(log.Line(seconds(121), "e"), "e (and 1 times before, since the last line)");
  EXPECT_EQ(log.Line(seconds(500), "f"), "f");
}

TEST(RareLog, WhatGoesOnForLongIsLoggedMoreAndMoreRarely) {
  RareLog log(seconds(10), seconds(0), seconds(35));
  const auto seconds_of_lines = [&](int begin, int end) {
    std::vector<int> said;
    for (int second = begin; second < end; ++second) {
      if (log.Line(seconds(second), "a").has_value()) said.push_back(second - begin);
    }
    return said;
  };
  EXPECT_EQ(seconds_of_lines(100, 240), (std::vector<int>{0, 10, 30, 65, 100, 135}));
  EXPECT_EQ(log.Line(seconds(1000), "a"), "a (and 4 times before, since the last line)");
  EXPECT_EQ(log.Line(seconds(1100), "a"), "a");
  EXPECT_EQ(seconds_of_lines(1101, 1125), (std::vector<int>{9})) << "nothing was left out: the first interval again";
  log.Reset();
  EXPECT_EQ(seconds_of_lines(2000, 2025), (std::vector<int>{0, 10}));
}

TEST(RareLog, WhatPassesSoonIsNotLogged) {
  RareLog log(seconds(10), seconds(5));
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 5; ++i) EXPECT_EQ(log.Line(seconds(100 * round + i), "a"), std::nullopt);
    log.Reset();
  }
  for (int i = 0; i < 5; ++i) EXPECT_EQ(log.Line(seconds(1000 + i), "a"), std::nullopt);
  EXPECT_EQ(log.Line(seconds(1005), "a"), "a");
  EXPECT_EQ(log.Line(seconds(1006), "a"), std::nullopt);
}

}  // namespace
}  // namespace holdfast
