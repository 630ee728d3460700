// Proves that no two workers of a host have one place while another is free.

#include "elastic/sweep/host_slots.h"

#include "gtest/gtest.h"

namespace holdfast {
namespace {

TEST(HostSlots, AreOfOneWorkerEachWhileThereAreEnough) {
  HostSlots slots({3, 1});
  EXPECT_EQ(slots.Take(0), 0);
  EXPECT_EQ(slots.Take(0), 1);
  EXPECT_EQ(slots.Take(1), 0);
  EXPECT_EQ(slots.Take(0), 2);
  slots.Free(0, 1);
  EXPECT_EQ(slots.Take(0), 1);
}

TEST(HostSlots, OneThatComesBeforeAnotherHasGoneSharesItsPlace) {
  HostSlots slots({2});
  slots.Take(0), slots.Take(0);
  EXPECT_EQ(slots.Take(0), 0);
  EXPECT_EQ(slots.Take(0), 1);
  slots.Free(0, 1);
  EXPECT_EQ(slots.Take(0), 1);
}

}  // namespace
}  // namespace holdfast
