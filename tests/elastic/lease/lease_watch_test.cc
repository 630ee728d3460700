// Proves when a coordinator that leads loses the lease (when it has ended, or has beaten and says nothing new for the
// lease while somebody looks all the time), and until when its holder counts on it.

#include "elastic/lease/lease_watch.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "elastic/lease/lease_holder.h"

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
  const auto left = LeaderWords::Read(LeaderWords{.has_left = true}.Line());
  ASSERT_TRUE(left.has_value());
  EXPECT_TRUE(left->has_left);
}

TEST(LeaderWords, AreAbsentWhereTheyAreNotWhole) {
  for (const char* text : {"", "\n", "beat 17", "beat\n", "beat x\n", "beat 1 2\n", "ended 0", "ended\n", "ended x y\n",
                           "ended 99999999999 y\n", "who knows\n", "left", "left it\n"}) {
    EXPECT_FALSE(LeaderWords::Read(text).has_value()) << text;
  }
}

class LeaseWatchTest : public testing::Test {
 protected:
  using Step = LeaseDecision::Step;
  using Owner = LeaseSight::Owner;
  static LeaseSight Beat(uint64_t beat, const std::string& owner = "a", Owner process = Owner::kThere) {
    return {.text = {owner, LeaderWords{.beat = beat}.Line()}, .owner = process, .lock_before = ""};
  }
  LeaseDecision At(int now, const LeaseSight& sight) { return watch_.Decide(milliseconds(now), sight); }
  Step StepAt(int now, uint64_t beat, const std::string& owner = "a") { return At(now, Beat(beat, owner)).step; }

  LeaseWatch watch_{milliseconds(1000), "me", /*has_led=*/false};
};

TEST_F(LeaseWatchTest, WhoSaysNothingNewForTheLeaseIsSilent) {
  for (int now = 0; now < 1000; now += 100) EXPECT_EQ(StepAt(now, 1), Step::kWait) << now;
  const LeaseDecision decision = At(1000, Beat(1));
  EXPECT_EQ(decision.step, Step::kTake);
  EXPECT_EQ(decision.from, "a has been silent for 1000 ms");
  EXPECT_EQ(StepAt(1100, 1), Step::kTake);
  EXPECT_EQ(StepAt(1200, 2), Step::kWait) << "it beats again";
}

TEST_F(LeaseWatchTest, WhoBeatsIsNot) {
  for (int now = 0; now < 5000; now += 100) EXPECT_EQ(StepAt(now, static_cast<uint64_t>(now / 900)), Step::kWait);
}

TEST_F(LeaseWatchTest, AnotherOwnerHasItsOwnTime) {
  for (int now = 0; now < 900; now += 100) EXPECT_EQ(StepAt(now, 1), Step::kWait);
  for (int now = 900; now < 1900; now += 100) EXPECT_EQ(StepAt(now, 1, "b"), Step::kWait) << now;
  EXPECT_EQ(StepAt(1900, 1, "b"), Step::kTake);
}

// A store numbers what is written; an owner that writes the same again is there.
TEST_F(LeaseWatchTest, AnotherVersionIsNews) {
  LeaseSight sight = Beat(1);
  for (int now = 0; now < 5000; now += 100) {
    sight.version = std::to_string(now / 900);
    EXPECT_EQ(At(now, sight).step, Step::kWait) << now;
  }
}

// While this process did not run, the other may not have run either, and beats as soon as both do.
TEST_F(LeaseWatchTest, TimeInWhichNobodyLookedDoesNotCount) {
  EXPECT_EQ(StepAt(0, 1), Step::kWait);
  EXPECT_EQ(StepAt(100'000, 1), Step::kWait);
  for (int now = 100'100; now < 101'000; now += 100) EXPECT_EQ(StepAt(now, 1), Step::kWait) << now;
  EXPECT_EQ(StepAt(101'000, 1), Step::kTake);
}

TEST_F(LeaseWatchTest, NorDoesTimeInWhichTheLeaseCouldNotBeRead) {
  for (int now = 0; now < 900; now += 100) EXPECT_EQ(StepAt(now, 1), Step::kWait);
  watch_.CouldNotLook();
  EXPECT_EQ(StepAt(1000, 1), Step::kWait);
  for (int now = 1100; now < 2000; now += 100) EXPECT_EQ(StepAt(now, 1), Step::kWait) << now;
  EXPECT_EQ(StepAt(2000, 1), Step::kTake);
}

// A process that trains alone holds the lock, too; and whoever has said its last words may still be there.
TEST_F(LeaseWatchTest, WhoDoesNotBeatIsWaitedForToItsEnd) {
  LeaseSight sight{.text = {"a", ""}, .owner = Owner::kThere, .lock_before = ""};
  for (int now = 0; now < 5000; now += 100) EXPECT_EQ(At(now, sight).step, Step::kWait);
  sight.owner = Owner::kGone;
  EXPECT_EQ(At(5000, sight).step, Step::kTake);
  EXPECT_EQ(At(5000, sight).from, "a has ended");
  sight = {
      .text = {"a", LeaderWords{.exit_code = 3, .reason = "done"}.Line()}, .owner = Owner::kThere, .lock_before = ""};
  for (int now = 5100; now < 9000; now += 100) EXPECT_EQ(At(now, sight).step, Step::kWait);
  sight.owner = Owner::kGone;
  const LeaseDecision decision = At(9000, sight);
  EXPECT_EQ(decision.step, Step::kEnd);
  EXPECT_EQ(decision.end.exit_code, 3);
  EXPECT_EQ(decision.end.reason, "done");
}

TEST_F(LeaseWatchTest, WhoFindsNobodyBeginsTheRun) {
  EXPECT_EQ(At(0, {}).step, Step::kTake);
  EXPECT_EQ(At(0, {}).from, "");
  for (const LeaderWords& words :
       {LeaderWords{.beat = 7}, LeaderWords{.exit_code = 0}, LeaderWords{.has_left = true}}) {
    const LeaseSight gone{.text = {"a", words.Line()}, .owner = Owner::kGone, .lock_before = ""};
    const LeaseDecision decision = LeaseWatch(milliseconds(1000), "me", false).Decide(milliseconds(0), gone);
    EXPECT_EQ(decision.step, Step::kTake) << words.Line();
    EXPECT_EQ(decision.from, "") << words.Line();
    const LeaseDecision again = LeaseWatch(milliseconds(1000), "me", true).Decide(milliseconds(0), gone);
    EXPECT_EQ(again.step, words.exit_code.has_value() ? Step::kEnd : Step::kTake) << words.Line();
    EXPECT_EQ(again.from.empty(), words.exit_code.has_value()) << words.Line();
  }
}

// Where no kernel says whether the owner has ended, its port may.
TEST_F(LeaseWatchTest, WhoseProcessHasEndedLosesItBeforeTheLeaseIsOver) {
  LeaseSight sight = Beat(1, "a", Owner::kUnknown);
  sight.version = "7";
  for (int now = 0; now < 1000; now += 100) {
    EXPECT_EQ(At(now, sight).step, now > 0 && now < 300 ? Step::kWait : Step::kAsk) << now;
  }
  sight.version = "8";
  sight.owner = Owner::kGone;
  EXPECT_EQ(At(1000, sight).step, Step::kWait) << "it has spoken just now, whatever its port says";
  EXPECT_EQ(At(1300, sight).step, Step::kTake);
  EXPECT_EQ(At(1300, sight).from, "a has ended");
}

TEST_F(LeaseWatchTest, WhoHasEndedBeforeWeCameIsFollowedAndWhoEndsLaterIsReplaced) {
  LeaseSight sight = Beat(1, "a", Owner::kUnknown);
  sight.version = "7";
  for (const bool lives : {false, true}) {
    LeaseWatch watch(milliseconds(1000), "me", /*has_led=*/false);
    EXPECT_EQ(watch.Decide(milliseconds(0), sight).step, Step::kAsk);
    if (lives) watch.MayLive();
    EXPECT_EQ(watch.Decide(milliseconds(300), sight).step, Step::kAsk);
    LeaseSight gone = sight;
    gone.owner = Owner::kGone;
    const LeaseDecision decision = watch.Decide(milliseconds(300), gone);
    EXPECT_EQ(decision.step, Step::kTake);
    EXPECT_EQ(decision.from, lives ? "a has ended" : "");
  }
}

// Nobody knows whether it is frozen: what it did is resumed, whatever whoever was started now was told to begin.
TEST_F(LeaseWatchTest, AnOwnerThatWasSilentFromTheBeginningIsTakenOver) {
  for (int now = 0; now < 1000; now += 100) EXPECT_NE(At(now, Beat(1, "a", Owner::kUnknown)).step, Step::kTake);
  EXPECT_EQ(At(1000, Beat(1, "a", Owner::kUnknown)).from, "a has been silent for 1000 ms");
}

// The answer to a write was lost.
TEST_F(LeaseWatchTest, WhatItHasWrittenItselfIsItsOwn) {
  EXPECT_EQ(StepAt(0, 1), Step::kWait);
  EXPECT_EQ(StepAt(100, 2), Step::kWait);
  const LeaseDecision decision = At(200, Beat(1, "me", Owner::kUnknown));
  EXPECT_EQ(decision.step, Step::kTake);
  EXPECT_EQ(decision.from, "a has gone");
}

TEST_F(LeaseWatchTest, AStoreThatHasLostTheLeaseIsNoSilentOwner) {
  EXPECT_EQ(StepAt(0, 1), Step::kWait);
  for (int now = 100; now < 1100; now += 100) EXPECT_EQ(At(now, {}).step, Step::kWait) << now;
  EXPECT_EQ(At(1100, {}).step, Step::kTake);
  EXPECT_EQ(At(1100, {}).from, "a has gone");
}

class LeaseHolderTest : public testing::Test {
 protected:
  absl::StatusCode At(int now) { return holder_.Check(milliseconds(now)).code(); }
  LeaseHolder holder_{milliseconds(1000), "etcd://db/run", "me"};
};

TEST_F(LeaseHolderTest, ALeaseIsCountedFromWhenItsRenewalWasAskedFor) {
  EXPECT_EQ(At(0), absl::StatusCode::kUnavailable);
  holder_.Wrote(milliseconds(100), {"1"});
  EXPECT_EQ(At(999), absl::StatusCode::kOk);
  EXPECT_EQ(At(1000), absl::StatusCode::kUnavailable) << "a tenth is the margin";
  holder_.Wrote(milliseconds(300), absl::UnavailableError("timed out"));
  EXPECT_EQ(At(1000), absl::StatusCode::kUnavailable);
  holder_.Wrote(milliseconds(900), {"3"});
  EXPECT_EQ(At(1799), absl::StatusCode::kOk);
}

TEST_F(LeaseHolderTest, AfterAWriteOfWhichNobodyKnowsItLooks) {
  holder_.Takes({.text = {}, .lock_before = "", .version = "7"});
  EXPECT_EQ(holder_.version(), "7");
  for (const auto& answer :
       {absl::StatusOr<std::string>(absl::UnavailableError("timed out")),
        absl::StatusOr<std::string>(absl::AbortedError("something else")), absl::StatusOr<std::string>("")}) {
    holder_.Wrote(milliseconds(0), answer);
    EXPECT_EQ(holder_.version(), std::nullopt);
    holder_.Saw({.text = {"me", "beat 1\n"}, .lock_before = "", .version = "8"});
    EXPECT_EQ(holder_.version(), "8");
    EXPECT_FALSE(holder_.lost());
  }
  holder_.Saw({});
  EXPECT_EQ(holder_.version(), "") << "it is written anew";
}

TEST_F(LeaseHolderTest, WhatAnotherOneHasHadIsLostForGood) {
  holder_.Wrote(milliseconds(0), {"1"});
  holder_.Saw({.text = {"process 7 on db\nmark\n", "left\n"}, .lock_before = "", .version = "9"});
  EXPECT_EQ(At(1), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(holder_.version(), std::nullopt) << "it would be replaced";
  holder_.Wrote(milliseconds(2), {"10"});
  EXPECT_EQ(At(3), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(holder_.Check(milliseconds(3)).message().find("process 7 on db"), absl::string_view::npos);
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
