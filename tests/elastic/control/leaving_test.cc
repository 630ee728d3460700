// Nodes that leave a run, as their agents ask for it: when they are let go, who takes over what they alone hold, and
// what becomes of those that come back or were away when they were let go.

#include <gmock/gmock.h>

#include <chrono>

#include "absl/strings/str_cat.h"
#include "elastic/control/coordinator.h"
#include "framework/base/limits.h"
#include "tests/elastic/control/coordinator_harness.h"

namespace holdfast {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;

using LeavingTest = CoordinatorTest;

// Workers 0 and 1 are on node n0, 2 on n1; connection 8 is an agent's.
TEST_F(LeavingTest, ANodeLeavesBetweenTwoStepsAndIsLetGoWhenNothingDependsOnIt) {
  StartWith({0, 1, 2});
  AgentComes(8, "n1");
  Commit({0, 1, 2});
  Event(MessageEvent{8, LeaveMessage{15}});
  EXPECT_EQ(WorldSize(), 3) << "the step in flight is finished first";
  Commit({0, 1, 2});
  EXPECT_EQ(Committed(), 2);
  EXPECT_EQ(WorldSize(), 2);
  EXPECT_EQ(worlds_[Connection(0)].committed_step, 2) << "no step is redone";
  EXPECT_EQ(LastSent<EndMessage>(2), nullptr) << "until the others have done a step";
  Commit({0, 1});
  ASSERT_NE(LastSent<EndMessage>(2), nullptr);
  EXPECT_EQ(LastSent<EndMessage>(2)->exit_code, 143);
  EXPECT_NE(LastSent<EndMessage>(7), nullptr) << "its agent";
  EXPECT_EQ(Count<event::NodeLeft>(), 1);
  EXPECT_EQ(Count<event::WorkerLost>(), 0);
  EXPECT_FALSE(ended_.has_value());
}

TEST_F(LeavingTest, ANodeThatAloneHoldsStateGivesItToTheOthersFirst) {
  StartWith({0, 1, 2}, WithoutMirrors());
  AgentComes(8, "n0");
  Commit({0, 1, 2});
  Event(MessageEvent{8, LeaveMessage{15}});
  Commit({0, 1, 2});
  const World drained = worlds_[Connection(0)].world;
  EXPECT_EQ(worlds_[Connection(0)].committed_step, 2) << "no step is redone";
  ASSERT_EQ(drained.size(), 3);
  EXPECT_EQ(drained.num_leaving(), 2);
  EXPECT_EQ(drained.members[0].id.name, "n1/2") << "those that leave come last";
  EXPECT_EQ(LastSent<EndMessage>(0), nullptr);
  Commit({0, 1, 2});
  EXPECT_EQ(WorldSize(), 1);
  EXPECT_EQ(worlds_[Connection(2)].committed_step, 3);
  EXPECT_EQ(worlds_[Connection(2)].source, drained);
  Commit({2});
  for (const int w : {0, 1}) ASSERT_NE(LastSent<EndMessage>(w), nullptr);
  EXPECT_EQ(LastSent<EndMessage>(2), nullptr);
  EXPECT_EQ(Count<event::NodeLeft>(), 1);
}

TEST_F(LeavingTest, ANodeThatIsLostWhileItLeavesIsLostAsAnyOther) {
  StartWith({0, 1, 2}, WithoutMirrors());
  AgentComes(8, "n1");
  Commit({0, 1, 2});
  Event(MessageEvent{8, LeaveMessage{15}});
  Commit({0, 1, 2});
  ASSERT_EQ(worlds_[Connection(0)].world.num_leaving(), 1);
  for (const uint64_t connection : {Connection(2), uint64_t{8}}) Event(DisconnectEvent{connection, "killed"});
  EXPECT_EQ(Count<event::StateMissing>(), 1);
}

TEST_F(LeavingTest, ANodeThatHasLeftMayComeBackUnderItsName) {
  CoordinatorOptions options = DefaultOptions();
  options.elastic.workers = options.elastic.max_workers = 2;
  Start(options);
  for (const int w : {0, 1}) Join(w);  // all on one node: there is nobody to leave the run to
  AgentComes(8, "n0", 2, /*instance=*/100);
  Commit({0, 1});
  Event(MessageEvent{8, LeaveMessage{15}});
  for (const uint64_t connection : {8u, 1u, 2u}) Event(DisconnectEvent{connection, "killed"});
  AgentComes(9, "n0", 2, /*instance=*/100);
  EXPECT_EQ(Count<event::NodeReturned>(), 0) << "the same agent over another connection";
  Event(DisconnectEvent{9, "killed"});
  for (const int w : {0, 1}) Join(w, {}, First(w) + (uint64_t{1} << 40));
  Pass(milliseconds(500), {0, 1});
  EXPECT_EQ(WorldSize(), 0);
  AgentComes(10, "n0", 2, /*instance=*/200);
  EXPECT_EQ(Count<event::NodeReturned>(), 1);
  Commit({0, 1});
  EXPECT_FALSE(ended_.has_value());
}

TEST_F(LeavingTest, NodesThatAllLeaveLeaveTheRunToNobodySoItIsStopped) {
  StartWith({0, 1, 2});
  AgentComes(8, "n0", 2);
  AgentComes(9, "n1");
  Commit({0, 1, 2});
  Event(MessageEvent{8, LeaveMessage{10}});
  Event(MessageEvent{9, LeaveMessage{15}});
  Commit({0, 1, 2});
  Pass(milliseconds(2'500), {0, 1, 2});
  EXPECT_EQ(Count<event::StopRequested>(), 0) << "another node may be about to come";
  Pass(milliseconds(1'000), {0, 1, 2});
  ASSERT_EQ(Count<event::StopRequested>(), 1);
  EXPECT_EQ(Last<event::StopRequested>().signal, 10);
  EXPECT_EQ(worlds_[Connection(0)].purpose, Purpose::kStop);
  EXPECT_EQ(WorldSize(), 3);
}

TEST_F(LeavingTest, NodesThatAllLeaveGoWhenAnotherComesInTime) {
  StartWith({0, 1});
  AgentComes(8, "n0", 2);
  Pass(milliseconds(DefaultOptions().elastic.join_timeout_ms), {0, 1});
  Commit({0, 1});
  Event(MessageEvent{8, LeaveMessage{15}});
  Pass(milliseconds(2'000), {0, 1});
  AgentComes(9, "n1");
  Pass(milliseconds(5'000), {0, 1});
  EXPECT_EQ(Count<event::StopRequested>(), 0) << "its workers are being started";
}

// A run that moves to another machine, in a world that is as large as it may be.
TEST_F(LeavingTest, NodesThatAllLeaveHandOnToThoseThatWaitForAPlace) {
  CoordinatorOptions options = WithoutMirrors();
  options.elastic.workers = options.elastic.max_workers = 2;
  StartWith({0, 1}, options);
  AgentComes(8, "n0", 2);
  Commit({0, 1});
  for (const int w : {2, 3}) Join(w);
  Pass(milliseconds(500), {0, 1, 2, 3});
  Commit({0, 1});
  ASSERT_EQ(WorldSize(), 2);
  Event(MessageEvent{8, LeaveMessage{15}});
  Commit({0, 1});
  const World both = worlds_[Connection(2)].world;
  ASSERT_EQ(both.size(), 4);
  EXPECT_EQ(both.num_leaving(), 2);
  EXPECT_EQ(both.members[0].id.name, "n1/2");
  Commit({0, 1, 2, 3});
  EXPECT_EQ(WorldSize(), 2);
  Commit({2, 3});
  for (const int w : {0, 1}) ASSERT_NE(LastSent<EndMessage>(w), nullptr);
  EXPECT_EQ(Count<event::NodeLeft>(), 1);
  EXPECT_EQ(Count<event::WorkerLost>(), 0);
}

TEST_F(LeavingTest, ANodeWhoseAgentIsAnotherOneNowStays) {
  StartWith({0, 1});
  AgentComes(8, "n0", 2, /*instance=*/100);
  Pass(milliseconds(DefaultOptions().elastic.join_timeout_ms), {0, 1});
  Commit({0, 1});
  Event(MessageEvent{8, LeaveMessage{15}});
  Event(DisconnectEvent{8, "killed"});
  AgentComes(9, "n0", 2, /*instance=*/200);
  Pass(milliseconds(5'000), {0, 1});
  EXPECT_EQ(Count<event::StopRequested>(), 0);
  EXPECT_EQ(WorldSize(), 2);
}

TEST_F(LeavingTest, NodesThatAllLeaveAreNotTakenForAloneByACoordinatorThatWasFrozen) {
  StartWith({0, 1});
  AgentComes(8, "n0", 2);
  Pass(milliseconds(DefaultOptions().elastic.join_timeout_ms), {0, 1});
  Commit({0, 1});
  Event(MessageEvent{8, LeaveMessage{15}});
  Event(TickEvent{});
  now_ += milliseconds(60'000);
  Commit({0, 1});  // what it finds in its queue first
  AgentComes(9, "n1");
  Pass(milliseconds(1'000), {0, 1});
  EXPECT_EQ(Count<event::StopRequested>(), 0);
}

TEST_F(LeavingTest, BeforeTheLastHoldersOfStateLeaveItIsSaved) {
  CoordinatorOptions options = DefaultOptions();
  options.checkpoint.every_steps = 50;
  StartWith({0, 1, 2}, options);
  AgentComes(8, "n0", 2);
  AgentComes(9, "n1");
  AgentComes(10, "n2");  // whose workers are being started
  Commit({0, 1, 2});
  const auto is_saved = [&] { return LastSent<CommitMessage>(0) != nullptr && LastSent<CommitMessage>(0)->save; };
  Event(MessageEvent{9, LeaveMessage{15}});
  Say(2, Vote(Generation(), Committed() + 1));
  Commit({0, 1});
  EXPECT_FALSE(is_saved()) << "n0 stays";
  Event(MessageEvent{8, LeaveMessage{15}});
  Commit({0, 1, 2});
  EXPECT_TRUE(is_saved());
  Commit({0, 1, 2});
  EXPECT_FALSE(is_saved()) << "once";
}

// It was being started when its node left, and has heard nothing.
TEST_F(LeavingTest, AWorkerOfANodeThatHasLeftIsToldToGo) {
  StartWith({0, 1, 2});
  AgentComes(8, "n1", 1, /*instance=*/5);
  Commit({0, 1, 2});
  Event(MessageEvent{8, LeaveMessage{15}});
  Commit({0, 1, 2});
  Commit({0, 1});
  ASSERT_EQ(Count<event::NodeLeft>(), 1);
  const int joined = Count<event::WorkerJoined>();
  Join(2, {}, First(2) + (uint64_t{1} << 40));
  ASSERT_NE(LastSent<EndMessage>(2), nullptr);
  EXPECT_EQ(LastSent<EndMessage>(2)->exit_code, 143);
  EXPECT_EQ(Count<event::WorkerJoined>(), joined);
  Event(DisconnectEvent{8, "gone"});
  Join(2, {}, First(2) + (uint64_t{2} << 40));
  EXPECT_EQ(Count<event::WorkerJoined>(), joined + 1) << "of another agent, or of none";
  EXPECT_EQ(Count<event::NodeReturned>(), 0);
  AgentComes(9, "n1", 1, /*instance=*/6);
  EXPECT_EQ(Last<event::NodeReturned>().node, "n1") << "else nobody would hear of what it loses";
  Event(DisconnectEvent{9, "gone"});
  AgentComes(10, "n1", 1, /*instance=*/7);
  EXPECT_EQ(Count<event::NodeReturned>(), 1);
}

// As machines that are lent for some hours, each under a name of its own.
TEST_F(LeavingTest, NodesThatAreAwayAreNotRememberedForEver) {
  StartTraining({0, 1, 2});
  AgentComes(8, "n1");
  Event(MessageEvent{8, LeaveMessage{15}});
  Event(DisconnectEvent{8, "gone"});
  for (int i = 0; i <= 2 * kMaxAgents; ++i) {
    const uint64_t connection = 1000 + static_cast<uint64_t>(i);
    AgentComes(connection, absl::StrCat("lent", i));
    Event(MessageEvent{connection, LeaveMessage{15}});
    Event(DisconnectEvent{connection, "gone"});
  }
  AgentComes(7, "lent0");
  AgentComes(8, "n1");
  EXPECT_THAT(coordinator_->Status(now_).nodes, ElementsAre("lent0"))
      << "that it leaves it says again; n1 is in the world, and is known to leave";
}

TEST_F(LeavingTest, AnAgentSaysOnceWhoItIs) {
  Start();
  AgentComes(8, "n0");
  AgentComes(8, "n1");
  EXPECT_EQ(Count<event::AgentJoined>(), 1);
  EXPECT_EQ(closed_, std::vector<uint64_t>{8});
}

class NodeThatWasAwayTest : public CoordinatorTest {
 protected:
  // n1's agent has asked to leave and is gone before it is let go, of which it has not heard.
  void SetUp() override {
    StartWith({0, 1, 2});
    AgentComes(8, "n1", 1, /*instance=*/5);
    Commit({0, 1, 2});
    Event(MessageEvent{8, LeaveMessage{15}});
    Event(DisconnectEvent{8, "stream broken"});
    Commit({0, 1, 2});
    Commit({0, 1});
    ASSERT_EQ(Count<event::NodeLeft>(), 1);
    sent_.clear();
  }
};

TEST_F(NodeThatWasAwayTest, HearsThatItWasLetGoWhenItIsBack) {
  Join(2, {}, First(2) + (uint64_t{1} << 40));
  AgentComes(9, "n1", 1, /*instance=*/5);
  Commit({0, 1});
  ASSERT_NE(LastSent<EndMessage>(2), nullptr);
  EXPECT_EQ(LastSent<EndMessage>(2)->exit_code, 143);
  ASSERT_FALSE(sent_[9].empty());
  EXPECT_TRUE(std::holds_alternative<EndMessage>(sent_[9].back()));
}

// The agent was killed, and a new one has not found the coordinator yet.
TEST_F(NodeThatWasAwayTest, AWorkerOfItThatComesBeforeItsAgentIsTakenIn) {
  const int joined = Count<event::WorkerJoined>();
  Join(2, {}, First(2) + (uint64_t{1} << 40));
  EXPECT_EQ(LastSent<EndMessage>(2), nullptr);
  EXPECT_EQ(Count<event::WorkerJoined>(), joined + 1);
}

TEST_F(LeavingTest, ANodeIsLetGoAlsoWhileTheOthersAreTooFewForAWorld) {
  CoordinatorOptions options = DefaultOptions();
  options.elastic.min_workers = 3;
  StartWith({0, 1, 2}, options);
  AgentComes(8, "n1");
  Commit({0, 1, 2});
  Event(MessageEvent{8, LeaveMessage{15}});
  Commit({0, 1, 2});
  EXPECT_EQ(WorldSize(), 0);
  ASSERT_NE(LastSent<EndMessage>(2), nullptr);
  EXPECT_EQ(Count<event::NodeLeft>(), 1);
}

class NoWorldTest : public CoordinatorTest {
 protected:
  // Two of the three workers that a world needs are there, and an agent of a node of which nobody has joined.
  void SetUp() override {
    CoordinatorOptions options = DefaultOptions();
    options.elastic.min_workers = 3;
    StartWith({0, 1, 2}, options);
    AgentComes(9, "n7");
    Commit({0, 1, 2});
  }
  void LoseOne() {
    Event(DisconnectEvent{Connection(2), "killed"});
    ASSERT_EQ(WorldSize(), 0);
  }
  bool IsToldToGo(uint64_t agent) const {
    const auto sent = sent_.find(agent);
    return sent != sent_.end() && std::holds_alternative<EndMessage>(sent->second.back());
  }
};

TEST_F(NoWorldTest, ANodeWithoutWorkersIsLetGo) {
  LoseOne();
  Event(MessageEvent{9, LeaveMessage{15}});
  EXPECT_TRUE(IsToldToGo(9));
  EXPECT_EQ(Count<event::NodeLeft>(), 1);
}

TEST_F(NoWorldTest, AnAgentThatWasAwayWhenItWasLetGoHearsOfIt) {
  Event(MessageEvent{9, LeaveMessage{15}});
  Event(DisconnectEvent{9, "stream broken"});
  LoseOne();
  ASSERT_EQ(Count<event::NodeLeft>(), 1);
  AgentComes(10, "n7");
  Event(TickEvent{});
  EXPECT_TRUE(IsToldToGo(10));
}

// On a ring of four the neighbours of n3 are n0 and n1: what it shared with n0 only n0 has now. What n2
// has, n0 and n1 have, too.
TEST_F(LeavingTest, WhileTheOthersAreTooFewANodeThatAloneHoldsStateIsKeptAndAnotherIsLetGo) {
  CoordinatorOptions options = DefaultOptions();
  options.elastic.workers = options.elastic.min_workers = 4;
  StartWith({0, 2, 4, 6}, options);
  AgentComes(8, "n0");
  AgentComes(9, "n2");
  Commit({0, 2, 4, 6});
  Event(DisconnectEvent{Connection(6), "killed"});
  EXPECT_EQ(WorldSize(), 0);
  Event(MessageEvent{8, LeaveMessage{15}});
  Event(MessageEvent{9, LeaveMessage{15}});
  EXPECT_NE(LastSent<EndMessage>(4), nullptr);
  EXPECT_EQ(LastSent<EndMessage>(0), nullptr);
  EXPECT_EQ(Count<event::NodeLeft>(), 1);
}

}  // namespace
}  // namespace holdfast
