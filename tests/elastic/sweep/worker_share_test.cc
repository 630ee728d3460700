// Proves who gets how many of a sweep's workers, and where.

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

TEST(PlaceWorkers, TrialsAreOnFewHosts) {
  EXPECT_THAT(PlaceWorkers({4, 2}, {{0, 0}, {0, 0}}, {4, 2}), ElementsAre(ElementsAre(4, 0), ElementsAre(0, 2)));
  EXPECT_THAT(PlaceWorkers({2, 4}, {{0, 0}, {0, 0}}, {4, 2}), ElementsAre(ElementsAre(0, 2), ElementsAre(4, 0)));
  EXPECT_THAT(PlaceWorkers({1, 1}, {{0, 0}, {0, 0}}, {4, 2}), ElementsAre(ElementsAre(0, 1), ElementsAre(0, 1)));
  EXPECT_THAT(PlaceWorkers({5}, {{0, 0}}, {4, 2}), ElementsAre(ElementsAre(4, 1))) << "more than any has";
}

TEST(PlaceWorkers, WhoIsThereStays) {
  EXPECT_THAT(PlaceWorkers({2, 2}, {{1, 1}, {0, 0}}, {2, 2}), ElementsAre(ElementsAre(1, 1), ElementsAre(1, 1)));
  EXPECT_THAT(PlaceWorkers({3, 1}, {{1, 0}, {0, 0}}, {4, 4}), ElementsAre(ElementsAre(3, 0), ElementsAre(1, 0)));
  EXPECT_THAT(PlaceWorkers({2}, {{3, 1}}, {4, 4}), ElementsAre(ElementsAre(2, 0))) << "leaves where it has the fewest";
}

TEST(PlaceWorkers, AHostWithoutRoomIsLeft) {
  EXPECT_THAT(PlaceWorkers({2, 2}, {{2, 0}, {2, 0}}, {3, 2}), ElementsAre(ElementsAre(2, 0), ElementsAre(1, 1)));
  EXPECT_THAT(PlaceWorkers({2, 1}, {{2, 0}, {0, 1}}, {0, 3}), ElementsAre(ElementsAre(0, 2), ElementsAre(0, 1)));
}

}  // namespace
}  // namespace holdfast
