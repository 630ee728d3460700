// Proves what is taken for the state when those who hold it come and go: which of several worlds is its source, how
// long lost state is waited for, and that nothing of a step given up is saved.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "elastic/control/state_source.h"
#include "framework/parallel/sharded_state.h"
#include "tests/elastic/control/coordinator_harness.h"

namespace holdfast {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

class LostStateTest : public CoordinatorTest {
 protected:
  static Member Newcomer(int worker) {
    Member member = MemberOf(worker);
    member.id.name += "-new";
    return member;
  }
  static constexpr int kWorkers = 40;
  /// kWorkers in their first world.
  std::vector<int> StartMany(CoordinatorOptions options) {
    std::vector<int> all(kWorkers);
    std::iota(all.begin(), all.end(), 0);
    options.elastic.workers = options.elastic.max_workers = options.microbatches = kWorkers;
    StartWith(all, options);
    Pass(milliseconds(500), all);
    return all;
  }
  void JoinNew(int worker) { Say(worker, JoinMessage{Newcomer(worker), {}, {.config = 42}}); }
};

// World 2 got its state, failed, and was followed by world 3 from the same source: who was told of that has given up
// what it got in world 2.
TEST_F(LostStateTest, AWorldThatWasEnteredAndFailedIsNoSource) {
  StartTraining({0, 1, 2});
  const World first = worlds_[Connection(1)].world;
  Event(DisconnectEvent{Connection(0), "killed"});
  ASSERT_EQ(WorldSize(), 2);
  for (const int w : {1, 2}) Say(w, RecoveredMessage{.generation = Generation()});
  for (const int w : {1, 2}) Say(w, FailureMessage{Generation(), 2, Phase::kReduce, "connection reset", {}, false});
  Pass(milliseconds(3000), {1, 2});
  ASSERT_EQ(Generation(), 3u);
  ASSERT_EQ(worlds_[Connection(1)].source, first);
  Event(DisconnectEvent{Connection(2), "killed"});  // with n0/0's part of the first world
  EXPECT_EQ(Count<event::StateMissing>(), 1);
  EXPECT_EQ(WorldSize(), 0);
  EXPECT_EQ(worlds_[Connection(1)].world.generation, 3u);
}

TEST_F(LostStateTest, OfManyHoldersSomeAreNamed) {
  const CoordinatorOptions options = WithoutMirrors();
  const std::vector<int> all = StartMany(options);
  Commit(all);
  for (int w = 0; w + 1 < kWorkers; ++w) Event(DisconnectEvent{Connection(w), "killed"});
  Pass(milliseconds(options.elastic.lost_state_timeout_ms + 1000), {kWorkers - 1});
  ASSERT_TRUE(ended_.has_value());
  EXPECT_THAT(ended_->reason, HasSubstr(" and 7 more), and there is no checkpoint"));
}

TEST_F(LostStateTest, OfManyWhoseBitsOrCopiesDifferSomeAreNamed) {
  const std::vector<int> all = StartMany(DefaultOptions());
  for (const int w : all) {
    VoteMessage vote = Vote(Generation(), 1);
    vote.loss_bits = static_cast<uint32_t>(w);
    Say(w, vote);
  }
  EXPECT_THAT(Last<event::BitsDiffer>().workers, HasSubstr(" and 8 more"));
  EXPECT_THAT(Last<event::BitsDiffer>().bits, HasSubstr(" and 8 more"));
  Pass(milliseconds(500), all);
  const uint64_t generation = Generation();
  for (const int w : all) {
    VoteMessage vote = Vote(generation, 1);
    vote.copies = {{7, static_cast<uint64_t>(w)}};
    Say(w, vote);
  }
  EXPECT_THAT(Last<event::CopiesDiffer>().workers, HasSubstr(" and 8 more"));
}

TEST_F(LostStateTest, OfTwoWorldsThatBothCoverItTheNewerIsTheSource) {
  const World older{7, {MemberOf(0), MemberOf(1)}}, newer{8, {MemberOf(2), MemberOf(3)}};
  const StateClaim in_older{older, 5, 0, {}}, in_newer{newer, 5, 0, {}};
  std::vector<ClaimOf> claims{{MemberOf(2).id, &in_newer},
                              {MemberOf(0).id, &in_older},
                              {MemberOf(1).id, &in_older},
                              {MemberOf(3).id, &in_newer}};
  for (int order = 0; order < 2; ++order) {
    const StateSource found = FindStateSource(claims, 5, {});
    EXPECT_EQ(found.world, newer);
    EXPECT_TRUE(found.complete);
    std::reverse(claims.begin(), claims.end());
  }
}

// It came back with the state of step 1, and waited while the others did step 2.
TEST_F(LostStateTest, WhoWaitsWithStateThatWasOvertakenHoldsNothing) {
  StartTraining({0, 1, 2});
  const World first = worlds_[Connection(2)].world;
  Event(DisconnectEvent{Connection(2), "stream broken"});
  ASSERT_EQ(WorldSize(), 2);
  Join(2, {first, 1, 0, {}});
  ASSERT_EQ(LastSent<RefusedMessage>(2), nullptr);
  Commit({0, 1});
  ASSERT_EQ(WorldSize(), 2) << "newcomers settle first";
  Event(StopEvent{15});
  EXPECT_EQ(WorldSize(), 2) << "those that end the run are those that hold its state";
}

// The others count on a member of the source to have its part; as somebody else it may join without.
TEST_F(LostStateTest, AMemberOfTheSourceDoesNotComeBackAsTheSameWithoutItsState) {
  StartTraining({0, 1, 2});
  Event(DisconnectEvent{Connection(2), "stream broken"});
  Join(2);
  ASSERT_NE(LastSent<RefusedMessage>(2), nullptr);
  EXPECT_TRUE(LastSent<RefusedMessage>(2)->rejoin);
  sent_.clear();
  Join(2, {}, First(2) + 1);
  EXPECT_EQ(LastSent<RefusedMessage>(2), nullptr);
}

// It was slow, not dead, and holds what was killed with its mirror.
TEST_F(LostStateTest, WhoWasSilentBringsBackWhatNobodyElseHas) {
  StartTraining({0, 1, 2});
  const World old = worlds_[Connection(0)].world;
  Pass(milliseconds(3100), {0, 2});
  ASSERT_EQ(WorldSize(), 2);
  Event(DisconnectEvent{Connection(2), "killed"});
  Pass(seconds(9), {0});
  ASSERT_EQ(Count<event::StateMissing>(), 1);
  Join(1, {old, 1, 0, {}});
  Pass(milliseconds(200), {0, 1});
  EXPECT_EQ(WorldSize(), 2);
  EXPECT_EQ(worlds_[Connection(1)].source.generation, old.generation);
  EXPECT_EQ(worlds_[Connection(1)].committed_step, 1);
  EXPECT_FALSE(ended_.has_value());
}

TEST_F(LostStateTest, WhoJoinsWithoutStateDoesNotProlongTheWaitForIt) {
  CoordinatorOptions options = DefaultOptions();
  options.parallel.mirrors = 0;
  options.elastic.max_workers = 20;
  StartTraining({0, 1, 2}, options);
  Event(DisconnectEvent{Connection(2), "killed"});
  ASSERT_EQ(Count<event::StateMissing>(), 1);
  std::vector<int> alive{0, 1};
  for (int w = 3; w < 14 && !ended_.has_value(); ++w) {  // one a second, for longer than the state is waited for
    JoinNew(w);
    alive.push_back(w);
    Pass(seconds(1), alive);
  }
  EXPECT_TRUE(ended_.has_value());
}

// The agent knows: a process that has ended brings nothing back.
TEST_F(LostStateTest, WhatEndedWithAllWhoHeldItIsNotWaitedFor) {
  CoordinatorOptions options = DefaultOptions();
  options.parallel.mirrors = 0;
  StartTraining({0, 1, 2}, options);
  AgentComes(90, "n0", 2);
  AgentComes(91, "n1");
  Event(DisconnectEvent{Connection(2), "the connection was lost"});
  Event(MessageEvent{90, WorkerExitMessage{{"n1/2", First(2)}, "one of another node", true}});
  Event(MessageEvent{91, WorkerExitMessage{{"n1/2", First(2) + (uint64_t{1} << 50)}, "another process", true}});
  Pass(seconds(1), {0, 1});
  ASSERT_EQ(Count<event::StateMissing>(), 1);
  ASSERT_FALSE(ended_.has_value());
  Event(MessageEvent{91, WorkerExitMessage{{"n1/2", First(2)}, "killed by signal 9 (Killed)", true}});
  ASSERT_TRUE(ended_.has_value());
  EXPECT_THAT(ended_->reason, HasSubstr("the state of step 1 is lost"));
}

TEST_F(LostStateTest, WhatOneOfTwoHoldersMayStillHaveIsWaitedFor) {
  StartTraining({0, 1, 2});
  AgentComes(90, "n0", 2);
  Event(MessageEvent{90, WorkerExitMessage{{"n0/1", First(1)}, "killed by signal 9 (Killed)", true}});
  Event(DisconnectEvent{Connection(2), "the connection was lost"});
  Pass(milliseconds(DefaultOptions().elastic.lost_state_timeout_ms / 2), {0});
  EXPECT_EQ(Count<event::StateMissing>(), 1);
  EXPECT_FALSE(ended_.has_value());
}

TEST_F(LostStateTest, WhatEndedAfterOthersHadGotItIsWaitedFor) {
  CoordinatorOptions options = DefaultOptions();
  options.elastic.workers = 2;
  StartTraining({0, 1}, options);
  for (const int w : {2, 3}) Join(w);
  Pass(milliseconds(200), {0, 1, 2, 3});
  Commit({0, 1});
  const World entered = worlds_[Connection(3)].world;
  ASSERT_EQ(entered.size(), 4);
  for (const int w : {0, 1, 2, 3}) Say(w, RecoveredMessage{.generation = entered.generation});
  AgentComes(90, "n0", 2);
  AgentComes(91, "n1", 2);
  for (const int w : {0, 1, 3}) Event(DisconnectEvent{Connection(w), "the connection was lost"});
  for (const int w : {0, 1}) {
    Event(MessageEvent{90, WorkerExitMessage{MemberOf(w).id, "killed by signal 9 (Killed)", true}});
  }
  Pass(seconds(2), {2});
  ASSERT_EQ(Count<event::StateMissing>(), 1);
  ASSERT_FALSE(ended_.has_value());
  Join(3, {{}, Committed(), 0, {}, entered});
  Pass(milliseconds(200), {2, 3});
  EXPECT_EQ(WorldSize(), 2);
  EXPECT_EQ(worlds_[Connection(2)].source, entered);
}

class ContradictedTest : public LostStateTest {
 protected:
  ContradictedTest() {
    options_.parallel.sharding = Sharding::kNoShard;
    options_.checkpoint.directory = "somewhere";
  }
  /// Most have other bits of step 2 than 1, who is not told to give its state up: its stream has ended.
  void Contradict1() {
    StartTraining({0, 1, 2}, options_);
    VoteMessage other = Vote(Generation(), 2);
    other.loss_bits ^= 1;
    Say(0, Vote(Generation(), 2));
    Say(1, other);
    AgentComes(100, "n0");  // whose word about the end of the stream is waited for
    Event(DisconnectEvent{Connection(1), "reset"});
    Say(2, Vote(Generation(), 2));
    ASSERT_TRUE(Last<event::BitsDiffer>().majority);
    ASSERT_EQ(WorldSize(), 2);
  }
  void Lose0() {
    Event(DisconnectEvent{Connection(0), "killed"});
    Pass(seconds(1), {2});
    ASSERT_EQ(WorldSize(), 1);
  }
  CoordinatorOptions options_ = DefaultOptions();
};

// Whoever had other bits is lost together with the coordinator, before or after the step was done again.
TEST_F(ContradictedTest, WhatAMinorityHeldIsNotTheStateAfterARestartEither) {
  for (const bool was_done_again : {false, true}) {
    SCOPED_TRACE(was_done_again);
    Contradict1();
    const World old = worlds_[Connection(1)].world;
    if (was_done_again) {
      Commit({0, 2});
      Lose0();
    }
    CoordinatorOptions options = options_;
    options.recorded_step = Committed();
    options.last_generation = Generation();
    options.contradicted = contradicted_;
    options.checkpoints = {{"one", 1, 0, 1}};
    Start(options);
    sent_.clear();
    Join(1, {old, 1, 2, {}});
    ASSERT_NE(LastSent<RefusedMessage>(1), nullptr);
    EXPECT_TRUE(LastSent<RefusedMessage>(1)->rejoin);
    Join(1, {}, First(1) + 1);
    Pass(milliseconds(options.elastic.join_timeout_ms + options.elastic.lost_state_timeout_ms), {1});
    EXPECT_EQ(WorldSize(), 1);
    EXPECT_EQ(worlds_[Connection(1)].checkpoint, "one");
  }
}

TEST_F(ContradictedTest, WhoWasContradictedIsRememberedWhileWhatItClaimsCouldCount) {
  Contradict1();
  EXPECT_THAT(contradicted_, ElementsAre(testing::Pair("n0/1", First(1))));
  for (int i = 0; i < 2; ++i) Commit({0, 2});
  Lose0();
  EXPECT_THAT(contradicted_, testing::IsEmpty());
}

// Until they are there nothing is given up, and the run stands still.
TEST_F(LostStateTest, ACoordinatorThatIsStartedAgainSaysThatWorkersDoNotComeBack) {
  CoordinatorOptions options = DefaultOptions();
  options.recorded_step = 5;
  options.last_generation = 3;
  options.elastic.min_workers = 2;
  options.elastic.join_timeout_ms = 20'000;
  Start(options);
  Pass(seconds(10), {});
  EXPECT_EQ(Count<event::TooFewWorkers>(), 0) << "they may be about to";
  JoinNew(7);
  Pass(seconds(60), {7});
  EXPECT_EQ(Count<event::TooFewWorkers>(), 1);
  EXPECT_THAT(Last<event::TooFewWorkers>().detail, testing::HasSubstr("1 of at least 2 workers connected"));
  EXPECT_FALSE(ended_.has_value());
}

// It may be the coordinator that is cut off. Those who come without state may still be too few.
TEST_F(LostStateTest, IsNotGivenUpWhileThereIsNobodyToGoOnWithoutIt) {
  CoordinatorOptions options = DefaultOptions();
  options.elastic.min_workers = 2;
  options.checkpoint.every_steps = 1;
  options.checkpoints = {{"one", 1, 0, 1}};
  options.workers_are_new = true;
  StartWith({0, 1, 2}, options);
  for (const int w : {0, 1, 2}) Say(w, RecoveredMessage{.generation = Generation()});
  Commit({0, 1, 2});
  const World world = worlds_[Connection(0)].world;
  const int64_t step = Committed();
  rewinds_.clear();  // to where it began
  Pass(seconds(60), {});
  EXPECT_EQ(Count<event::StateMissing>(), 1);
  JoinNew(7);
  Pass(seconds(60), {7});
  ASSERT_EQ(WorldSize(), 0);
  EXPECT_THAT(rewinds_, SizeIs(0));
  EXPECT_THAT(coordinator_->Status(now_).detail, testing::HasSubstr("1 of at least 2 workers connected"));
  for (const int w : {0, 1, 2}) Join(w, {world, step, 0, {}});
  Pass(milliseconds(500), {0, 1, 2, 7});
  EXPECT_EQ(worlds_[Connection(0)].source, world);
  EXPECT_EQ(worlds_[Connection(0)].committed_step, step);
}

TEST_F(LostStateTest, NorByACoordinatorThatWasStartedAgain) {
  CoordinatorOptions options = DefaultOptions();
  options.elastic.min_workers = 2;
  options.checkpoint.every_steps = 1;
  options.checkpoints = {{"one", 1, 0, 1}};
  options.recorded_step = 5;
  options.last_generation = 7;
  Start(options);
  JoinNew(7);
  Pass(seconds(60), {7});
  const World world{7, {MemberOf(0), MemberOf(1), MemberOf(2)}};
  for (const int w : {0, 1, 2}) Join(w, {world, 5, 0, {}});
  Pass(milliseconds(500), {0, 1, 2, 7});
  EXPECT_THAT(rewinds_, SizeIs(0));
  EXPECT_EQ(worlds_[Connection(0)].committed_step, 5);
}

TEST_F(LostStateTest, WhoJoinsWithoutStateDoesNotProlongItAfterARestart) {
  CoordinatorOptions options = DefaultOptions();
  options.elastic.max_workers = 20;
  options.had_checkpoint = true;
  options.recorded_step = 5;
  Start(options);
  std::vector<int> alive;
  for (int w = 0; w < 12 && !ended_.has_value(); ++w) {
    JoinNew(w);
    alive.push_back(w);
    Pass(seconds(1), alive);
  }
  ASSERT_TRUE(ended_.has_value());
  EXPECT_THAT(ended_->reason,
              testing::HasSubstr("no checkpoint any more: put one back, or begin anew with --overwrite"));
}

// A checkpoint of step 2 is being written when the run goes back to step 1.
TEST_F(LostStateTest, WhatIsBeingSavedOfAStepGivenUpIsDropped) {
  CoordinatorOptions options = DefaultOptions();
  options.checkpoint.every_steps = 1;
  options.parallel.mirrors = 0;
  StartWith({0, 1, 2}, options);
  const uint64_t generation = Generation();
  const auto saved = [&](int worker, uint64_t of, int64_t step) {
    SavedMessage message;
    message.generation = of;
    message.step = step;
    Say(worker, message);
  };
  Commit({0, 1, 2});
  for (const int w : {0, 1, 2}) saved(w, generation, 1);
  Event(CheckpointDoneEvent{1, generation, "one", "", false, 100, 0, {{"one", 1, 0, generation}}});
  Commit({0, 1, 2});
  for (const int w : {1, 2}) saved(w, generation, 2);
  Event(DisconnectEvent{Connection(1), "killed"});  // its part of step 2 is durable
  Pass(seconds(11), {0, 2});
  ASSERT_THAT(rewinds_, ElementsAre(1));
  ASSERT_EQ(WorldSize(), 2);
  saved(0, generation, 2);
  EXPECT_THAT(commits_, SizeIs(1)) << "that of step 1";
  Commit({0, 2});
  ASSERT_NE(LastSent<CommitMessage>(0), nullptr);
  EXPECT_TRUE(LastSent<CommitMessage>(0)->save) << "nothing is being written any more";
}

// The run went back from step 3 to 1, and is at step 3 again when what it had given up shows up.
TEST_F(LostStateTest, ACheckpointThatWasGivenUpIsNotGoneBackToLater) {
  CoordinatorOptions options = DefaultOptions();
  options.checkpoint.every_steps = 100;
  options.parallel.mirrors = 0;
  StartWith({0, 1, 2}, options);
  const CheckpointChoice one{"one", 1, 0, Generation()}, given_up{"two", 2, 0, Generation()};
  for (int step = 1; step <= 3; ++step) Commit({0, 1, 2});
  Event(CheckpointsTidiedEvent{"", {one}});
  Event(DisconnectEvent{Connection(1), "killed"});
  Pass(seconds(11), {0, 2});
  ASSERT_THAT(rewinds_, ElementsAre(1));
  for (int step = 2; step <= 3; ++step) Commit({0, 2});
  ASSERT_EQ(Committed(), 3);
  Event(CheckpointsTidiedEvent{"", {given_up, one}});
  Event(DisconnectEvent{Connection(0), "killed"});
  Pass(seconds(11), {2});
  EXPECT_THAT(rewinds_, ElementsAre(1, 1));
}

// The validation of step 4 says nothing of steps before it that are done again.
TEST_F(LostStateTest, TheValidationOfAStepGivenUpIsForgotten) {
  CoordinatorOptions options = DefaultOptions();
  options.checkpoint.every_steps = 1;
  options.parallel.mirrors = 0;
  options.validates = true;
  options.validate_every_steps = 4;
  StartWith({0, 1, 2}, options);
  for (int step = 1; step <= 4; ++step) Commit({0, 1, 2});
  Say(0, ValidationMessage{Generation(), 4, 0.25});
  Event(CheckpointDoneEvent{1, Generation(), "one", "", false, 100, 0, {{"one", 1, 0, Generation()}}});
  Event(DisconnectEvent{Connection(1), "killed"});
  Pass(seconds(11), {0, 2});
  ASSERT_THAT(rewinds_, ElementsAre(1));
  Commit({0, 2});
  for (const int w : {0, 2}) {
    SavedMessage message;
    message.generation = Generation();
    message.step = 2;
    Say(w, message);
  }
  ASSERT_THAT(commits_, SizeIs(1));
  EXPECT_EQ(commits_[0].step, 2);
  EXPECT_EQ(commits_[0].validation_loss, std::nullopt);
}

// Nobody was lost, so nobody's part is missing for good; but the world that was to write it is gone.
TEST_F(LostStateTest, AnEndingThatIsTriedAgainWaitsForItsOwnCheckpointOnly) {
  CoordinatorOptions options = DefaultOptions();
  options.checkpoint.every_steps = 100;
  StartTraining({0, 1, 2}, options);
  Event(StopEvent{15});
  ASSERT_TRUE(worlds_[Connection(0)].save);
  const uint64_t first = Generation();
  for (const int w : {0, 1, 2}) Say(w, FailureMessage{first, 1, Phase::kSave, "connection reset", {}, false});
  Pass(seconds(4), {0, 1, 2});
  ASSERT_GT(Generation(), first);
  ASSERT_TRUE(worlds_[Connection(0)].save);
  for (const int w : {0, 1, 2}) {
    SavedMessage message;
    message.generation = Generation();
    message.step = 1;
    Say(w, message);
  }
  ASSERT_THAT(commits_, SizeIs(1));
  Event(CheckpointDoneEvent{1, Generation(), "one", "", false, 100, 0, {{"one", 1, 0, Generation()}}});
  for (const int w : {0, 1, 2}) Say(w, FinishedMessage{Generation()});
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ended_->exit_code, 143);
}

// Of three, one has not been heard of since another reported a failure: it may be the one that is lost.
TEST_F(LostStateTest, AFailedWorldIsNotTriedAgainBeforeAllHaveShownThatTheyLive) {
  StartWith({0, 1, 2});
  Pass(milliseconds(300), {0, 1, 2});
  Say(0, FailureMessage{1, 1, Phase::kReduce, "connection reset", {}, false});
  Pass(milliseconds(2000), {0, 2});
  EXPECT_EQ(Generation(), 1u);
  Pass(milliseconds(100), {0, 1, 2});
  EXPECT_EQ(Generation(), 2u);
  EXPECT_EQ(WorldSize(), 3);
}

// A checkpoint has to hold the state whose digest stands in its step's metrics line, if one does.
TEST_F(LostStateTest, ACheckpointIsExpectedToHaveTheDigestOfItsStep) {
  CoordinatorOptions options = DefaultOptions();
  options.checkpoint.every_steps = 1;
  StartWith({0, 1, 2}, options);
  for (const int64_t step : {1, 2}) {
    for (const int w : {0, 1, 2}) {
      VoteMessage vote = Vote(Generation(), step);
      if (step == 1) vote.digests = {{2 - w, static_cast<uint64_t>(10 + w)}};
      Say(w, vote);
    }
    for (const int w : {0, 1, 2}) {
      SavedMessage message;
      message.generation = Generation();
      message.step = step;
      Say(w, message);
    }
    Event(CheckpointDoneEvent{step, Generation(), "c", "", false, 100, 0, {}});
  }
  ASSERT_THAT(commits_, SizeIs(2));
  EXPECT_EQ(commits_[0].state_digest, StateDigest({12, 11, 10})) << "by chunk";
  EXPECT_EQ(commits_[1].state_digest, 0u) << "no digest step";
}

}  // namespace
}  // namespace holdfast
