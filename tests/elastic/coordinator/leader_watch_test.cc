// Proves when a coordinator that leads counts as silent: when it has beaten, and says nothing new for the lease while
// somebody looks all the time.

#include "elastic/coordinator/leader_watch.h"

#include <gtest/gtest.h>

namespace holdfast {
namespace {

using std::chrono::milliseconds;

TEST(LeaderWords, AreReadAsTheyWereSaid) {
  const auto beat = LeaderWords::Read(LeaderWords{.beat = 17}.Line());
  ASSERT_TRUE(beat.has_value());
  EXPECT_EQ(beat->beat, 17u);
  EXPECT_FALSE(beat->exit_code.has_value());
  const auto end = LeaderWords::Read(LeaderWords{.exit_code = 1, .reason = "the disk\nis full"}.Line());
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->exit_code, 1);
  EXPECT_EQ(end->reason, "the disk is full");
  const auto quiet = LeaderWords::Read(LeaderWords{.exit_code = 0}.Line());
  ASSERT_TRUE(quiet.has_value());
  EXPECT_EQ(quiet->exit_code, 0);
}

TEST(LeaderWords, AreAbsentWhereTheyAreNotWhole) {
  for (const char* text : {"", "\n", "beat 17", "beat\n", "beat x\n", "beat 1 2\n", "ended 0", "ended\n", "ended x y\n",
                           "ended 99999999999 y\n", "who knows\n"}) {
    EXPECT_FALSE(LeaderWords::Read(text).has_value()) << text;
  }
}

class LeaderWatchTest : public testing::Test {
 protected:
  bool SilentAt(int now, uint64_t beat, const std::string& owner = "a") {
    return watch_.IsSilent(milliseconds(now), {owner, LeaderWords{.beat = beat}.Line()});
  }
  LeaderWatch watch_{milliseconds(1000)};
};

TEST_F(LeaderWatchTest, WhoSaysNothingNewForTheLeaseIsSilent) {
  for (int now = 0; now < 1000; now += 100) EXPECT_FALSE(SilentAt(now, 1)) << now;
  EXPECT_TRUE(SilentAt(1000, 1));
  EXPECT_TRUE(SilentAt(1100, 1));
  EXPECT_FALSE(SilentAt(1200, 2)) << "it beats again";
}

TEST_F(LeaderWatchTest, WhoBeatsIsNot) {
  for (int now = 0; now < 5000; now += 100) EXPECT_FALSE(SilentAt(now, static_cast<uint64_t>(now / 900))) << now;
}

TEST_F(LeaderWatchTest, AnotherOwnerHasItsOwnTime) {
  for (int now = 0; now < 900; now += 100) EXPECT_FALSE(SilentAt(now, 1));
  for (int now = 900; now < 1900; now += 100) EXPECT_FALSE(SilentAt(now, 1, "b")) << now;
  EXPECT_TRUE(SilentAt(1900, 1, "b"));
}

// While this process did not run, the other may not have run either, and beats as soon as both do.
TEST_F(LeaderWatchTest, TimeInWhichNobodyLookedDoesNotCount) {
  EXPECT_FALSE(SilentAt(0, 1));
  EXPECT_FALSE(SilentAt(100'000, 1));
  for (int now = 100'100; now < 101'000; now += 100) EXPECT_FALSE(SilentAt(now, 1)) << now;
  EXPECT_TRUE(SilentAt(101'000, 1));
}

TEST_F(LeaderWatchTest, NorDoesTimeInWhichTheLockCouldNotBeRead) {
  for (int now = 0; now < 900; now += 100) EXPECT_FALSE(SilentAt(now, 1));
  watch_.CouldNotLook();
  EXPECT_FALSE(SilentAt(1000, 1));
  for (int now = 1100; now < 2000; now += 100) EXPECT_FALSE(SilentAt(now, 1)) << now;
  EXPECT_TRUE(SilentAt(2000, 1));
}

// A process that trains alone holds the lock, too; and that a run has ended is the last that is said of it.
TEST_F(LeaderWatchTest, WhoDoesNotBeatIsNotWatched) {
  for (int now = 0; now < 5000; now += 100) EXPECT_FALSE(watch_.IsSilent(milliseconds(now), {"a", ""}));
  const std::string end = LeaderWords{.exit_code = 0, .reason = "done"}.Line();
  for (int now = 5000; now < 9000; now += 100) EXPECT_FALSE(watch_.IsSilent(milliseconds(now), {"a", end}));
}

TEST(Notices, WhoSaysSomethingNewIsThere) {
  const Notices then{{"a", "1"}, {"b", "7"}};
  EXPECT_FALSE(SaysSomethingNew(then, then)) << "of somebody who was killed";
  EXPECT_FALSE(SaysSomethingNew(then, {{"a", "1"}})) << "who has left";
  EXPECT_TRUE(SaysSomethingNew(then, {{"a", "1"}, {"b", "8"}}));
  EXPECT_TRUE(SaysSomethingNew(then, {{"a", "1"}, {"b", "7"}, {"c", "1"}}));
  EXPECT_FALSE(SaysSomethingNew({}, {}));
}

}  // namespace
}  // namespace holdfast
