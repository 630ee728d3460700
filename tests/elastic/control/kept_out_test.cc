// Proves what follows from a majority having other bits than a worker again and again: that it is kept out, that nobody
// counts on it, and that a coordinator that is started again knows of it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

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
  static constexpr uint64_t kOtherProcess = uint64_t{1} << 50;
  uint64_t incarnation_ = First(2);
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
