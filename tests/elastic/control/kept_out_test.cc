// Proves what follows from a majority having other bits than a worker again and again: that it is kept out, that nobody
// counts on it, and that a coordinator that is started again knows of it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <variant>

#include "elastic/control/coordinator.h"
#include "tests/elastic/control/coordinator_harness.h"

namespace holdfast {
namespace {

using std::chrono::milliseconds;

// Workers 0 and 1 are on node n0; 2, the faulty one, is alone on n1.
class KeptOutTest : public CoordinatorTest {
 protected:
  KeptOutTest() { StartTraining({0, 1, 2}); }
  /// 2 has other bits of the next step, which is done without it.
  void Contradict2() {
    ASSERT_EQ(WorldSize(), 3);
    VoteMessage other = Vote(Generation(), Committed() + 1);
    other.loss_bits ^= 1;
    for (const int w : {0, 1}) Say(w, Vote(Generation(), Committed() + 1));
    Say(2, other);
    ASSERT_EQ(WorldSize(), 2);
    Commit({0, 1});
  }
  /// The same process.
  void Return2() { Join2(++incarnation_); }
  void Join2(uint64_t incarnation) {
    Join(2, {}, incarnation);
    Pass(milliseconds(200), {0, 1, 2});
    if (WorldSize() == 2) Commit({0, 1});
  }
  void KeepOut2() {
    for (int i = 0; i < 3; ++i) {
      Contradict2();
      Return2();
    }
    ASSERT_EQ(Count<event::KeptOut>(), 1);
    ASSERT_EQ(WorldSize(), 2);
  }
  /// Another coordinator leads, as far as `since_1970_` says on a machine with another clock. 0 and 1 have the state.
  void Restart() {
    const StateClaim claim{worlds_[Connection(0)].world, Committed(), 0, {}};
    CoordinatorOptions options = DefaultOptions();
    options.recorded_step = Committed();
    options.last_generation = Generation();
    options.contradicted = contradicted_;
    options.contradictions = contradictions_;
    options.since_1970 = since_1970_;
    Start(options);
    for (const int w : {0, 1}) Join(w, claim);
    Return2();
  }
  static constexpr uint64_t kOtherProcess = uint64_t{1} << 50;
  uint64_t incarnation_ = First(2);
  Instant since_1970_{0};
};

// As in a container, where it has the pid and the host of the one before.
TEST_F(KeptOutTest, AnotherProcessOfTheNameIsTakenInAndEndsIt) {
  KeepOut2();
  Return2();
  EXPECT_EQ(Count<event::KeptOutResolved>(), 0) << "it has only connected anew";
  Join2(kOtherProcess);
  EXPECT_EQ(WorldSize(), 3);
  ASSERT_EQ(Count<event::KeptOutResolved>(), 1);
  EXPECT_EQ(Last<event::KeptOutResolved>().worker, "n1/2");
  EXPECT_EQ(Last<event::KeptOutResolved>().host, "n1");
  Join2(kOtherProcess + 1);
  EXPECT_EQ(Count<event::KeptOutResolved>(), 1);
}

TEST_F(KeptOutTest, ACoordinatorThatIsStartedAgainKnowsWhoHadOtherBitsHowOften) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Count<event::KeptOut>(), 0);
    Contradict2();
    Restart();
  }
  EXPECT_EQ(Count<event::KeptOut>(), 1);
  EXPECT_EQ(WorldSize(), 2);
  Restart();
  EXPECT_EQ(WorldSize(), 2) << "nor does the one after it let it in";
  EXPECT_THAT(coordinator_->Status(now_).detail, testing::EndsWith("kept out, as most had other bits: n1/2"));
  EXPECT_EQ(Count<event::KeptOutResolved>(), 0);
  Join2(kOtherProcess);
  EXPECT_EQ(WorldSize(), 3);
  EXPECT_EQ(Count<event::KeptOutResolved>(), 1);
  Contradict2();
  EXPECT_EQ(Count<event::KeptOut>(), 2) << "it is not mended";
}

TEST_F(KeptOutTest, ACoordinatorOnAnotherMachineKnowsWhatHappenedWithinADay) {
  for (const int later : {1, 30}) {
    SCOPED_TRACE(later);
    since_1970_ = Instant{0};
    StartTraining({0, 1, 2});
    events_.clear();
    Contradict2();
    Return2();
    Contradict2();
    since_1970_ += now_ + std::chrono::hours(later);
    now_ = Instant{0};  // it has just been started
    Restart();
    Contradict2();
    EXPECT_EQ(Count<event::KeptOut>(), later == 1 ? 1 : 0);
  }
}

TEST_F(KeptOutTest, ThatItIsKeptOutIsStoredBeforeAnythingFollows) {
  for (int i = 0; i < 2; ++i) {
    Contradict2();
    Return2();
  }
  VoteMessage other = Vote(Generation(), Committed() + 1);
  other.loss_bits ^= 1;
  Say(2, other);
  for (const int w : {0, 1}) Say(w, Vote(Generation(), Committed() + 1));
  for (const CoordinatorAction& action : actions_) {
    if (const auto* report = std::get_if<ReportAction>(&action)) {
      ASSERT_TRUE(std::holds_alternative<event::BitsDiffer>(report->event)) << EventName(report->event);
    }
    const auto* persist = std::get_if<PersistAction>(&action);
    if (persist == nullptr) continue;
    EXPECT_TRUE(persist->contradictions.at("n1/2").kept_out);
    EXPECT_EQ(persist->contradictions.at("n1/2").process, First(2));
    return;
  }
  ADD_FAILURE() << "nothing is stored";
}

TEST_F(KeptOutTest, TheRunIsNotLeftToANodeOfWhichAllAreKeptOut) {
  AgentComes(8, "n0", 2);
  AgentComes(9, "n1", 1);
  KeepOut2();
  Event(MessageEvent{8, LeaveMessage{10}});
  Pass(milliseconds(DefaultOptions().elastic.heartbeat_timeout_ms + 500), {0, 1, 2});
  ASSERT_EQ(Count<event::StopRequested>(), 1);
  EXPECT_EQ(Last<event::StopRequested>().signal, 10);
  EXPECT_EQ(worlds_[Connection(0)].purpose, Purpose::kStop);
  EXPECT_EQ(WorldSize(), 2);
}

TEST_F(KeptOutTest, TheRunIsLeftToAnotherProcessInItsPlace) {
  AgentComes(8, "n0", 2);
  AgentComes(9, "n1", 1);
  KeepOut2();
  Event(MessageEvent{8, LeaveMessage{10}});
  Join(2, {}, kOtherProcess);
  Pass(milliseconds(DefaultOptions().elastic.heartbeat_timeout_ms + 500), {0, 1, 2});
  EXPECT_EQ(Count<event::StopRequested>(), 0);
}

}  // namespace
}  // namespace holdfast
