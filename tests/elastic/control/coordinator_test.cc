// Single decisions of the coordinator, each brought about by as few messages as it takes: who is let in and when, what
// makes a new world, who is blamed, when a step counts, how a run ends and how it is taken up again.

#include "elastic/control/coordinator.h"

#include <gmock/gmock.h>

#include <bit>
#include <functional>
#include <iterator>
#include <optional>
#include <tuple>

#include "elastic/control/state_source.h"
#include "framework/base/limits.h"
#include "tests/elastic/control/coordinator_harness.h"
#include "tests/framework/parallel/held_cells.h"

namespace holdfast {
namespace {

using std::chrono::milliseconds;

TEST_F(CoordinatorTest, FirstWorldWaitsForTheWorkersWantedAndOrdersThemByNode) {
  Start();
  Join(2);
  Join(0);
  EXPECT_EQ(WorldSize(), 0);
  EXPECT_EQ(coordinator_->Status(now_).state, RunState::kWaitingForWorkers);
  EXPECT_EQ(coordinator_->Status(now_).detail, "2 of 3 workers joined");
  Join(1);
  ASSERT_EQ(WorldSize(), 3);
  const WorldMessage& world = worlds_[Connection(2)];
  EXPECT_EQ(world.world.members[0].id.name, "n0/0");
  EXPECT_EQ(world.world.members[2].id.name, "n1/2");
  EXPECT_EQ(world.microbatches, (std::vector<int64_t>{3, 3, 2}));
  EXPECT_EQ(world.source.generation, 0u);
}

// Generations only grow: there would soon be no more of them.
TEST_F(CoordinatorTest, AGenerationThatNoRunCanHaveIsRefused) {
  Start();
  const uint64_t far = uint64_t{1} << 40;
  const World world{far, {MemberOf(0), MemberOf(1)}};
  const auto expect_refused = [&](const StateClaim& claim, uint64_t generation) {
    Say(0, JoinMessage{MemberOf(0), claim, {.config = 42}, generation});
    ASSERT_NE(LastSent<RefusedMessage>(0), nullptr);
    EXPECT_EQ(LastSent<RefusedMessage>(0)->reason, "invalid join message");
  };
  expect_refused({}, far);
  expect_refused({world, 5, 0, {}}, 1);
  expect_refused({{}, 5, 6, world}, 1);
  expect_refused({{}, 5, 0, {}, world}, 1);
  for (const int w : {1, 2, 3}) Join(w);
  EXPECT_EQ(WorldSize(), 3);
  EXPECT_EQ(Generation(), 1u);
}

TEST_F(CoordinatorTest, WhoHasOtherDataIsRefused) {
  Start();
  data_digest_ = 6;
  Join(0);  // first, but alone
  data_digest_ = 5;
  Join(1);
  Join(2);
  ASSERT_NE(LastSent<RefusedMessage>(0), nullptr);
  EXPECT_THAT(LastSent<RefusedMessage>(0)->reason, testing::HasSubstr("n0/0 on n0 has other token files"));
  EXPECT_FALSE(LastSent<RefusedMessage>(0)->rejoin);
  EXPECT_EQ(WorldSize(), 0);
  Join(3);
  EXPECT_EQ(WorldSize(), 3);
  EXPECT_EQ(Last<event::RunStarted>().data_digest, "0000000000000005");
  data_digest_ = 6;
  Join(4);
  EXPECT_NE(LastSent<RefusedMessage>(4), nullptr);
}

TEST_F(CoordinatorTest, AChoiceOfDataThatMakesNoWorldDoesNotBind) {
  Start();
  for (const int w : {0, 1, 2}) {
    data_digest_ = static_cast<uint64_t>(6 + w);
    Join(w);
  }
  for (const int w : {1, 2}) EXPECT_NE(LastSent<RefusedMessage>(w), nullptr);
  data_digest_ = 5;
  for (const int w : {3, 4}) {
    Join(w);
    EXPECT_EQ(LastSent<RefusedMessage>(w), nullptr);
  }
  EXPECT_NE(LastSent<RefusedMessage>(0), nullptr);
  Join(5);
  EXPECT_EQ(WorldSize(), 3);
}

// Claims have no members: one of those who claim a world says who is in it, and if that one goes, another.
TEST_F(CoordinatorTest, OneOfThoseWhoClaimAWorldSaysWhoIsInIt) {
  CoordinatorOptions options = DefaultOptions();
  options.recorded_step = 5;
  options.last_generation = 3;
  Start(options);
  const World world{3, {MemberOf(0), MemberOf(1)}};
  const StateClaim claim{{3, {}}, 5, 0, {}};
  Join(0, claim);
  ASSERT_NE(LastSent<AskWorldMessage>(0), nullptr);
  EXPECT_EQ(LastSent<AskWorldMessage>(0)->generation, 3u);
  Join(1, claim);
  Pass(milliseconds(100), {0, 1});
  EXPECT_EQ(LastSent<AskWorldMessage>(1), nullptr);
  Say(1, KnownWorldMessage{{3, {MemberOf(1)}}});  // nobody has asked
  Event(DisconnectEvent{Connection(0), "stream broken"});
  Pass(milliseconds(100), {1});
  EXPECT_EQ(WorldSize(), 0);
  ASSERT_NE(LastSent<AskWorldMessage>(1), nullptr);
  Join(0, claim);
  Say(1, KnownWorldMessage{world});
  Pass(milliseconds(500), {0, 1});
  EXPECT_EQ(worlds_[Connection(1)].source, world);
  EXPECT_EQ(worlds_[Connection(0)].committed_step, 5);
}

TEST_F(CoordinatorTest, IfThatOneIsFrozenBeforeItsFirstHeartbeatAnotherIsAsked) {
  CoordinatorOptions options = DefaultOptions();
  options.recorded_step = 5;
  options.last_generation = 3;
  Start(options);
  const StateClaim claim{{3, {}}, 5, 0, {}};
  Join(0, claim);
  ASSERT_NE(LastSent<AskWorldMessage>(0), nullptr);
  for (const int w : {1, 2}) Join(w, claim);
  Pass(milliseconds(options.elastic.heartbeat_timeout_ms + 200), {1, 2});
  ASSERT_NE(LastSent<AskWorldMessage>(1), nullptr);
  Say(1, KnownWorldMessage{{3, {MemberOf(0), MemberOf(1), MemberOf(2)}}});
  Pass(milliseconds(500), {1, 2});
  EXPECT_EQ(WorldSize(), 2);
}

TEST_F(CoordinatorTest, ThoseWhoHoldTheStateKnowWhichDataItIs) {
  const World old{7, {MemberOf(0), MemberOf(1)}};
  CoordinatorOptions options = DefaultOptions();
  options.last_generation = 7;
  options.recorded_step = 5;
  Start(options);
  data_digest_ = 6;
  for (const int w : {2, 3, 4}) Join(w);
  data_digest_ = 5;
  for (const int w : {0, 1}) Join(w, {old, 5, 0, {}});
  for (const int w : {2, 3, 4}) EXPECT_NE(LastSent<RefusedMessage>(w), nullptr);
  EXPECT_EQ(WorldSize(), 2);
  EXPECT_EQ(worlds_[Connection(0)].committed_step, 5);
}

TEST_F(CoordinatorTest, TheCheckpointKnowsWhichDataItIs) {
  CoordinatorOptions options = DefaultOptions();
  options.workers_are_new = true;
  options.recorded_step = 5;
  options.checkpoints = {{"five", 5, /*data_digest=*/5}};
  Start(options);
  data_digest_ = 6;
  for (const int w : {0, 1}) Join(w);
  data_digest_ = 5;
  Join(2);
  for (const int w : {0, 1}) EXPECT_NE(LastSent<RefusedMessage>(w), nullptr);
  for (const int w : {3, 4}) Join(w);
  EXPECT_EQ(WorldSize(), 3);
  EXPECT_EQ(Count<event::DataChanged>(), 0);
}

TEST_F(CoordinatorTest, AfterARestartAStopWaitsForTheStateAsTheRunWould) {
  const World old{7, {MemberOf(0), MemberOf(1)}};
  CoordinatorOptions options = DefaultOptions();
  options.last_generation = 7;
  options.recorded_step = 29;
  Start(options);
  Event(StopEvent{15});
  Pass(milliseconds(1000), {});
  EXPECT_FALSE(ended_.has_value());
  for (const int w : {0, 1}) Join(w, {old, 29, 0, {}});
  ASSERT_EQ(WorldSize(), 2);
  EXPECT_EQ(worlds_[Connection(0)].purpose, Purpose::kStop);
  for (const int w : {0, 1}) Say(w, FinishedMessage{Generation()});
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ended_->exit_code, 143);
}

TEST_F(CoordinatorTest, AStopThatNobodyComesBackForSaysThatNothingWasSaved) {
  CoordinatorOptions options = DefaultOptions();
  options.recorded_step = 29;
  Start(options);
  Event(StopEvent{15});
  Pass(milliseconds(10'500), {});
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ended_->exit_code, 1);
  EXPECT_THAT(ended_->reason, testing::HasSubstr("no worker reconnected with the state of step 29"));
  EXPECT_TRUE(rewinds_.empty());
}

TEST_F(CoordinatorTest, AStopWaitsForHoldersWhoseConnectionsHaveJustBroken) {
  StartTraining({0, 1, 2});
  const World old = worlds_[Connection(0)].world;
  for (const int w : {0, 1, 2}) Event(DisconnectEvent{Connection(w), "stream broken"});
  Event(StopEvent{15});
  EXPECT_FALSE(ended_.has_value());
  for (const int w : {0, 1, 2}) Join(w, {old, 1, 0, {}});
  Pass(milliseconds(500), {0, 1, 2});
  EXPECT_EQ(worlds_[Connection(0)].purpose, Purpose::kStop);
}

TEST_F(CoordinatorTest, EveryHolderThatComesBackGivesTheOthersMoreTime) {
  const World old{7, {MemberOf(0), MemberOf(2), MemberOf(4)}};
  CoordinatorOptions options = DefaultOptions();
  options.parallel.mirrors = 0;
  options.last_generation = 7;
  options.recorded_step = 5;
  options.had_checkpoint = true;
  Start(options);
  Join(0, {old, 5, 0, {}});
  Pass(milliseconds(8000), {0});
  Join(2, {old, 5, 0, {}});
  Pass(milliseconds(8000), {0, 2});  // a rack that is slow to come back
  EXPECT_FALSE(ended_.has_value());
  Join(4, {old, 5, 0, {}});
  Pass(milliseconds(500), {0, 2, 4});
  EXPECT_EQ(WorldSize(), 3);
}

// What the holder said meanwhile lies in the queue behind the tick.
TEST_F(CoordinatorTest, ACoordinatorThatWasFrozenDoesNotGiveUpStateForThat) {
  CoordinatorOptions options = DefaultOptions();
  options.parallel.mirrors = 0;
  StartTraining({0, 1, 2}, options);
  const World old = worlds_[Connection(2)].world;
  Event(DisconnectEvent{Connection(2), "stream broken"});
  EXPECT_EQ(Count<event::StateMissing>(), 1);
  now_ += milliseconds(options.elastic.lost_state_timeout_ms);
  Event(TickEvent{});
  EXPECT_FALSE(ended_.has_value());
  Join(2, {old, 1, 0, {}});
  Pass(milliseconds(500), {0, 1, 2});
  EXPECT_EQ(WorldSize(), 3);
}

// Neither one that comes back again and again nor newcomers.
TEST_F(CoordinatorTest, LostStateIsNotWaitedForForEver) {
  const World old{7, {MemberOf(0), MemberOf(2), MemberOf(4)}};
  CoordinatorOptions options = DefaultOptions();
  options.parallel.mirrors = 0;
  options.last_generation = 7;
  options.recorded_step = 5;
  options.had_checkpoint = true;
  Start(options);
  for (int second = 0; second < 13 && !ended_.has_value(); ++second) {
    Join(0, {old, 5, 0, {}});
    Join(5, {}, First(5) + (static_cast<uint64_t>(second + 1) << 40));
    Pass(milliseconds(1000), {0, 5});
  }
  ASSERT_TRUE(ended_.has_value());
  EXPECT_THAT(ended_->reason, testing::HasSubstr("the state of step 5 is lost"));
}

TEST_F(CoordinatorTest, WhoFailsAloneIsNotRemovedWithWhatNobodyElseHolds) {
  StartTraining({0, 1, 2}, WithoutMirrors());
  for (int world = 1; world <= 5; ++world) {
    Say(0, FailureMessage{Generation(), 2, Phase::kData, "no file handles", {}, false});
    Pass(milliseconds(3100), {0, 1, 2});
  }
  EXPECT_EQ(WorldSize(), 3);
  Commit({0, 1, 2});
  EXPECT_EQ(Committed(), 2);
}

// Left over of a run whose coordinator had this address and this secret before.
TEST_F(CoordinatorTest, WhoIsOfAnotherRunIsRefusedAndKeepsItsState) {
  CoordinatorOptions options = DefaultOptions();
  options.run = 0x7a;
  options.run_name = "second";
  Start(options);
  const auto agent_of = [](uint64_t run) {
    return AgentHelloMessage{"n0", "h", /*pid=*/1, 2, /*instance=*/run + 1, run};
  };
  Event(MessageEvent{90, agent_of(6)});
  ASSERT_EQ(sent_[90].size(), 1u);
  const RefusedMessage agent = std::get<RefusedMessage>(sent_[90].back());
  EXPECT_EQ(agent.reason, "the coordinator leads run second (7a), and the agent of node n0 on h is of another run (6)");
  EXPECT_TRUE(agent.other_run);
  Event(MessageEvent{91, agent_of(0)});
  EXPECT_EQ(std::get<WelcomeMessage>(sent_[91].back()).run, 0x7au) << "the name of the node is free";
  EXPECT_EQ(Count<event::AgentJoined>(), 1);

  const auto join = [&](int worker, const StateClaim& claim, uint64_t generation, uint64_t run) {
    Say(worker, JoinMessage{MemberOf(worker), claim, {.config = 42}, generation, run});
  };
  join(0, {{5, {MemberOf(0)}}, 9, 0, {}}, 5, 6);
  ASSERT_NE(LastSent<RefusedMessage>(0), nullptr);
  EXPECT_TRUE(LastSent<RefusedMessage>(0)->other_run);
  EXPECT_EQ(Count<event::WorkerJoined>(), 0);
  ASSERT_EQ(Count<event::WorkerRefused>(), 1);
  EXPECT_EQ(Last<event::WorkerRefused>().cause, "is of another run (6) than this one (7a)");
  for (const int w : {0, 1, 2}) join(w, {}, 0, w == 0 ? 0x7a : 0);
  join(3, {{5, {MemberOf(3)}}, 9, 0, {}}, 5, 8);
  EXPECT_EQ(Count<event::WorkerRefused>(), 1) << "nothing waits for it";
  EXPECT_EQ(WorldSize(), 3);
  EXPECT_EQ(Generation(), 1u) << "those of another run do not count";
}

// Its world may be long in coming: it is a spare, or too few have joined.
TEST_F(CoordinatorTest, AWorkerIsToldWhoseItIsBeforeThereIsAWorld) {
  CoordinatorOptions options = DefaultOptions();
  options.run = 7;
  Start(options);
  Say(0, JoinMessage{MemberOf(0), {}, {.config = 42}});
  ASSERT_NE(LastSent<WelcomeMessage>(0), nullptr);
  EXPECT_EQ(LastSent<WelcomeMessage>(0)->run, 7u);
}

TEST_F(CoordinatorTest, WhoIsOfAnotherRunIsNotToldThatThisOneHasEnded) {
  CoordinatorOptions options = DefaultOptions();
  options.recorded_step = options.total_steps;
  options.finished = true;
  options.run = 7;
  Start(options);
  for (const uint64_t run : {6, 7}) {
    Event(MessageEvent{90 + run, AgentHelloMessage{"n0", "h", 1, 2, 1, run}});
    ASSERT_EQ(sent_[90 + run].size(), 1u);
    EXPECT_EQ(std::holds_alternative<EndMessage>(sent_[90 + run].back()), run == 7);
  }
}

TEST_F(CoordinatorTest, GenerationIsPersistedBeforeAnybodyHearsOfIt) {
  CoordinatorOptions options = DefaultOptions();
  options.last_generation = 9;
  StartWith({0, 1, 2}, options);
  EXPECT_EQ(Generation(), 10u);
  bool persisted = false, told = false;
  for (const CoordinatorAction& action : actions_) {
    if (const auto* persist = std::get_if<PersistAction>(&action)) persisted = persist->generation == 10;
    const auto* send = std::get_if<SendToAllAction>(&action);
    if (send == nullptr || !std::holds_alternative<WorldMessage>(send->message)) continue;
    EXPECT_TRUE(persisted);
    told = true;
  }
  EXPECT_TRUE(persisted && told);
}

TEST_F(CoordinatorTest, AfterTheJoinTimeoutFewerWorkersDo) {
  CoordinatorOptions options = DefaultOptions();
  options.elastic.join_timeout_ms = 2000;
  options.elastic.min_workers = 2;
  Start(options);
  Join(0);
  Pass(milliseconds(3000), {0});
  EXPECT_EQ(WorldSize(), 0);
  EXPECT_EQ(coordinator_->Status(now_).detail, "1 of at least 2 workers joined");
  Join(1);
  Pass(milliseconds(200), {0, 1});
  EXPECT_EQ(WorldSize(), 2);
}

TEST_F(CoordinatorTest, CommitNeedsAllVotesAndIsRecordedFirst) {
  StartWith({0, 1, 2});
  Say(0, Vote(1, 1));
  Say(1, Vote(1, 1));
  Say(1, Vote(1, 1));  // twice
  Say(2, Vote(1, 2));  // another step
  Say(2, Vote(0, 1));  // another world
  Say(9, Vote(1, 1));  // nobody
  EXPECT_TRUE(records_.empty());
  VoteMessage last = Vote(1, 1);
  last.digests = {{5, 55}, {2, 22}};
  Say(2, last);
  ASSERT_EQ(records_.size(), 1u);
  EXPECT_EQ(records_[0].world_size, 3);
  EXPECT_EQ(records_[0].digests, (std::vector<ChunkDigest>{{2, 22}, {5, 55}}));
  EXPECT_TRUE(std::holds_alternative<RecordAction>(actions_.front()));
  for (const int w : {0, 1, 2}) ASSERT_NE(LastSent<CommitMessage>(w), nullptr);
  EXPECT_TRUE(LastSent<CommitMessage>(0)->microbatches.empty());  // the world said it
}

TEST_F(CoordinatorTest, AStepIsRecordedWithThePeakOfTheDevicesThatDidIt) {
  Start();
  for (const int w : {0, 1, 2}) {
    Member member = MemberOf(w);
    member.peak_flops = w < 2 ? 989.4e12 : 312e12;
    Say(w, JoinMessage{member, {}, 42});
  }
  Commit({0, 1, 2});
  Event(DisconnectEvent{Connection(0), "stream broken"});
  Commit({1, 2});
  ASSERT_EQ(records_.size(), 2u);
  EXPECT_EQ(records_[0].peak_flops, 2 * 989.4e12 + 312e12);
  EXPECT_EQ(records_[1].peak_flops, 989.4e12 + 312e12);
}

TEST_F(CoordinatorTest, LossOfAMemberMakesAWorldOfTheOthersAtOnce) {
  StartTraining({0, 1, 2});
  Event(DisconnectEvent{Connection(1), "stream broken"});
  EXPECT_EQ(Generation(), 2u);
  EXPECT_EQ(WorldSize(), 2);
  const WorldMessage& world = worlds_[Connection(0)];
  EXPECT_EQ(world.committed_step, 1);
  EXPECT_EQ(world.source.generation, 1u);
  EXPECT_EQ(Last<event::WorkerLost>().cause, "stream broken");
  Say(0, Vote(1, 2));  // of the old world
  Say(2, Vote(2, 2));
  EXPECT_EQ(Committed(), 1);
}

TEST_F(CoordinatorTest, NewcomersAreTakenInAfterACommitAndSettle) {
  StartTraining({0, 1, 2});
  Join(3);
  Commit({0, 1, 2});
  EXPECT_EQ(WorldSize(), 3) << "not settled yet";
  now_ += milliseconds(150);
  Commit({0, 1, 2});
  EXPECT_EQ(WorldSize(), 4);
  const auto& messages = sent_[Connection(0)];
  ASSERT_GE(messages.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<CommitMessage>(messages[messages.size() - 2]));
  EXPECT_TRUE(std::holds_alternative<WorldMessage>(messages.back()));
  Join(4);  // max_workers are there
  now_ += milliseconds(500);
  Commit({0, 1, 2, 3});
  EXPECT_EQ(WorldSize(), 4);
  Event(DisconnectEvent{Connection(3), ""});
  EXPECT_EQ(WorldSize(), 4) << "the spare takes the place";
}

TEST_F(CoordinatorTest, SilentWorkerIsNamedHungAndRemovedButMayClaimItsState) {
  StartWith({0, 1, 2});
  Pass(milliseconds(500), {0, 1, 2});
  Pass(milliseconds(2900), {0, 1});
  EXPECT_EQ(Count<event::WorkerHung>(), 0);
  Pass(milliseconds(400), {0, 1});
  ASSERT_EQ(Count<event::WorkerHung>(), 1);
  EXPECT_EQ(Last<event::WorkerHung>().worker, "n1/2");
  EXPECT_EQ(Last<event::WorkerHung>().rank, 2);
  EXPECT_EQ(Last<event::WorkerHung>().host, "n1");
  EXPECT_EQ(Last<event::WorkerHung>().phase, Phase::kForwardBackward);
  EXPECT_THAT(Last<event::WorkerLost>().cause,
              testing::MatchesRegex("hung: no heartbeat for 3\\.[0-9] s in phase forward_backward"));
  EXPECT_EQ(LastSent<RefusedMessage>(2), nullptr);
  EXPECT_EQ(closed_, std::vector<uint64_t>{Connection(2)});
  EXPECT_EQ(WorldSize(), 2);
}

// As one of thousands does at any time.
TEST_F(CoordinatorTest, WhoComesAndFailsAgainAndAgainKeepsTheOthersFromNoWorld) {
  CoordinatorOptions options = DefaultOptions();
  options.elastic.min_workers = 2;
  options.parallel.sharding = Sharding::kNoShard;
  StartTraining({0, 1, 2}, options);
  for (const int w : {1, 2}) Event(DisconnectEvent{Connection(w), "killed"});
  ASSERT_EQ(WorldSize(), 0);
  Join(1, {}, First(1) + (uint64_t{1} << 40));
  for (uint64_t i = 0; i < 200 && WorldSize() == 0; ++i) {
    Join(6, {}, First(6) + i);
    Pass(milliseconds(50), {0, 1});
    Event(DisconnectEvent{Connection(6), "killed"});
  }
  EXPECT_GE(WorldSize(), 2);
}

TEST_F(CoordinatorTest, ItsOwnAbsenceIsNotTheWorkersSilence) {
  StartWith({0, 1, 2});
  Pass(milliseconds(500), {0, 1, 2});
  now_ += std::chrono::seconds(20);
  Event(TickEvent{});
  EXPECT_EQ(Count<event::WorkerHung>(), 0);
  Pass(milliseconds(3500), {0, 1, 2});
  EXPECT_EQ(WorldSize(), 3);
}

TEST_F(CoordinatorTest, OneWithoutProgressIsRemovedNotThoseThatWaitForIt) {
  CoordinatorOptions options = DefaultOptions();
  options.elastic.progress_timeout_ms = 10'000;
  StartWith({0, 1, 2}, options);
  for (const int w : {0, 1, 2}) Say(w, RecoveredMessage{1});
  Say(0, Vote(1, 1));
  for (int i = 0; i < 120; ++i) {
    now_ += milliseconds(100);
    Say(0, HeartbeatMessage{1, 1, Phase::kVote, 1});
    Say(1, HeartbeatMessage{1, 1, Phase::kForwardBackward, 1});
    Say(2, HeartbeatMessage{1, 1, Phase::kReduce, 1});
    Event(TickEvent{});
  }
  ASSERT_EQ(Count<event::WorkerHung>(), 1);
  EXPECT_EQ(Last<event::WorkerHung>().worker, "n0/1");
  EXPECT_EQ(Count<event::NoProgress>(), 1);
}

TEST_F(CoordinatorTest, FailureWithNobodyToBlameIsTriedAgain) {
  StartWith({0, 1, 2});
  Pass(milliseconds(300), {0, 1, 2});
  Say(0, FailureMessage{1, 1, Phase::kReduce, "connection reset", {2}, false});
  EXPECT_EQ(Generation(), 1u) << "somebody may turn out to be lost";
  Pass(milliseconds(600), {0, 1, 2});
  EXPECT_EQ(Generation(), 2u);
  EXPECT_EQ(WorldSize(), 3);
}

TEST_F(CoordinatorTest, FailuresWithNobodyToBlameAreNotTriedForEver) {
  StartWith({0, 1, 2});
  for (int world = 1; world <= 100; ++world) {
    ASSERT_FALSE(ended_.has_value()) << world;
    for (const int w : {0, 1, 2}) Say(w, FailureMessage{Generation(), 1, Phase::kReduce, "no memory", {}, false});
    Pass(milliseconds(3100), {0, 1, 2});
  }
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ended_->exit_code, 1);
  EXPECT_EQ(ended_->reason, "100 consecutive worlds failed: n0/0: no memory");
}

// A member that fails after its vote does not keep the step from being committed, and so fails the next one.
TEST_F(CoordinatorTest, AllHaveToShowThatTheyLiveAfterEachFailure) {
  CoordinatorOptions options = DefaultOptions();
  options.elastic.workers = 4;
  StartTraining({0, 1, 2, 3}, options);
  const uint64_t generation = Generation();
  for (const int w : {0, 1, 3}) Say(w, Vote(generation, 2));
  Say(3, FailureMessage{generation, 3, Phase::kReduce, "connection reset", {}, false});
  Pass(milliseconds(300), {0, 1, 3});
  Say(2, Vote(generation, 2));
  EXPECT_EQ(Committed(), 2);
  Say(2, FailureMessage{generation, 3, Phase::kReduce, "connection reset", {}, false});
  Pass(milliseconds(300), {1, 2, 3});
  EXPECT_EQ(Generation(), generation) << "0 may have been lost";
  Pass(milliseconds(100), {0, 1, 2, 3});
  EXPECT_EQ(Generation(), generation + 1);
}

FailureMessage OutOfMemory(uint64_t generation, int64_t step) {
  return {.generation = generation,
          .step = step,
          .phase = Phase::kTransfer,
          .cause = "out of GPU memory",
          .suspects = {},
          .out_of_memory = true};
}

// As a model that is too large for its GPUs: the user waits for an answer.
TEST_F(CoordinatorTest, TooLittleMemoryForWhatNobodyHoldsEndsTheRunSoon) {
  StartWith({0, 1, 2});
  for (int world = 1; world <= 5; ++world) {
    ASSERT_FALSE(ended_.has_value()) << world;
    for (const int w : {0, 1, 2}) Say(w, OutOfMemory(Generation(), 1));
    Pass(milliseconds(3100), {0, 1, 2});
  }
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ended_->exit_code, 1);
  EXPECT_EQ(ended_->reason, "there is too little memory, in 5 attempts: n0/0: out of GPU memory");
}

TEST_F(CoordinatorTest, TooLittleMemoryIsCountedOnEndAndOnlyIfAllFailuresAreThat) {
  StartWith({0, 1, 2});
  for (int world = 1; world <= 12; ++world) {
    for (const int w : {0, 1, 2}) {
      FailureMessage failure = OutOfMemory(Generation(), 1);
      failure.out_of_memory = world % 4 != 0 || w != 2;
      Say(w, failure);
    }
    Pass(milliseconds(3100), {0, 1, 2});
  }
  EXPECT_FALSE(ended_.has_value());
}

TEST_F(CoordinatorTest, TooLittleMemoryIsWaitedForWhereWorkersHoldTheState) {
  StartTraining({0, 1, 2});
  for (int world = 1; world <= 20; ++world) {
    for (const int w : {0, 1, 2}) Say(w, OutOfMemory(Generation(), 2));
    Pass(milliseconds(3100), {0, 1, 2});
  }
  EXPECT_FALSE(ended_.has_value());
}

// A stop is not put off for minutes by a disk that is full.
TEST_F(CoordinatorTest, AStopThatCannotBeSavedEndsSoonAndSaysSo) {
  Start();
  Join(0);
  for (const int w : {1, 2}) Join(w);
  Commit({0, 1, 2});
  Event(StopEvent{15});
  const Instant begun = now_;
  while (!ended_.has_value() && now_ - begun < std::chrono::seconds(60)) {
    for (const int w : {0, 1, 2}) Say(w, FailureMessage{Generation(), 1, Phase::kSave, "disk full", {}, false});
    Pass(milliseconds(100), {0, 1, 2});
  }
  ASSERT_TRUE(ended_.has_value());
  EXPECT_LT(now_ - begun, std::chrono::seconds(20));
  EXPECT_EQ(ended_->exit_code, 1);
  EXPECT_THAT(ended_->reason, testing::HasSubstr("stopped by SIGTERM at step 1, but its state could not be saved"));
}

FailureMessage Damaged(uint64_t generation, int64_t step,
                       const std::string& cause = "a.bin at byte 2048: token 70000") {
  return {.generation = generation,
          .step = step,
          .phase = Phase::kForwardBackward,
          .cause = cause,
          .suspects = {},
          .bad_data = true};
}

// Nobody else can do the step: worker 0 alone has its part of the state.
TEST_F(CoordinatorTest, DataThatAreDamagedForEverybodyEndTheRun) {
  StartTraining({0, 1, 2}, WithoutMirrors());
  for (int world = 1; world <= 10; ++world) {
    ASSERT_FALSE(ended_.has_value()) << world;
    Say(0, Damaged(Generation(), 2));
    Pass(milliseconds(3100), {0, 1, 2});
  }
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ended_->exit_code, 1);
  EXPECT_EQ(ended_->reason, "the data of step 2 are damaged, in 10 attempts: n0/0: a.bin at byte 2048: token 70000");
}

// What fails in other ways, or not always, may come back.
TEST_F(CoordinatorTest, AFailureByOtherDataBeginsTheCountAgain) {
  StartTraining({0, 1, 2}, WithoutMirrors());
  const auto fail = [&](int times, const std::function<FailureMessage()>& failure) {
    for (int world = 1; world <= times; ++world) {
      Say(0, failure());
      Pass(milliseconds(3100), {0, 1, 2});
      ASSERT_FALSE(ended_.has_value()) << world;
    }
  };
  fail(9, [&] { return Damaged(Generation(), 2); });
  fail(1, [&] { return FailureMessage{Generation(), 2, Phase::kForwardBackward, "a.bin: timed out", {}, false}; });
  fail(9, [&] { return Damaged(Generation(), 2); });
  fail(9, [&] { return Damaged(Generation(), 2, "a.bin at byte 4096: token 80000"); });
  Commit({0, 1, 2});
  fail(9, [&] { return Damaged(Generation(), 3, "a.bin at byte 4096: token 80000"); });
}

// Of a copy that one host has.
TEST_F(CoordinatorTest, WhoseDataAreDamagedIsLeftOutIfOthersCanDoTheStep) {
  StartTraining({0, 1, 2});
  for (int world = 1; world <= 3; ++world) {
    Say(0, Damaged(Generation(), 2));
    Pass(milliseconds(3100), {0, 1, 2});
  }
  EXPECT_EQ(Last<event::WorkerLost>().worker, "n0/0");
  EXPECT_FALSE(ended_.has_value());
  Commit({1, 2});
  EXPECT_EQ(Committed(), 2);
}

// The others only repeat what it told them.
TEST_F(CoordinatorTest, WhoFailsFirstIsToBlameForWhatItsPeersRepeat) {
  StartTraining({0, 1, 2});
  for (int world = 1; world <= 3; ++world) {
    FailureMessage repeated{Generation(), 2, Phase::kSave, "rank 0 says: disk full", {}, false};
    repeated.secondhand = true;
    Say(1, repeated);
    Say(0, FailureMessage{Generation(), 2, Phase::kSave, "disk full", {}, false});
    Say(2, repeated);
    Pass(milliseconds(3100), {0, 1, 2});
  }
  EXPECT_EQ(Last<event::WorkerLost>().cause, "only it failed, again and again: n0/0: disk full");
}

TEST_F(CoordinatorTest, WhoeverIsBlamedInThreeWorldsOnEndHasToGo) {
  StartWith({0, 1, 2});
  for (int world = 1; world <= 3; ++world) {
    EXPECT_EQ(WorldSize(), 3);
    const uint64_t generation = Generation();
    Say(0, FailureMessage{generation, 1, Phase::kReduce, "no route", {1}, false});
    Say(2, FailureMessage{generation, 1, Phase::kReduce, "no route", {1}, false});
    Say(1, FailureMessage{generation, 1, Phase::kReduce, "no route", {0}, false});
    Pass(milliseconds(3000), {0, 1, 2});
    EXPECT_GT(Generation(), generation);
  }
  EXPECT_EQ(WorldSize(), 2);
  EXPECT_EQ(Last<event::WorkerLost>().worker, "n0/1");
  EXPECT_EQ(Last<event::WorkerLost>().cause, "its peers failed to communicate with it: n0/0: no route");
}

// Of the last world one report comes before the coordinator is frozen. The others lie in the queue behind a tick.
TEST_F(CoordinatorTest, NobodyIsBlamedBeforeItHasReadWhatCameWhileItWasFrozen) {
  StartWith({0, 1, 2});
  for (int world = 1; world <= 3; ++world) {
    const uint64_t generation = Generation();
    Say(0, FailureMessage{generation, 1, Phase::kReduce, "no route", {1}, false});
    if (world == 3) {
      now_ += std::chrono::seconds(20);
      Event(TickEvent{});
      EXPECT_EQ(Generation(), generation);
    }
    for (const int w : {1, 2}) Say(w, FailureMessage{generation, 1, Phase::kReduce, "no route", {0}, false});
    Pass(milliseconds(3000), {0, 1, 2});
  }
  EXPECT_EQ(Count<event::WorkerLost>(), 1);
  EXPECT_EQ(Last<event::WorkerLost>().worker, "n0/0");
}

// It was frozen, not the one whose address it has not read yet.
TEST_F(CoordinatorTest, NobodyIsBlamedForAnAddressThatItHadNoTimeToRead) {
  StartWith({0, 1, 2});
  for (int world = 1; world <= 3; ++world) {
    for (const int w : {0, 2}) Say(w, RendezvousMessage{Generation(), "address"});
    now_ += std::chrono::seconds(120);
    Event(TickEvent{});
    for (const int w : {0, 2}) Say(w, FailureMessage{Generation(), 1, Phase::kRendezvous, "deadline", {}, false});
    Pass(milliseconds(3100), {0, 1, 2});
  }
  EXPECT_EQ(Count<event::WorkerLost>(), 0);
}

TEST_F(CoordinatorTest, FatalFailureEndsTheRunWithItsCause) {
  StartWith({0, 1, 2});
  Say(1, FailureMessage{1, 1, Phase::kData, "the loss is not finite", {}, true});
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ended_->exit_code, 1);
  EXPECT_EQ(ended_->reason, "n0/1: the loss is not finite");
  for (const int w : {0, 1, 2}) EXPECT_EQ(LastSent<EndMessage>(w)->exit_code, 1);
}

// Each of thousands would be told of each of thousands.
TEST_F(CoordinatorTest, WhatAllAreToldOfTheEndIsShort) {
  StartWith({0, 1, 2});
  Say(1, FailureMessage{1, 1, Phase::kData, std::string(2 * kMaxTextBytes, 'x'), {}, true});
  EXPECT_EQ(LastSent<EndMessage>(0)->reason, absl::StrCat("n0/1: ", std::string(kMaxTextBytes - 6, 'x')));
  EXPECT_EQ(Last<event::RunFailed>().reason, absl::StrCat("n0/1: ", std::string(kMaxTextBytes, 'x')));
}

TEST_F(CoordinatorTest, MinorityWithOtherBitsIsNamedAndRemoved) {
  StartTraining({0, 1, 2});
  VoteWithOtherOf1(&VoteMessage::grad_norm_bits, 2);
  EXPECT_EQ(Committed(), 1);
  EXPECT_EQ(Last<event::BitsDiffer>().workers, "n0/1");
  ASSERT_NE(LastSent<RefusedMessage>(1), nullptr);
  EXPECT_EQ(WorldSize(), 2);
}

// It could not be told to give up its state.
TEST_F(CoordinatorTest, AMinorityWhoseStreamHasJustEndedDoesNotBringItsStateBack) {
  StartTraining({0, 1, 2});
  AgentComes(90, "n0", 2);
  const StateClaim claim{worlds_.at(Connection(1)).world, 1, 0, {}};
  VoteMessage other = Vote(1, 2);
  other.grad_norm_bits ^= 1;
  Say(0, Vote(1, 2));
  Say(1, other);
  Event(DisconnectEvent{Connection(1), "reset"});
  ASSERT_EQ(WorldSize(), 3) << "its agent is about to say why";
  Say(2, Vote(1, 2));
  EXPECT_EQ(Last<event::BitsDiffer>().workers, "n0/1");
  ASSERT_EQ(LastSent<RefusedMessage>(1), nullptr);
  Join(1, claim);
  ASSERT_NE(LastSent<RefusedMessage>(1), nullptr);
  EXPECT_TRUE(LastSent<RefusedMessage>(1)->rejoin);
  EXPECT_EQ(Count<event::WorkerJoined>(), 3);
  Join(1, {}, First(1) + 1);
  EXPECT_EQ(Count<event::WorkerJoined>(), 4) << "without it, it is taken in";
}

// One fault may be a passing one, and without that worker the run would end.
TEST_F(CoordinatorTest, WithoutACheckpointAMinorityThatAloneHoldsStateIsAskedAgain) {
  StartTraining({0, 1, 2}, WithoutMirrors());
  VoteWithOtherOf1(&VoteMessage::grad_norm_bits, 2);
  EXPECT_FALSE(Last<event::BitsDiffer>().majority);
  EXPECT_EQ(Count<event::WorkerLost>(), 0);
  ASSERT_EQ(WorldSize(), 3);
  Commit({0, 1, 2});
  ASSERT_EQ(Committed(), 2) << "they agree now";
}

TEST_F(CoordinatorTest, AMinorityThatAloneHoldsStateIsNotAskedForEver) {
  StartTraining({0, 1, 2}, WithoutMirrors());
  for (int attempt = 1; attempt <= 3; ++attempt) {
    ASSERT_FALSE(ended_.has_value());
    VoteWithOtherOf1(&VoteMessage::grad_norm_bits, 2);
    Pass(milliseconds(50), {0, 1, 2});
  }
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ended_->exit_code, 1);
  EXPECT_NE(ended_->reason.find("3 attempts (n0/1)"), std::string::npos) << ended_->reason;
}

TEST_F(CoordinatorTest, WhoJoinsAgainBeforeItsConnectionIsClosedIsNotHeard) {
  StartTraining({0, 1, 2});
  closes_at_once_ = false;
  VoteWithOtherOf1(&VoteMessage::grad_norm_bits, 2);
  ASSERT_NE(LastSent<RefusedMessage>(1), nullptr);
  Join(1, {}, 77);  // as soon as it hears that
  Event(DisconnectEvent{Connection(1), "closed by the coordinator"});
  EXPECT_EQ(Count<event::WorkerLost>(), 1);
  EXPECT_EQ(Count<event::WorkerJoined>(), 3);
  Join(1, {}, 77);
  EXPECT_EQ(Count<event::WorkerJoined>(), 4);
}

TEST_F(CoordinatorTest, WithoutMajorityTheStepIsRedoneAndAtLastGivenUp) {
  CoordinatorOptions options = DefaultOptions();
  options.elastic.workers = 2;
  Start(options);
  Join(0);
  Join(1);
  for (int attempt = 1; attempt <= 3; ++attempt) {
    EXPECT_FALSE(ended_.has_value());
    VoteMessage other = Vote(Generation(), 1);
    other.loss_bits ^= 1;
    Say(0, Vote(Generation(), 1));
    Say(1, other);
    Pass(milliseconds(50), {0, 1});
  }
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ended_->exit_code, 1);
}

TEST_F(CoordinatorTest, NewerProcessReplacesTheOldWhichIsThenRefused) {
  StartWith({0, 1, 2});
  Event(MessageEvent{50, JoinMessage{MemberOf(1, 777), {}, 42}});
  EXPECT_EQ(closed_, std::vector<uint64_t>{Connection(1)});
  Pass(milliseconds(50), {0, 2});
  EXPECT_EQ(worlds_[50].world.members[1].id.incarnation, 777u);
  Event(MessageEvent{51, JoinMessage{MemberOf(1), {}, 42}});  // the old one wakes up
  ASSERT_TRUE(std::holds_alternative<RefusedMessage>(sent_[51].back()));
  EXPECT_FALSE(std::get<RefusedMessage>(sent_[51].back()).rejoin);
  EXPECT_EQ(WorldSize(), 3);
}

TEST_F(CoordinatorTest, OtherConfigurationIsRefusedForGood) {
  Start();
  Say(0, JoinMessage{MemberOf(0), {}, 43});
  ASSERT_NE(LastSent<RefusedMessage>(0), nullptr);
  EXPECT_FALSE(LastSent<RefusedMessage>(0)->rejoin);
  EXPECT_TRUE(coordinator_->Status(now_).workers.empty());
}

// Such a worker keeps its state and asks again, and nothing else would say why the run stands still.
TEST_F(CoordinatorTest, WhoHoldsStateAndIsRefusedIsReportedOnce) {
  CoordinatorOptions options = DefaultOptions();
  options.recorded_step = 5;
  options.last_generation = 3;
  options.digests.keys = {{"optimizer.lr", 1}};
  Start(options);
  const StateClaim claim{{3, {MemberOf(0), MemberOf(1)}}, 5, 0, {}};
  RunDigests others = options.digests;
  others.config = 43;
  others.keys = {{"optimizer.lr", 2}};
  Say(2, JoinMessage{MemberOf(2), {}, others});
  EXPECT_EQ(Count<event::WorkerRefused>(), 0) << "it ends, which its agent reports";
  for (const int w : {0, 1, 0}) Say(w, JoinMessage{MemberOf(w), claim, others});
  EXPECT_EQ(Count<event::WorkerRefused>(), 1);
  EXPECT_EQ(Last<event::WorkerRefused>().worker, "n0/0");
  EXPECT_THAT(Last<event::WorkerRefused>().cause,
              testing::HasSubstr("another configuration than this run (optimizer.lr)"));
  Join(3);
  Say(0, JoinMessage{MemberOf(0), claim, others});
  EXPECT_EQ(Count<event::WorkerRefused>(), 2);
}

TEST_F(CoordinatorTest, OtherArithmeticKernelsAndBuildsAreRefusedByName) {
  const RunDigests run{.config = 42,
                       .data = 0,
                       .arithmetic = "portable",
                       .kernels = 7,
                       .build = "b1",
                       .keys = {{"optimizer.lr", 1}, {"run.seed", 2}, {"train.steps", 3}}};
  CoordinatorOptions options = DefaultOptions();
  options.digests = run;
  Start(options);
  const auto refusal = [&](const RunDigests& joins) {
    Say(0, JoinMessage{MemberOf(0), {}, joins});
    const RefusedMessage* refused = LastSent<RefusedMessage>(0);
    return refused == nullptr ? "" : refused->reason;
  };
  RunDigests other = run;
  other.arithmetic = "avx512_bf16";
  EXPECT_THAT(refusal(other), testing::AllOf(testing::HasSubstr("worker n0/0"), testing::HasSubstr("avx512_bf16"),
                                             testing::HasSubstr("portable")));
  other = run;
  other.kernels = 8;
  EXPECT_THAT(refusal(other), testing::HasSubstr("other bits"));
  other = run;
  other.build = "b2";
  EXPECT_THAT(refusal(other), testing::AllOf(testing::HasSubstr("b1"), testing::HasSubstr("b2")));
  other = run;
  other.config = 43;
  other.keys["optimizer.lr"] = other.keys["train.steps"] = 9;
  EXPECT_THAT(refusal(other),
              testing::HasSubstr("another configuration than this run (optimizer.lr, train.steps): start it"));
  other.keys.clear();
  EXPECT_THAT(refusal(other), testing::HasSubstr("another configuration than this run: start it"));
  other.config = run.config;
  other.keys = run.keys;
  other.build = "b2";
  EXPECT_TRUE(coordinator_->Status(now_).workers.empty());
  other = run;
  other.kernels = 0;  // not known to one of both
  sent_.clear();
  EXPECT_EQ(refusal(other), "");
  EXPECT_EQ(coordinator_->Status(now_).workers.size(), 1u);
}

TEST_F(CoordinatorTest, GpusOfOneRunComputeTheSame) {
  Start();  // on a host without a GPU
  const auto join = [&](int w, const std::string& gpu) {
    sent_.clear();
    Say(w, JoinMessage{MemberOf(w), {}, {.config = 42, .arithmetic = gpu, .kernels = gpu == "A100" ? 5u : 6u}});
    const RefusedMessage* refused = LastSent<RefusedMessage>(w);
    return refused == nullptr ? "" : refused->reason;
  };
  const auto is_refused =
      testing::AllOf(testing::HasSubstr("n0/0 on n0 computes on A100"), testing::HasSubstr("this run on H100"),
                     testing::HasSubstr("GPUs of one model"));
  EXPECT_EQ(join(0, "A100"), "");  // first, but alone
  EXPECT_EQ(join(1, "H100"), "");
  EXPECT_EQ(join(2, "H100"), "");
  ASSERT_NE(LastSent<RefusedMessage>(0), nullptr);
  EXPECT_THAT(LastSent<RefusedMessage>(0)->reason, is_refused);
  EXPECT_EQ(WorldSize(), 0);
  EXPECT_EQ(join(3, "H100"), "");
  EXPECT_EQ(WorldSize(), 3);
  EXPECT_THAT(join(0, "A100"), is_refused);
  for (const int w : {1, 2, 3}) Event(DisconnectEvent{Connection(w), "closed"});
  Pass(std::chrono::seconds(20), {});
  EXPECT_EQ(join(0, "A100"), "") << "those that come when all have gone may go on";
}

TEST_F(CoordinatorTest, TwoAgentsOfOneNameAreToldApartByTheirHosts) {
  Start();
  const auto join = [&](const std::string& host, int64_t pid, uint64_t incarnation) {
    Member member = MemberOf(0, incarnation);
    member.host = host;
    member.pid = pid;
    Say(0, JoinMessage{member, {}, {.config = 42}});
  };
  join("h1", 11, uint64_t{1} << 40);
  join("h2", 22, uint64_t{1} << 41);
  sent_.clear();
  join("h1", 11, (uint64_t{1} << 40) + 1);
  const RefusedMessage* refused = LastSent<RefusedMessage>(0);
  ASSERT_NE(refused, nullptr);
  EXPECT_EQ(
      refused->reason,
      "another process (on h2, pid 22) has taken the place of this worker n0/0 on h1; two agents may not have one "
      "--node name");
}

TEST_F(CoordinatorTest, StaleStateIsRefusedAndTheSameIncarnationMayNotComeBackWithout) {
  StartTraining({0, 1, 2});
  const World first = worlds_[Connection(0)].world;
  Event(DisconnectEvent{Connection(2), ""});
  Pass(milliseconds(50), {0, 1});
  Join(2, {first, 1, 2, first});  // current, and ready for a step that never was
  EXPECT_EQ(LastSent<RefusedMessage>(2), nullptr);
  Event(DisconnectEvent{Connection(2), ""});
  Commit({0, 1});
  Join(2, {first, 1, 0, {}});
  ASSERT_NE(LastSent<RefusedMessage>(2), nullptr);
  EXPECT_TRUE(LastSent<RefusedMessage>(2)->rejoin);
  Join(2, {}, First(2) + 1);
  EXPECT_EQ(coordinator_->Status(now_).workers.size(), 3u);
}

TEST_F(CoordinatorTest, HolderOfLostStateIsWaitedForThenTheRunFails) {
  StartTraining({0, 1, 2}, WithoutMirrors());
  const World first = worlds_[Connection(0)].world;
  Event(DisconnectEvent{Connection(2), ""});
  EXPECT_EQ(WorldSize(), 0);
  EXPECT_EQ(Last<event::StateMissing>().holders, "n1/2 on n1");
  Pass(milliseconds(2000), {0, 1});
  Join(2, {first, 1, 0, {}});
  Pass(milliseconds(200), {0, 1, 2});
  EXPECT_EQ(WorldSize(), 3) << "it came back with its state";
  Event(DisconnectEvent{Connection(1), ""});
  Pass(milliseconds(10'500), {0, 2});
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ended_->exit_code, 1);
  EXPECT_EQ(Last<event::StateLost>().holders, "n0/1 on n0");
}

TEST_F(CoordinatorTest, BeforeTheFirstCommitNothingCanBeLost) {
  StartWith({0, 1, 2}, WithoutMirrors());
  Event(DisconnectEvent{Connection(2), ""});
  EXPECT_EQ(WorldSize(), 2);
  EXPECT_EQ(worlds_[Connection(0)].source.generation, 0u);
}

TEST_F(CoordinatorTest, WorkerThatKeepsFailingIsQuarantined) {
  StartWith({0, 1, 2});
  uint64_t incarnation = First(2);
  for (int i = 0; i < 3; ++i) {
    Event(DisconnectEvent{Connection(2), ""});
    Pass(milliseconds(200), {0, 1});
    Commit({0, 1});
    Join(2, {}, incarnation += uint64_t{1} << 40);
    now_ += milliseconds(150);
    Commit({0, 1});
  }
  EXPECT_EQ(Count<event::Quarantined>(), 1);
  EXPECT_EQ(WorldSize(), 2);
  Pass(milliseconds(2500), {0, 1, 2});
  Commit({0, 1});
  EXPECT_EQ(WorldSize(), 3);
}

TEST_F(CoordinatorTest, WhoHasOtherBitsAgainAndAgainIsKeptOutUntilItIsStartedAgain) {
  StartTraining({0, 1, 2});
  uint64_t incarnation = First(1);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(WorldSize(), 3);
    EXPECT_EQ(Count<event::KeptOut>(), 0);
    VoteWithOtherOf1(&VoteMessage::grad_norm_bits, Committed() + 1);
    Join(1, {}, ++incarnation);
    Pass(milliseconds(200), {0, 1, 2});
    Commit({0, 2});
  }
  EXPECT_EQ(Count<event::KeptOut>(), 1);
  EXPECT_EQ(Last<event::KeptOut>().worker, "n0/1");
  EXPECT_EQ(Last<event::KeptOut>().host, "n0");
  EXPECT_EQ(Count<event::Quarantined>(), 0) << "it is said once";
  Pass(std::chrono::minutes(3), {0, 1, 2});
  Commit({0, 2});
  EXPECT_EQ(WorldSize(), 2);
  Join(1, {}, First(1) + (uint64_t{1} << 30));  // another process
  Pass(milliseconds(200), {0, 1, 2});
  Commit({0, 2});
  EXPECT_EQ(WorldSize(), 3);
}

TEST_F(CoordinatorTest, RunEndsWhenAllHaveFinished) {
  CoordinatorOptions options = DefaultOptions();
  options.total_steps = 1;
  StartWith({0, 1, 2}, options);
  for (const int w : {0, 1, 2}) Say(w, FinishedMessage{1});  // too early
  EXPECT_FALSE(ended_.has_value());
  Commit({0, 1, 2});
  EXPECT_EQ(coordinator_->Status(now_).committed_step, 1);
  Say(0, ValidationMessage{1, 1, 2.5});
  Say(0, FinishedMessage{1});
  Say(1, FinishedMessage{1});
  EXPECT_FALSE(ended_.has_value());
  Say(2, FinishedMessage{1});
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ended_->exit_code, 0);
  EXPECT_EQ(Last<event::Validation>().loss, 2.5);
  Join(5);
  EXPECT_NE(LastSent<EndMessage>(5), nullptr);
}

TEST_F(CoordinatorTest, StopSavesInAWorldOfItsOwn) {
  StartTraining({0, 1, 2});
  Say(1, StopRequestMessage{15});
  EXPECT_EQ(worlds_[Connection(0)].purpose, Purpose::kStop);
  Commit({0, 1, 2});
  EXPECT_EQ(Committed(), 1) << "no step is done any more";
  for (const int w : {0, 1, 2}) Say(w, FinishedMessage{2});
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ended_->exit_code, 143);
  EXPECT_EQ(Count<event::RunStopped>(), 1);
}

TEST_F(CoordinatorTest, ARunEndsEarlyWhenItsValidationLossDoesNotFall) {
  CoordinatorOptions options = EndingEarly({.patience = 1});
  StartTraining({0, 1, 2}, options);
  EXPECT_EQ(records_.back().validation, std::nullopt);
  Say(0, ValidationMessage{Generation(), 1, 0.5});
  Commit({0, 1, 2});
  EXPECT_EQ(records_.back().validation, (ValidationResult{1, 0.5}));
  EXPECT_EQ(worlds_[Connection(0)].purpose, Purpose::kTrain);
  Say(0, ValidationMessage{Generation(), 2, 0.5});
  EXPECT_EQ(worlds_[Connection(0)].purpose, Purpose::kStop);
  EXPECT_EQ(Last<event::EarlyStop>().step, 2);
  EXPECT_EQ(Last<event::EarlyStop>().best_step, 1);
  Commit({0, 1, 2});
  EXPECT_EQ(Committed(), 2) << "no step is done any more";
  Event(DisconnectEvent{Connection(0), "stream broken"});
  Pass(milliseconds(3000), {1, 2});
  EXPECT_EQ(WorldSize(), 2);
  EXPECT_EQ(worlds_[Connection(1)].purpose, Purpose::kStop) << "nor after a loss";
  for (const int w : {1, 2}) Say(w, FinishedMessage{Generation()});
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ended_->exit_code, 0);
  EXPECT_EQ(Last<event::RunFinished>().reason,
            absl::StrCat("ended early, at step 2 of ", options.total_steps,
                         ": the validation loss was lowest at step 1 (0.5000), of which there is no checkpoint"));
  EXPECT_EQ(Count<event::EarlyStop>(), 1);
}

TEST_F(CoordinatorTest, ARunThatEndsEarlyNamesItsLowestLossAndTheLastFall) {
  CoordinatorOptions options = EndingEarly({.patience = 1, .min_delta = 0.5});
  StartTraining({0, 1, 2}, options);
  Say(0, ValidationMessage{Generation(), 1, 0.75});
  Commit({0, 1, 2});
  Say(0, ValidationMessage{Generation(), 2, 0.5});
  EXPECT_EQ(Last<event::EarlyStop>().best_step, 2);
  EXPECT_EQ(Last<event::EarlyStop>().fall_step, 1);
  for (const int w : {0, 1, 2}) Say(w, FinishedMessage{Generation()});
  EXPECT_EQ(Last<event::RunFinished>().reason,
            absl::StrCat("ended early, at step 2 of ", options.total_steps,
                         ": the validation loss was lowest at step 2 (0.5000), of which there is no checkpoint; since "
                         "step 1 (0.7500) it has not fallen by more than train.early_stop_min_delta"));
}

// The coordinator that knew why the loss of step 3 ends the run is gone.
TEST_F(CoordinatorTest, ValidationsThatAreRecordedCountAfterARestart) {
  CoordinatorOptions options = EndingEarly({.patience = 2});
  StartTraining({0, 1, 2}, options);
  Say(0, ValidationMessage{Generation(), 1, 0.5});
  Commit({0, 1, 2});
  Say(0, ValidationMessage{Generation(), 2, 0.75});
  Commit({0, 1, 2});
  std::vector<ValidationResult> recorded;
  for (const RecordAction& record : records_) {
    if (record.validation.has_value()) recorded.push_back(*record.validation);
  }
  options.validations = recorded;
  EXPECT_EQ(recorded.size(), 2u);
  options.recorded_step = 3;
  options.workers_are_new = true;
  options.checkpoints = {{"three", 3, 0, 1}};
  options.last_generation = 1;
  StartWith({0, 1, 2}, options);
  EXPECT_EQ(worlds_[Connection(0)].purpose, Purpose::kTrain);
  Say(0, ValidationMessage{Generation(), 3, 0.6});
  EXPECT_EQ(worlds_[Connection(0)].purpose, Purpose::kStop);
  EXPECT_EQ(Last<event::EarlyStop>().best_step, 1);
}

// It would stand in the way of all true ones, and of the memory of them there would be no end.
TEST_F(CoordinatorTest, AValidationOfAStepThatWasNotDoneIsPassedOver) {
  StartTraining({0, 1, 2}, EndingEarly({.patience = 1}));
  for (const int64_t step : {int64_t{-1}, int64_t{0}, int64_t{2}, int64_t{1} << 60}) {
    Say(0, ValidationMessage{Generation(), step, 0.25});
  }
  EXPECT_EQ(Count<event::Validation>(), 0);
  Say(0, ValidationMessage{Generation(), 1, 0.5});
  EXPECT_EQ(Last<event::Validation>().step, 1);
  Commit({0, 1, 2});
  EXPECT_EQ(records_.back().validation, (ValidationResult{1, 0.5}));
}

// Values beyond the range of fp32 make such gradients, and then for ever.
TEST_F(CoordinatorTest, AGradientOfZeroIsToldOnce) {
  StartTraining({0, 1, 2});
  const auto commit = [&](float loss, float grad_norm) {
    VoteMessage vote = Vote(Generation(), Committed() + 1);
    vote.loss_bits = std::bit_cast<uint32_t>(loss);
    vote.grad_norm_bits = std::bit_cast<uint32_t>(grad_norm);
    for (const int w : {0, 1, 2}) Say(w, vote);
  };
  commit(3.5, 0.25);
  commit(0, 0);  // no token is learned
  EXPECT_EQ(Count<event::NoGradient>(), 0);
  commit(3.5, 0);
  EXPECT_EQ(Last<event::NoGradient>().step, 4);
  EXPECT_EQ(Last<event::NoGradient>().loss, 3.5);
  commit(3.5, 0);
  EXPECT_EQ(Committed(), 5);
  EXPECT_EQ(Count<event::NoGradient>(), 1);
}

// Each waits for its agent to say why, and for each all others and all agents were looked at: it took minutes.
TEST_F(CoordinatorTest, ThousandsOfWorkersAreLostAtOnce) {
  constexpr int kWorkers = 4096;
  CoordinatorOptions options = DefaultOptions();
  options.elastic.workers = options.elastic.max_workers = kWorkers + 1;
  Start(options);
  for (int w = 0; w < kWorkers; ++w) Join(w);
  for (int w = 0; w < kWorkers; w += 2) {
    Event(MessageEvent{Connection(kWorkers + w), AgentHelloMessage{MemberOf(w).node, "h", 1, 2}});
  }
  for (int w = 0; w < kWorkers; ++w) coordinator_->OnEvent(now_, DisconnectEvent{Connection(w), "reset"});
  Pass(std::chrono::seconds(1), {});
  EXPECT_EQ(Count<event::WorkerLost>(), kWorkers);
}

// Its connection broke, and a newcomer has taken the last place.
TEST_F(CoordinatorTest, WhoHoldsStateComesBackToARunThatIsFull) {
  CoordinatorOptions options = DefaultOptions();
  options.elastic.max_workers = 3;
  options.parallel.mirrors = 0;
  Start(options);
  closes_at_once_ = false;
  for (const int w : {0, 1, 2}) Join(w);
  Commit({0, 1, 2});
  const StateClaim claim{worlds_.at(Connection(0)).world, 1, 0, {}};
  constexpr int kMost = kMaxWorkers;
  for (int w = 3; w < kMost; ++w) Join(w);
  Event(DisconnectEvent{Connection(0), "reset"});
  Join(kMost);
  EXPECT_EQ(LastSent<RefusedMessage>(kMost), nullptr);
  Join(0, claim);
  EXPECT_EQ(LastSent<RefusedMessage>(0), nullptr) << "it would forget its state";
  EXPECT_NE(LastSent<RefusedMessage>(kMost), nullptr);
  Join(kMost + 1);
  EXPECT_NE(LastSent<RefusedMessage>(kMost + 1), nullptr);
  // The next one has gone itself.
  Event(DisconnectEvent{Connection(kMost - 1), "reset"});
  Join(kMost + 2);
  Event(DisconnectEvent{Connection(1), "reset"});
  Join(kMost + 3);
  Join(1, claim);
  EXPECT_EQ(LastSent<RefusedMessage>(1), nullptr);
  EXPECT_NE(LastSent<RefusedMessage>(kMost - 2), nullptr);
  Pass(std::chrono::seconds(2), {0, 1, 2});
  EXPECT_EQ(WorldSize(), 3);
  EXPECT_EQ(Committed(), 1);
}

TEST_F(CoordinatorTest, SpeaksAboveTheGenerationsThatWorkersOfAnOverwrittenRunHaveSeen) {
  Start();
  for (const int w : {0, 1, 2}) Say(w, JoinMessage{MemberOf(w), {}, {.config = 42}, /*generation=*/70});
  EXPECT_EQ(Generation(), 71u);
  const World old{90, {MemberOf(3)}};
  Say(3, JoinMessage{MemberOf(3), {old, 5, 0, {}}, {.config = 42}, /*generation=*/90});
  EXPECT_TRUE(LastSent<RefusedMessage>(3)->rejoin);
  Event(DisconnectEvent{Connection(0), ""});
  EXPECT_GT(Generation(), 90u) << "it will join again, and ignore worlds up to that";
}

TEST_F(CoordinatorTest, ARunThatIsDoneTellsThoseWhoHaveNotHeardOfIt) {
  CoordinatorOptions options = DefaultOptions();
  options.recorded_step = options.total_steps;
  options.finished = true;
  Start(options);
  Event(TickEvent{});
  now_ += std::chrono::seconds(20);  // it is frozen
  Event(TickEvent{});
  EXPECT_FALSE(ended_.has_value()) << "who asked meanwhile has no answer";
  Join(0, {{7, {MemberOf(0)}}, options.total_steps, 0, {}});
  AgentComes(9, "n0", 2);
  ASSERT_NE(LastSent<EndMessage>(0), nullptr);
  EXPECT_EQ(LastSent<EndMessage>(0)->exit_code, 0);
  ASSERT_NE(LastSent<EndMessage>(8), nullptr);
  EXPECT_FALSE(ended_.has_value());
  Pass(milliseconds(10'500), {});
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ended_->exit_code, 0);
}

TEST_F(CoordinatorTest, WhatCannotBeCarriedOutEndsTheRunForEverybody) {
  StartWith({0, 1, 2});
  Event(GiveUpEvent{"metrics.jsonl: no permission"});
  for (const int w : {0, 1, 2}) EXPECT_EQ(LastSent<EndMessage>(w)->exit_code, 1);
  EXPECT_EQ(ended_->reason, "metrics.jsonl: no permission");
}

TEST_F(CoordinatorTest, AWorkerThatIsBackTakesItsOldSeatAndNobodyElseFetchesAnything) {
  CoordinatorOptions options = DefaultOptions();
  options.elastic.workers = 4;
  options.elastic.max_workers = 4;
  StartWith({0, 1, 2, 3}, options);
  ASSERT_EQ(WorldSize(), 4);
  Commit({0, 1, 2, 3});
  const World first = worlds_[Connection(0)].world;
  EXPECT_TRUE(first.placement.empty());
  Event(DisconnectEvent{Connection(1), "killed"});
  const World without = worlds_[Connection(0)].world;
  ASSERT_EQ(without.size(), 3);
  const Placement before = PlacementOf(first, options.parallel), smaller = PlacementOf(without, options.parallel);
  EXPECT_LE(smaller.MovedFrom(before, std::vector<int>{0, -1, 1, 2}) * 4, 3 * smaller.num_cells());
  Commit({0, 2, 3});
  now_ += milliseconds(500);
  Join(1, {}, First(1) + (uint64_t{1} << 20));
  Pass(milliseconds(200), {0, 1, 2, 3});
  Commit({0, 2, 3});
  const World again = worlds_[Connection(0)].world;
  ASSERT_EQ(again.size(), 4);
  EXPECT_NE(again.members[1].id, first.members[1].id);
  const Placement after = PlacementOf(again, options.parallel);
  EXPECT_EQ(after, before);
  EXPECT_EQ(after.MovedFrom(smaller, std::vector<int>{0, 2, 3}), std::ssize(HeldCells(before)[1]));
}

// One that was cut off may still claim to the next coordinator what it computed of it before.
TEST_F(CoordinatorTest, AStepAboutWhichVotesDifferedCountsOnlyWhereItWasDoneAgain) {
  CoordinatorOptions options = DefaultOptions();
  options.elastic.workers = 2;
  StartTraining({0, 1}, options);
  const World differed = worlds_[Connection(0)].world;
  VoteMessage other = Vote(differed.generation, 2);
  other.loss_bits ^= 1;
  Say(0, Vote(differed.generation, 2));
  Say(1, other);
  ASSERT_GT(Generation(), differed.generation);
  Commit({0, 1});
  ASSERT_EQ(Committed(), 2);
  options.recorded_step = 2;
  options.last_generation = Generation();
  options.branch = branch_;
  StartWith({0}, options);
  Join(1, {.world = differed, .committed_step = 1, .prepared_step = 2, .prepared_world = {}});
  Pass(std::chrono::seconds(5), {0, 1});
  EXPECT_EQ(WorldSize(), 0) << "nobody has the state of step 2 as it was committed";
}

VoteMessage WithCopy(VoteMessage vote, uint64_t digest) {
  vote.copies = {{7, digest}};
  return vote;
}

TEST_F(CoordinatorTest, AMinoritysCopyIsGivenUpBeforeTheStepIsCommitted) {
  StartWith({0, 1, 2});
  const uint64_t generation = Generation();
  for (const int w : {0, 1, 2}) {  // all agree about step 1, so nothing was computed with a wrong copy
    VoteMessage vote = Vote(generation, 1);
    if (w == 0) vote.digests = {{7, 69}};
    Say(w, vote);
  }
  Say(0, WithCopy(Vote(generation, 2), 70));
  Say(1, WithCopy(Vote(generation, 2), 71));
  Say(2, WithCopy(Vote(generation, 2), 70));
  EXPECT_EQ(Committed(), 1);
  EXPECT_EQ(Last<event::CopiesDiffer>().workers, "n0/1 on n0");
  ASSERT_NE(LastSent<RefusedMessage>(1), nullptr);
  EXPECT_TRUE(LastSent<RefusedMessage>(1)->rejoin);
  EXPECT_EQ(WorldSize(), 2);
  EXPECT_EQ(worlds_[Connection(0)].source.generation, generation);
}

// One that is only a mirror is read by nobody, and one that was right after the last committed step was not used yet.
TEST_F(CoordinatorTest, StepsThatMayHaveBeenComputedWithAMinoritysCopyAreDoneAgain) {
  for (const auto& [only_mirrored, steps, rewinds] :
       {std::tuple{false, 1, true}, {true, 1, false}, {false, 0, false}}) {
    StartWith({0, 1, 2}, After({{"step-5", 5, 0, 3}, {"step-2", 2, 0, 2}}));
    for (int i = 0; i < steps; ++i) Commit({0, 1, 2});
    const uint64_t generation = Generation();
    for (const int w : {0, 1, 2}) {
      VoteMessage vote = WithCopy(Vote(generation, 6 + steps), w == 1 ? 71 : 70);
      if (w == 1 && only_mirrored) std::swap(vote.copies, vote.mirrors);
      Say(w, vote);
    }
    EXPECT_EQ(Last<event::CopiesDiffer>().workers, "n0/1 on n0");
    EXPECT_EQ(Last<event::CopiesDiffer>().computed_with, rewinds);
    ASSERT_NE(LastSent<RefusedMessage>(1), nullptr);
    EXPECT_TRUE(LastSent<RefusedMessage>(1)->rejoin);
    ASSERT_EQ(WorldSize(), 2);
    const int64_t step = rewinds ? 5 : 5 + steps;
    EXPECT_EQ(worlds_[Connection(0)].committed_step, step);
    EXPECT_EQ(worlds_[Connection(0)].checkpoint, step == 5 ? "step-5" : "");
  }
}

// Of a wrong copy two may have been made since all agreed, which outvote the right one.
TEST_F(CoordinatorTest, AMirrorIsOutvotedOnlyByCopiesThatWereComparedInTheSameWorld) {
  for (const bool agreed_again : {false, true}) {
    SCOPED_TRACE(agreed_again);
    StartWith({0, 1, 2}, After({{"step-5", 5, 0, 3}}));
    Commit({0, 1, 2});
    Event(DisconnectEvent{Connection(2), "killed"});
    Join(2, {}, First(2) + (uint64_t{1} << 20));
    Pass(milliseconds(200), {0, 1, 2});
    if (WorldSize() == 2) Commit({0, 1});
    Pass(milliseconds(200), {0, 1, 2});
    ASSERT_EQ(WorldSize(), 3);
    for (const int w : {0, 1, 2}) {
      VoteMessage vote = Vote(Generation(), Committed() + 1);
      if (agreed_again && w == 0) vote.digests = {{7, 70}};
      if (agreed_again && w != 0) vote.mirrors = {{7, 70}};
      Say(w, vote);
    }
    const int64_t before = Committed();
    const uint64_t generation = Generation();
    for (const int w : {0, 1, 2}) {
      VoteMessage vote = WithCopy(Vote(generation, before + 1), w == 1 ? 71 : 70);
      if (w == 1) std::swap(vote.copies, vote.mirrors);
      Say(w, vote);
    }
    EXPECT_EQ(Last<event::CopiesDiffer>().workers, "n0/1 on n0");
    EXPECT_EQ(Last<event::CopiesDiffer>().computed_with, !agreed_again);
    EXPECT_EQ(worlds_[Connection(0)].committed_step, agreed_again ? before : 5);
  }
}

// Also if no step was committed since: the next one would be computed with them.
TEST_F(CoordinatorTest, CopiesMadeRightAfterAllAgreedOutvoteNobodyForGoodEither) {
  StartWith({0, 1, 2}, After({{"step-5", 5, 0, 3}}));
  Join(3);
  Pass(milliseconds(200), {0, 1, 2, 3});
  for (const int w : {0, 1, 2}) {
    VoteMessage vote = Vote(Generation(), 6);
    (w == 0 ? vote.digests : vote.mirrors) = {{7, 70}};
    Say(w, vote);
  }
  ASSERT_EQ(Committed(), 6);
  ASSERT_EQ(WorldSize(), 4);
  const uint64_t generation = Generation();
  for (const int w : {0, 1, 2, 3}) {
    VoteMessage vote = w == 2 ? Vote(generation, 7) : WithCopy(Vote(generation, 7), w == 1 ? 71 : 70);
    if (w == 1) std::swap(vote.copies, vote.mirrors);
    Say(w, vote);
  }
  EXPECT_EQ(Last<event::CopiesDiffer>().workers, "n0/1 on n0");
  EXPECT_TRUE(Last<event::CopiesDiffer>().computed_with);
  EXPECT_EQ(worlds_[Connection(0)].checkpoint, "step-5");
}

TEST_F(CoordinatorTest, ACoordinatorThatIsStartedAgainDoesNotKnowInWhichWorldAllAgreed) {
  CoordinatorOptions options = DefaultOptions();
  options.checkpoint.directory = "somewhere";
  options.checkpoints = {{"step-1", 1, 0, 1}};
  StartTraining({0, 1, 2}, options);
  const StateClaim claim{worlds_[Connection(0)].world, 1, 0, {}};
  options.recorded_step = options.agreed_step = 1;
  options.last_generation = Generation();
  StartWith({}, options);
  for (const int w : {0, 1, 2}) Join(w, claim);
  ASSERT_EQ(WorldSize(), 3);
  Commit({0, 1, 2});
  const uint64_t generation = Generation();
  for (const int w : {0, 1, 2}) {
    VoteMessage vote = WithCopy(Vote(generation, 3), w == 1 ? 71 : 70);
    if (w == 1) std::swap(vote.copies, vote.mirrors);
    Say(w, vote);
  }
  EXPECT_TRUE(Last<event::CopiesDiffer>().computed_with);
  EXPECT_EQ(worlds_[Connection(0)].checkpoint, "step-1");
}

TEST_F(CoordinatorTest, OfTwoCopiesNobodyKnowsWhichIsRightAndTheRunGoesBackToWhereAllAgreed) {
  StartWith({0, 1, 2}, After({{"step-5", 5, 0, 3}, {"step-2", 2, 0, 2}}));
  ASSERT_EQ(WorldSize(), 3);
  ASSERT_EQ(worlds_[Connection(0)].checkpoint, "step-5");
  const auto differ = [&] {
    const uint64_t generation = Generation();
    const int64_t step = coordinator_->Status(now_).committed_step + 1;
    Say(0, WithCopy(Vote(generation, step), 70));
    Say(1, WithCopy(Vote(generation, step), 71));
    Say(2, Vote(generation, step));
  };
  Commit({0, 1, 2});  // step 6, and a checkpoint of it, about which nobody was asked
  Event(
      CheckpointsTidiedEvent{.warning = "", .usable = {{"step-6", 6, 0, 4}, {"step-5", 5, 0, 3}, {"step-2", 2, 0, 2}}});
  ASSERT_EQ(Committed(), 6);
  differ();
  EXPECT_EQ(Last<event::CopiesDiffer>().workers, "n0/0 on n0, n0/1 on n0");
  EXPECT_EQ(Count<event::Rewind>(), 1);
  ASSERT_EQ(WorldSize(), 3);
  EXPECT_EQ(worlds_[Connection(0)].checkpoint, "step-5");
  EXPECT_EQ(worlds_[Connection(0)].source.generation, 0u);
  EXPECT_EQ(worlds_[Connection(0)].committed_step, 5);
}

TEST_F(CoordinatorTest, TwoCopiesThatDifferAgainAndAgainEndTheRun) {
  StartWith({0, 1, 2}, After({{"step-5", 5, 0, 3}}));
  const auto differ = [&] {
    const int64_t step = Committed() + 1;
    Say(0, WithCopy(Vote(Generation(), step), 70));
    Say(1, WithCopy(Vote(Generation(), step), 71));
    Say(2, Vote(Generation(), step));
  };
  for (const int64_t step : {7, 7, 9, 9, 9}) {  // a fault that passes, and one that does not
    while (Committed() + 1 < step) Commit({0, 1, 2});
    ASSERT_FALSE(ended_.has_value());
    ASSERT_EQ(WorldSize(), 3);
    differ();
  }
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ended_->exit_code, 1);
  EXPECT_THAT(ended_->reason, testing::HasSubstr("two copies of the state of step 9 differ, in 3 attempts"));
  EXPECT_THAT(ended_->reason, testing::HasSubstr("n0/0 on n0, n0/1 on n0"));
}

// Until the next one is written, nobody says anew which checkpoints there are.
TEST_F(CoordinatorTest, ACheckpointThatWasGivenUpForADoubtIsNotGoneBackToLater) {
  CoordinatorOptions options = DefaultOptions();
  options.checkpoint.directory = "somewhere";
  options.checkpoint.every_steps = 100;
  options.parallel.mirrors = 0;
  options.checkpoints = {{"step-5", 5, 0, 1}, {"step-2", 2, 0, 1}};
  options.recorded_step = 5;
  options.last_generation = 1;
  options.workers_are_new = true;
  StartTraining({0, 1, 2}, options);
  Event(CheckpointsTidiedEvent{.warning = "",
                               .usable = {{"step-6", 6, 0, Generation()}, {"step-5", 5, 0, 1}, {"step-2", 2, 0, 1}}});
  Say(0, WithCopy(Vote(Generation(), 7), 70));
  Say(1, WithCopy(Vote(Generation(), 7), 71));
  Say(2, Vote(Generation(), 7));
  ASSERT_EQ(Committed(), 5);
  for (int i = 0; i < 2; ++i) Commit({0, 1, 2});
  ASSERT_EQ(Committed(), 7);
  Event(DisconnectEvent{Connection(1), "killed"});
  Pass(std::chrono::seconds(11), {0, 2});
  EXPECT_EQ(rewinds_.back(), 5);
  EXPECT_EQ(worlds_[Connection(0)].checkpoint, "step-5") << "6 may have been written from the wrong copy";
  EXPECT_EQ(worlds_[Connection(0)].committed_step, 5);
}

TEST_F(CoordinatorTest, WhatAllAgreedAboutIsKnownAfterARestart) {
  StartWith({0, 1, 2});
  for (int i = 0; i < 7; ++i) Commit({0, 1, 2});
  const World old = worlds_[Connection(0)].world;
  CoordinatorOptions options = DefaultOptions();
  options.checkpoint.directory = "somewhere";
  options.checkpoints = {{"step-6", 6, 0, 1}, {"step-4", 4, 0, 1}};
  options.recorded_step = 7;
  options.agreed_step = 5;
  options.last_generation = Generation();
  Start(options);
  for (const int w : {0, 1, 2}) Join(w, {.world = old, .committed_step = 7, .prepared_world = {}});
  ASSERT_EQ(WorldSize(), 3);
  Say(0, WithCopy(Vote(Generation(), 8), 70));
  Say(1, WithCopy(Vote(Generation(), 8), 71));
  Say(2, Vote(Generation(), 8));
  EXPECT_FALSE(ended_.has_value());
  ASSERT_EQ(WorldSize(), 3);
  EXPECT_EQ(worlds_[Connection(0)].checkpoint, "step-4") << "6 may have been written from the wrong copy";
}

// All agree about step 0 too, which follows from the config.
TEST_F(CoordinatorTest, BeforeTheFirstCheckpointARunGoesBackToItsBeginning) {
  for (const bool majority : {true, false}) {
    SCOPED_TRACE(majority);
    StartTraining({0, 1, 2});
    Commit({0, 1, 2});
    const uint64_t generation = Generation();
    Say(0, WithCopy(Vote(generation, 3), 70));
    Say(1, WithCopy(Vote(generation, 3), 71));
    Say(2, majority ? WithCopy(Vote(generation, 3), 70) : Vote(generation, 3));
    EXPECT_EQ(Last<event::CopiesDiffer>().computed_with, majority);
    ASSERT_EQ(Count<event::Rewind>(), majority ? 1 : 2);
    EXPECT_EQ(Last<event::Rewind>().from_step, 2);
    EXPECT_EQ(Last<event::Rewind>().step, 0);
    EXPECT_EQ(Last<event::Rewind>().name, "");
    EXPECT_EQ(rewinds_.back(), 0);
    EXPECT_FALSE(branch_before_rewind_.Includes(generation, 1)) << "the record is cut before that is stored";
    ASSERT_FALSE(ended_.has_value());
    ASSERT_EQ(WorldSize(), majority ? 2 : 3);
    EXPECT_EQ(worlds_[Connection(0)].committed_step, 0);
    EXPECT_EQ(worlds_[Connection(0)].source.generation, 0u);
    EXPECT_EQ(worlds_[Connection(0)].checkpoint, "");
    Commit(majority ? std::vector{0, 2} : std::vector{0, 1, 2});
    EXPECT_EQ(Committed(), 1);
  }
}

TEST_F(CoordinatorTest, TwoCopiesThatDifferAgainAndAgainEndARunWithoutCheckpoints) {
  StartTraining({0, 1, 2});
  for (int attempt = 1; attempt <= 3; ++attempt) {
    ASSERT_FALSE(ended_.has_value());
    const int64_t step = Committed() + 1;
    Say(0, WithCopy(Vote(Generation(), step), 70));
    Say(1, WithCopy(Vote(Generation(), step), 71));
    Say(2, Vote(Generation(), step));
  }
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ended_->exit_code, 1);
  EXPECT_THAT(ended_->reason, testing::HasSubstr("in 3 attempts"));
  EXPECT_THAT(ended_->reason, testing::HasSubstr("n0/0 on n0, n0/1 on n0"));
}

// Its steps may have been begun with another config, of which its checkpoints tell.
TEST_F(CoordinatorTest, ARunThatHasHadCheckpointsDoesNotGoBackToItsBeginning) {
  StartTraining({0, 1, 2});
  for (int i = 0; i < 4; ++i) Commit({0, 1, 2});
  const StateClaim claim{worlds_[Connection(0)].world, 5, 0, {}};
  CoordinatorOptions options = DefaultOptions();
  options.checkpoint.directory = "somewhere";
  options.recorded_step = 5;
  options.last_generation = Generation();
  for (const bool is_there : {true, false}) {
    for (const bool majority : {true, false}) {
      SCOPED_TRACE(testing::Message() << is_there << " " << majority);
      options.checkpoints.clear();
      if (is_there) options.checkpoints = {{"step-4", 4, 0, 1}};
      options.had_checkpoint = !is_there;
      ended_.reset();
      StartWith({}, options);
      for (const int w : {0, 1, 2}) Join(w, claim);
      ASSERT_EQ(WorldSize(), 3);
      const uint64_t generation = Generation();
      Say(0, WithCopy(Vote(generation, 6), 70));
      Say(1, WithCopy(Vote(generation, 6), 71));
      Say(2, majority ? WithCopy(Vote(generation, 6), 70) : Vote(generation, 6));
      EXPECT_EQ(Count<event::Rewind>(), 0);
      EXPECT_EQ(Committed(), 5);
      ASSERT_EQ(ended_.has_value(), !majority);
      if (majority) continue;
      EXPECT_EQ(ended_->exit_code, 1);
      EXPECT_THAT(ended_->reason, testing::HasSubstr("n0/0 on n0, n0/1 on n0"));
    }
  }
}

TEST_F(CoordinatorTest, AClaimWithAPlacementThatMakesNoSenseIsRefused) {
  Start();
  const World world{.generation = 3, .members = {MemberOf(0), MemberOf(1)}, .placement = {256, 0, 4, 7, 6}};
  Join(0, {world, 4, 0, {}});
  ASSERT_NE(LastSent<RefusedMessage>(0), nullptr);
  EXPECT_FALSE(LastSent<RefusedMessage>(0)->rejoin);
}

// One mirror: what n0/0 and n0/1 hold is with n1/2 and with each other.
TEST_F(CoordinatorTest, StateThatHasBeenMovedIsNotLostWithThoseItCameFrom) {
  CoordinatorOptions options = DefaultOptions();
  options.elastic.max_workers = 4;
  StartTraining({0, 1, 2}, options);
  Event(DisconnectEvent{Connection(0), "killed"});
  const World entered = worlds_[Connection(1)].world;
  ASSERT_EQ(entered.size(), 2);
  for (const int w : {1, 2}) Say(w, RecoveredMessage{.generation = entered.generation});
  Event(DisconnectEvent{Connection(2), "killed"});  // before a step is done there
  EXPECT_EQ(Count<event::StateMissing>(), 0);
  ASSERT_EQ(WorldSize(), 1);
  EXPECT_EQ(worlds_[Connection(1)].source, entered);
  EXPECT_EQ(worlds_[Connection(1)].committed_step, 1);
}

// Steps begin before mirrors are there; until they are, their world is no source, and everybody is told so.
TEST_F(CoordinatorTest, AWorldWhoseMirrorsAreMissingIsNoSourceUntilTheyAreThere) {
  for (const bool complete : {false, true}) {
    events_.clear();
    StartTraining({0, 1, 2});
    Event(DisconnectEvent{Connection(0), "killed"});
    const World entered = worlds_[Connection(1)].world;
    Say(1, MirroredMessage{entered.generation});  // it may be quicker than the others
    for (const int w : {1, 2}) Say(w, RecoveredMessage{.generation = entered.generation, .mirror_bytes = 100});
    EXPECT_EQ(Count<event::MirrorsMissing>(), 1);
    EXPECT_EQ(Count<event::MirrorsComplete>(), 0);
    EXPECT_THAT(coordinator_->Status(now_).detail, testing::HasSubstr("mirrors incomplete"));
    if (complete) {
      Say(2, MirroredMessage{entered.generation});
      EXPECT_EQ(Count<event::MirrorsComplete>(), 1);
      EXPECT_EQ(coordinator_->Status(now_).detail, "");
    }
    Event(DisconnectEvent{Connection(2), "killed"});
    EXPECT_EQ(Count<event::StateMissing>(), complete ? 0 : 1);
    EXPECT_EQ(WorldSize(), complete ? 1 : 0);
  }
}

TEST_F(CoordinatorTest, StateThatIsStillOnItsWayIsLostWithThoseItComesFrom) {
  StartTraining({0, 1, 2});
  Event(DisconnectEvent{Connection(0), "killed"});
  Say(1, RecoveredMessage{.generation = Generation()});
  Event(DisconnectEvent{Connection(2), "killed"});
  EXPECT_EQ(Count<event::StateMissing>(), 1);
}

TEST_F(CoordinatorTest, StopBeforeThereIsStateEndsAtOnce) {
  Start();
  Join(0);
  Event(StopEvent{2});
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ended_->exit_code, 130);
}

TEST_F(CoordinatorTest, RestartFindsTheStateInTheWorldThatPreparedTheRecordedStep) {
  // Step 5 was recorded in generation 8, which had just taken in worker 2; nobody heard of the commit.
  World old{7, {MemberOf(0), MemberOf(1)}}, last{8, {MemberOf(0), MemberOf(1), MemberOf(2)}};
  CoordinatorOptions options = DefaultOptions();
  options.last_generation = 3;  // even if what was persisted should be lost
  options.recorded_step = 5;
  Start(options);
  Join(0, {old, 4, 5, last});
  EXPECT_EQ(WorldSize(), 0);
  EXPECT_EQ(coordinator_->Status(now_).state, RunState::kRecovering);
  Join(1, {old, 4, 5, last});
  Join(2, {{}, 0, 5, last});
  ASSERT_EQ(WorldSize(), 3);
  EXPECT_EQ(Generation(), 9u);
  EXPECT_EQ(worlds_[Connection(2)].source, last);
  EXPECT_EQ(worlds_[Connection(2)].committed_step, 5);
}

TEST_F(CoordinatorTest, RestartTakesTheOldWorldIfTheStepWasNotRecorded) {
  World old{7, {MemberOf(0), MemberOf(1)}}, last{8, {MemberOf(0), MemberOf(1), MemberOf(2)}};
  CoordinatorOptions options = DefaultOptions();
  options.last_generation = 8;
  options.recorded_step = 4;
  options.parallel.mirrors = 0;
  Start(options);
  Join(0, {old, 4, 5, last});
  Join(1, {old, 4, 5, last});  // worker 2 died with the coordinator
  Pass(milliseconds(200), {0, 1});
  ASSERT_EQ(WorldSize(), 2);
  EXPECT_EQ(worlds_[Connection(0)].source, old);
  EXPECT_EQ(worlds_[Connection(0)].committed_step, 4);
}

TEST_F(CoordinatorTest, RestartFailsIfNobodyComesBackWithState) {
  CoordinatorOptions options = DefaultOptions();
  options.had_checkpoint = true;
  options.recorded_step = 5;
  StartWith({0, 1, 2}, options);
  Pass(milliseconds(9000), {0, 1, 2});
  EXPECT_FALSE(ended_.has_value());
  Pass(milliseconds(2000), {0, 1, 2});
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ended_->exit_code, 1);
}

TEST_F(CoordinatorTest, StragglerIsReportedOnceAndMicrobatchesMoveAway) {
  CoordinatorOptions options = DefaultOptions();
  options.elastic.rebalance = true;
  options.microbatches = 12;
  StartWith({0, 1, 2}, options);
  std::vector<int64_t> split = worlds_[Connection(0)].microbatches;
  int said = 0;
  for (int64_t step = 1; step <= 40; ++step) {
    for (const int w : {0, 1, 2}) {
      VoteMessage vote = Vote(1, step);
      vote.microbatches = split[static_cast<size_t>(w)];
      vote.compute_seconds = 0.01 * static_cast<double>(vote.microbatches) * (w == 1 ? 2.5 : 1);
      Say(w, vote);
    }
    const std::vector<int64_t>& change = LastSent<CommitMessage>(0)->microbatches;
    if (!change.empty()) split = change, ++said;
  }
  EXPECT_EQ(said, 1);
  EXPECT_EQ(Count<event::Straggler>(), 1);
  EXPECT_EQ(Last<event::Straggler>().worker, "n0/1");
  EXPECT_EQ(Count<event::Rebalanced>(), 1);
  EXPECT_EQ(split, (std::vector<int64_t>{5, 2, 5}));
}

TEST_F(CoordinatorTest, ExitSeenByTheAgentRemovesTheWorkerAtOnce) {
  Start();
  AgentComes(90, "n0", 2);
  for (const int w : {0, 1, 2}) Join(w);
  Event(MessageEvent{90, WorkerExitMessage{{"n0/1", First(1) + (uint64_t{1} << 50)}, "another process", true}});
  AgentComes(91, "n1");
  Event(MessageEvent{91, WorkerExitMessage{{"n0/1", First(1)}, "one of another node", true}});
  EXPECT_EQ(WorldSize(), 3);
  Event(MessageEvent{90, WorkerExitMessage{{"n0/1", First(1)}, "killed by signal 9 (Killed)", true}});
  EXPECT_EQ(WorldSize(), 2);
  EXPECT_EQ(Last<event::WorkerLost>().cause, "killed by signal 9 (Killed)");
}

// One death, one cause: the stream's end comes first, and does not say why.
TEST_F(CoordinatorTest, AnEndedStreamIsExplainedByTheAgent) {
  Start();
  AgentComes(90, "n0", 2);
  for (const int w : {0, 1, 2}) Join(w);
  Event(DisconnectEvent{Connection(1), "the stream was closed by the peer"});
  Event(DisconnectEvent{Connection(2), "the stream was closed by the peer"});
  EXPECT_EQ(Count<event::WorkerLost>(), 1) << "of a node without an agent nobody says more";
  EXPECT_EQ(WorldSize(), 0) << "no world is made with one that is about to be removed";
  Event(MessageEvent{90, WorkerExitMessage{{"n0/1", First(1)}, "killed by signal 9 (Killed)", true}});
  EXPECT_EQ(Count<event::WorkerLost>(), 2);
  EXPECT_EQ(Last<event::WorkerLost>().cause, "killed by signal 9 (Killed)");
  EXPECT_EQ(WorldSize(), 1);
  EXPECT_EQ(Count<event::WorldPublished>(), 2);
  EXPECT_TRUE(closed_.empty()) << "its stream has ended already";
}

TEST_F(CoordinatorTest, AnEndedStreamIsEnoughWhereTheAgentSaysNothing) {
  Start();
  AgentComes(90, "n0", 2);
  for (const int w : {0, 1, 2}) Join(w);
  Event(DisconnectEvent{Connection(1), "the connection was lost"});
  Pass(milliseconds(400), {0, 2});
  EXPECT_EQ(WorldSize(), 3);
  Pass(milliseconds(200), {0, 2});
  EXPECT_EQ(WorldSize(), 2);
  EXPECT_EQ(Last<event::WorkerLost>().cause, "the connection was lost");
  Event(DisconnectEvent{Connection(0), "the connection was lost"});
  EXPECT_EQ(WorldSize(), 2);
  Event(DisconnectEvent{90, "the connection was lost"});  // its host is gone
  EXPECT_EQ(WorldSize(), 1);
}

TEST_F(CoordinatorTest, WhatAnAgentSaidWhileTheCoordinatorWasFrozenIsTheCause) {
  Start();
  AgentComes(90, "n0", 2);
  for (const int w : {0, 1, 2}) Join(w);
  Event(DisconnectEvent{Connection(1), "the connection was lost"});
  now_ += std::chrono::seconds(20);
  Event(TickEvent{});
  Event(MessageEvent{90, WorkerExitMessage{{"n0/1", First(1)}, "killed by signal 9 (Killed)", true}});
  ASSERT_EQ(Count<event::WorkerLost>(), 1);
  EXPECT_EQ(Last<event::WorkerLost>().cause, "killed by signal 9 (Killed)");
}

TEST_F(CoordinatorTest, AnAgentThatGoesIsSilentAboutItsOwnWorkersOnly) {
  Start();
  AgentComes(90, "n0", 2);
  AgentComes(91, "n1");
  for (const int w : {0, 1, 2}) Join(w);
  for (const int w : {0, 1, 2}) Event(DisconnectEvent{Connection(w), "the connection was lost"});
  EXPECT_EQ(Count<event::WorkerLost>(), 0);
  Event(DisconnectEvent{90, "the connection was lost"});
  EXPECT_EQ(Count<event::WorkerLost>(), 2);
  Event(MessageEvent{91, WorkerExitMessage{{"n1/2", First(2)}, "killed by signal 9 (Killed)", true}});
  EXPECT_EQ(Count<event::WorkerLost>(), 3);
  EXPECT_EQ(Last<event::WorkerLost>().cause, "killed by signal 9 (Killed)");
}

TEST_F(CoordinatorTest, AWorkerThatConnectsAnewIsNotWaitedFor) {
  Start();
  AgentComes(90, "n0", 2);
  for (const int w : {0, 1, 2}) Join(w);
  Event(DisconnectEvent{Connection(1), "the connection was lost"});
  Event(MessageEvent{91, JoinMessage{MemberOf(1), {}, {.config = 42}}});
  EXPECT_EQ(Last<event::WorkerLost>().cause, "connected anew");
  EXPECT_EQ(WorldSize(), 3);
  EXPECT_EQ(Count<event::WorldPublished>(), 2);
}

TEST_F(CoordinatorTest, OfTwoAgentsOfOneNameTheSecondIsRefused) {
  Start();
  Event(MessageEvent{90, AgentHelloMessage{"n0", "h1", /*pid=*/7, 2, /*instance=*/1}});
  Event(MessageEvent{91, AgentHelloMessage{"n0", "h2", /*pid=*/7, 2, /*instance=*/2}});
  ASSERT_NE(LastSent<RefusedMessage>(90), nullptr);
  EXPECT_THAT(LastSent<RefusedMessage>(90)->reason, testing::HasSubstr("on h1 (pid 7)"));
  EXPECT_EQ(closed_, std::vector<uint64_t>{91});
  const auto refused = Last<event::AgentRefused>();
  EXPECT_EQ(std::tuple(refused.node, refused.host, refused.other_host, refused.other_pid),
            std::tuple("n0", "h2", "h1", 7));
  Event(MessageEvent{92, AgentHelloMessage{"n0", "h1", /*pid=*/7, 2, /*instance=*/3}});
  EXPECT_EQ(Count<event::AgentRefused>(), 2) << "also of one host and pid, as in containers";
  Event(MessageEvent{93, AgentHelloMessage{"n0", "h1", /*pid=*/7, 2, /*instance=*/1}});
  Event(MessageEvent{94, AgentHelloMessage{"n1", "h1", /*pid=*/9, 2, /*instance=*/4}});
  EXPECT_EQ(Count<event::AgentRefused>(), 2) << "the same agent over another connection, and another name";
  for (const uint64_t connection : {90u, 93u}) Event(DisconnectEvent{connection, "killed"});
  Event(MessageEvent{95, AgentHelloMessage{"n0", "h2", /*pid=*/7, 2, /*instance=*/2}});
  EXPECT_EQ(Count<event::AgentRefused>(), 2) << "the first is gone";
}

TEST_F(CoordinatorTest, FloodsAndOversizedMessagesCostTheSenderItsPlace) {
  StartWith({0, 1, 2});
  Say(0, RendezvousMessage{1, std::string(1 << 20, 'x')});
  EXPECT_EQ(LastSent<RefusedMessage>(0)->rejoin, true);
  for (int i = 0; i < 30'000; ++i) Say(1, HeartbeatMessage{});
  EXPECT_NE(LastSent<RefusedMessage>(1), nullptr);
  for (int i = 100; i < 20'000; ++i) Join(i);
  EXPECT_LE(coordinator_->Status(now_).workers.size(), size_t{kMaxWorkers});
}

}  // namespace
}  // namespace holdfast
