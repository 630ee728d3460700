// Proves where a model's statistics lie beside each other, and what a log says of them.

#include "framework/nn/statistics.h"

#include <gtest/gtest.h>

namespace holdfast {
namespace {

TEST(StatisticsLayoutTest, OneAfterTheOther) {
  const StatisticsLayout layout{{{.name = "aux_loss", .combine = Combine::kMean},
                                 {.name = "load", .combine = Combine::kCount, .size = 4},
                                 {.name = "entropy"}}};
  EXPECT_EQ(layout.size(), 6);
  int64_t block[6] = {};
  EXPECT_EQ(static_cast<void*>(layout.At<double>(block, 0)), block);
  EXPECT_EQ(layout.At<int64_t>(block, 1), block + 1);
  EXPECT_EQ(static_cast<void*>(layout.At<double>(block, 2)), block + 5);
  EXPECT_EQ(StatisticsLayout().size(), 0);
}

TEST(StatisticsLayoutTest, NamesDiffer) { EXPECT_DEATH((StatisticsLayout{{{.name = "load"}, {.name = "load"}}}), ""); }

TEST(StatisticsTest, ALogSaysHowUnevenCountsAre) {
  Statistics statistics;
  statistics.Add({"aux_loss", std::vector<double>{1.25}});
  statistics.Add({"load", std::vector<int64_t>{0, 6, 2, 0}});
  statistics.Add({"nothing", std::vector<int64_t>{0, 0}});
  const std::map<std::string, double> expected{{"aux_loss", 1.25},
                                               {"load.max_over_mean", 3.0},
                                               {"load.zeros", 2.0},
                                               {"nothing.max_over_mean", 0.0},
                                               {"nothing.zeros", 2.0}};
  EXPECT_EQ(Summarize(statistics), expected);
  EXPECT_EQ(statistics.Counts("load")[1], 6);
  EXPECT_EQ(statistics.Reals("aux_loss")[0], 1.25);
}

}  // namespace
}  // namespace holdfast
