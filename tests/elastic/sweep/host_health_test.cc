// Proves when a host is left out of a sweep, and for how long.

#include "elastic/sweep/host_health.h"

#include "gtest/gtest.h"

namespace holdfast {
namespace {

TEST(HostHealth, IsLeftOutAfterThreeThatDidNotStayAndForLongerEachTime) {
  HostHealth health(2);
  HostHealth::TimePoint now{};
  EXPECT_FALSE(health.OnEnd(1, std::chrono::milliseconds(5), now).has_value());
  EXPECT_FALSE(health.OnEnd(1, std::chrono::milliseconds(5), now).has_value());
  EXPECT_TRUE(health.IsUsable(1, now));
  EXPECT_EQ(health.OnEnd(1, std::chrono::milliseconds(5), now), std::chrono::seconds(10));
  EXPECT_FALSE(health.IsUsable(1, now));
  EXPECT_TRUE(health.IsUsable(0, now));
  EXPECT_FALSE(health.OnEnd(1, std::chrono::milliseconds(5), now).has_value()) << "of those that ended with it";
  now += std::chrono::seconds(10);
  EXPECT_TRUE(health.IsUsable(1, now));
  EXPECT_GT(health.OnEnd(1, std::chrono::milliseconds(5), now), std::chrono::seconds(10));
}

TEST(HostHealth, OneThatStayedBeginsAnew) {
  HostHealth health(1);
  const HostHealth::TimePoint now{};
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(health.OnEnd(0, std::chrono::seconds(1), now).has_value());
    EXPECT_FALSE(health.OnEnd(0, std::chrono::seconds(1), now).has_value());
    EXPECT_FALSE(health.OnEnd(0, std::chrono::seconds(30), now).has_value());
  }
}

}  // namespace
}  // namespace holdfast
