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
    std::vector<StragglerDetector::Sample> samples{{"w0", pattern[step] == 's' ? 0.3 : 0.1, 1}};
    for (const char* other : {"w1", "w2", "w3"}) samples.push_back({other, 0.1, 1});
    EXPECT_TRUE(detector.OnStep(samples).empty()) << "step " << step;
  }
}

TEST(BalanceGain, MicrobatchesMoveForMoreThanAFewPercentOnly) {
  const std::vector<int64_t> even{50, 50};
  EXPECT_EQ(Rebalance(even, {1.00, 1.04}), even) << "51 and 49 would be 2% quicker";
  EXPECT_NE(Rebalance(even, {1.00, 1.30}), even);
}

}  // namespace
}  // namespace holdfast
