// Proves who gets how many of a sweep's workers.

#include "elastic/sweep/worker_share.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ShareWorkers, OneEachInOrderThenRoundAndRound) {
  EXPECT_THAT(ShareWorkers({8, 8, 8}, 2), ElementsAre(1, 1, 0));
  EXPECT_THAT(ShareWorkers({8, 8, 8}, 7), ElementsAre(3, 2, 2));
}

TEST(ShareWorkers, NobodyGetsMoreThanItCanUse) {
  EXPECT_THAT(ShareWorkers({1, 4, 2}, 6), ElementsAre(1, 3, 2));
  EXPECT_THAT(ShareWorkers({1, 1}, 9), ElementsAre(1, 1));
  EXPECT_THAT(ShareWorkers({}, 9), IsEmpty());
}

}  // namespace
}  // namespace holdfast
