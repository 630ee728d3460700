// Proves where the line is between slow and noise: how long a rank has to be slow to be named, and how much a step has
// to gain before microbatches move.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "elastic/control/balance.h"
#include "elastic/control/straggler.h"

namespace holdfast {
namespace {

// Six slow steps of ten make a slow median. Spread like these they are six in one window only, and five in the next.
TEST(StragglerStreak, AMedianThatIsSlowForOneStepIsNoStraggler) {
  constexpr int64_t kWindow = 10;
  StragglerDetector detector(/*factor=*/1.5, kWindow);
  const std::string pattern = std::string(30, 'f') + "sssffffsss" + std::string(20, 'f');
  for (size_t step = 0; step < pattern.size(); ++step) {
    std::vector<StragglerDetector::Sample> samples{{"w0", pattern[step] == 's' ? 3.0 : 1.0, 1}};
    for (const char* other : {"w1", "w2", "w3"}) samples.push_back({other, 1, 1});
    EXPECT_TRUE(detector.OnStep(samples).empty()) << "step " << step;
  }
}

// Steps of some milliseconds on a machine that others use: a rank waits for a processor through dozens of them.
TEST(StragglerStreak, ShortStepsMustBeSlowForASecond) {
  constexpr int64_t kWindow = 10;
  StragglerDetector detector(/*factor=*/1.5, kWindow);
  const auto named = [&](int steps, double of_w0) {
    size_t changes = 0;
    for (int i = 0; i < steps; ++i) {
      std::vector<StragglerDetector::Sample> samples{{"w0", of_w0, 1}};
      for (const char* other : {"w1", "w2", "w3"}) samples.push_back({other, 0.015, 1});
      changes += detector.OnStep(samples).size();
    }
    return changes;
  };
  EXPECT_EQ(named(100, 0.015), 0u);
  EXPECT_EQ(named(30, 0.03), 0u);
  EXPECT_EQ(named(100, 0.015), 0u);
  EXPECT_EQ(named(60, 0.03), 1u);
  EXPECT_EQ(named(40, 0.015), 0u) << "it is back for a moment";
  EXPECT_EQ(named(60, 0.015), 1u);
}

TEST(BalanceGain, MicrobatchesMoveForMoreThanAFewPercentOnly) {
  const std::vector<int64_t> even{50, 50};
  EXPECT_EQ(Rebalance(even, {1.00, 1.04}), even) << "51 and 49 would be 2% quicker";
  EXPECT_NE(Rebalance(even, {1.00, 1.30}), even);
}

}  // namespace
}  // namespace holdfast
