// Single decisions of a worker's session: what it does when, what it claims to hold, and that nothing is done twice or
// for a world gone by.

#include "elastic/control/worker_session.h"

#include <gtest/gtest.h>

#include <utility>

namespace holdfast {
namespace {

Member MemberOf(const std::string& name, uint64_t incarnation) { return {{name, incarnation}, "n", "h", 1}; }

class WorkerSessionTest : public testing::Test {
 protected:
  void Do(const SessionEvent& event) { actions_ = session_.OnEvent(event); }
  void Receive(CoordinatorMessage message) { Do(SessionMessage{std::move(message)}); }

  static World WorldOf(uint64_t generation, uint64_t my_incarnation = 1) {
    return {generation, {MemberOf("a", my_incarnation), MemberOf("b", 5)}};
  }
  static WorldMessage Begin(uint64_t generation, const World& source, int64_t committed) {
    return {WorldOf(generation), source, committed, Purpose::kTrain, {1, 1}};
  }
  static StepPrepared Prepared(uint64_t generation, int64_t step) {
    StepPrepared event;
    event.vote.generation = generation;
    event.vote.step = step;
    return event;
  }
  static RecoverDone Recovered(uint64_t generation) { return {{generation, 0, 0, 0, 0}}; }

  // A world, and a step committed in it.
  void CommitOneStep() {
    Do(SessionConnected{});
    Receive(Begin(1, {}, 0));
    Do(Recovered(1));
    Do(Prepared(1, 1));
    Receive(CommitMessage{1, 1, {2, 0}});
  }

  // What the actions are, in short.
  std::string Actions() const {
    std::string text;
    for (const SessionAction& action : actions_) {
      if (const auto* send = std::get_if<SendToCoordinator>(&action))
        text += "send" + std::to_string(send->message.index());
      if (std::holds_alternative<AbortTask>(action)) text += "abort";
      if (std::holds_alternative<RecoverTask>(action)) text += "recover";
      if (const auto* step = std::get_if<StepTask>(&action)) text += "step" + std::to_string(step->step);
      if (const auto* update = std::get_if<UpdateTask>(&action)) text += "update" + std::to_string(update->step);
      if (const auto* end = std::get_if<EndingTask>(&action)) text += "end" + std::to_string(end->step);
      if (std::holds_alternative<ForgetTask>(action)) text += "forget";
      if (const auto* exit = std::get_if<ExitTask>(&action)) text += "exit" + std::to_string(exit->exit_code);
      text += " ";
    }
    return text;
  }
  const JoinMessage& SentJoin() const {
    return std::get<JoinMessage>(std::get<SendToCoordinator>(actions_.back()).message);
  }

  WorkerSession session_{MemberOf("a", 1), {.config = 42}, 3};
  std::vector<SessionAction> actions_;
};

TEST_F(WorkerSessionTest, ItSaysWhoHasTakenItIn) {
  Do(SessionConnected{});
  EXPECT_EQ(SentJoin().run, 0u);
  Receive(WelcomeMessage{7});
  Do(SessionDisconnected{});
  Do(SessionConnected{});
  EXPECT_EQ(SentJoin().run, 7u);
}

TEST_F(WorkerSessionTest, StartedForARunItWaitsForThatOneWithEmptyHands) {
  session_ = WorkerSession(MemberOf("a", 1), {.config = 42}, 3, /*run=*/7);
  Do(SessionConnected{});
  EXPECT_EQ(SentJoin().run, 7u);
  Receive(RefusedMessage{.reason = "the coordinator leads run b", .other_run = true});
  EXPECT_EQ(Actions(), "");
  Do(SessionDisconnected{});
  Do(SessionConnected{});
  EXPECT_EQ(SentJoin().run, 7u);
}

TEST_F(WorkerSessionTest, AStep) {
  Do(SessionConnected{});
  EXPECT_EQ(Actions(), "send0 ");
  Receive(Begin(1, {}, 0));
  EXPECT_EQ(Actions(), "recover ");
  Do(Recovered(1));
  EXPECT_EQ(Actions(), "send3 step1 ");
  Do(Prepared(1, 1));
  EXPECT_EQ(Actions(), "send4 ");
  Receive(CommitMessage{1, 1, {2, 0}});
  EXPECT_EQ(Actions(), "update1 step2 ");
  EXPECT_EQ(std::get<StepTask>(actions_[1]).microbatches, (std::vector<int64_t>{2, 0}));
  Do(Prepared(1, 2));
  Receive(CommitMessage{1, 2, {}});
  EXPECT_EQ(Actions(), "update2 step3 ");
  EXPECT_EQ(std::get<StepTask>(actions_[1]).microbatches, (std::vector<int64_t>{2, 0})) << "as before";
}

TEST_F(WorkerSessionTest, WhatWasFetchedInAWorldIsHeldIfThatIsTheSource) {
  CommitOneStep();
  Receive(Begin(2, WorldOf(1), 1));
  Do(Recovered(2));
  Receive(Begin(3, WorldOf(2), 1));
  ASSERT_EQ(Actions(), "abort recover ");
  Receive(Begin(4, WorldOf(2), 1));
  ASSERT_EQ(Actions(), "abort recover ") << "also if the task before it was dropped";
  Receive(Begin(5, WorldOf(3), 1));
  EXPECT_EQ(Actions(), "abort forget send0 ") << "of world 3 it has got nothing";
}

TEST_F(WorkerSessionTest, AStopIsAskedForAgainOverEveryNewConnection) {
  CommitOneStep();
  Do(SessionDisconnected{});
  Do(SessionStopAsked{15});
  EXPECT_EQ(Actions(), "");
  Do(SessionConnected{});
  ASSERT_EQ(actions_.size(), 2u);
  const auto& request = std::get<StopRequestMessage>(std::get<SendToCoordinator>(actions_.back()).message);
  EXPECT_EQ(request.signal, 15);
}

TEST_F(WorkerSessionTest, OneThatIsAloneEndsByAStopUnlessACoordinatorHasTakenItIn) {
  const WorkerSession begun = session_;
  Do(SessionStopAsked{15, /*is_alone=*/true});
  EXPECT_EQ(Actions(), "exit143 ");

  session_ = begun;
  Do(SessionConnected{});
  Do(SessionStopAsked{15, /*is_alone=*/true});
  EXPECT_EQ(actions_.size(), 1u) << "passed on: " << Actions();
  Do(SessionDisconnected{});
  EXPECT_EQ(Actions(), "exit143 ") << "nobody has said whether it came there";

  session_ = begun;
  Do(SessionConnected{});
  Receive(WelcomeMessage{.run = 7});
  Do(SessionDisconnected{});
  Do(SessionStopAsked{15, /*is_alone=*/true});
  EXPECT_EQ(Actions(), "") << "its coordinator may come back";
  Do(SessionDeserted{});
  EXPECT_EQ(Actions(), "exit143 ");

  session_ = begun;
  Do(SessionConnected{});
  Receive(WelcomeMessage{.run = 7});
  Do(SessionDisconnected{});
  Do(SessionDeserted{});
  EXPECT_EQ(Actions(), "exit75 ") << "though nobody has asked it to stop";

  session_ = begun;
  Do(SessionConnected{});
  Receive(WelcomeMessage{.run = 7});
  Do(SessionDisconnected{});
  Do(SessionConnected{});
  Do(SessionDeserted{});
  EXPECT_EQ(Actions(), "") << "a coordinator is there that is paused";
}

TEST_F(WorkerSessionTest, NothingIsDoneTwiceOrForAWorldGoneBy) {
  CommitOneStep();
  Receive(CommitMessage{1, 1, {1, 1}});
  EXPECT_EQ(Actions(), "");
  Receive(Begin(1, {}, 0));
  EXPECT_EQ(Actions(), "");
  Receive(Begin(2, WorldOf(1), 1));
  EXPECT_EQ(Actions(), "abort recover ");
  Do(Prepared(1, 2));  // the aborted step was quicker
  EXPECT_EQ(Actions(), "");
  Receive(CommitMessage{1, 2, {1, 1}});
  EXPECT_EQ(Actions(), "");
  Do(TaskFailed{{1, 2, Phase::kReduce, "aborted", {}, false}});
  EXPECT_EQ(Actions(), "");
  Do(Recovered(2));
  EXPECT_EQ(Actions(), "send3 step2 ");
}

// The world before this one may still be heard of: its commit of the step that was prepared anew is not this one's.
TEST_F(WorkerSessionTest, ACommitOfAnotherGenerationIsNotThatOfTheStepPrepared) {
  CommitOneStep();
  Receive(Begin(2, WorldOf(1), 1));
  Do(Recovered(2));
  Do(Prepared(2, 2));
  Receive(CommitMessage{1, 2, {1, 1}});
  EXPECT_EQ(Actions(), "");
  Receive(CommitMessage{3, 2, {1, 1}});
  EXPECT_EQ(Actions(), "");
  Receive(CommitMessage{2, 2, {1, 1}});
  EXPECT_EQ(Actions(), "update2 step3 ");
}

TEST_F(WorkerSessionTest, WhoDidNotHearOfACommitLearnsItFromTheNextWorld) {
  CommitOneStep();
  Do(Prepared(1, 2));
  Do(SessionDisconnected{});
  EXPECT_EQ(Actions(), "");
  Do(SessionConnected{});
  EXPECT_EQ(SentJoin().claim, (StateClaim{{1, {}}, 1, 2, {}}));
  Receive(Begin(4, WorldOf(1), 2));
  EXPECT_EQ(Actions(), "update2 recover ");
}

TEST_F(WorkerSessionTest, PreparedStepIsDroppedIfItWasNotCommitted) {
  CommitOneStep();
  Do(Prepared(1, 2));
  Receive(Begin(2, WorldOf(1), 1));
  EXPECT_EQ(Actions(), "recover ");
  Do(SessionConnected{});
  EXPECT_EQ(SentJoin().claim, (StateClaim{{1, {}}, 1, 0, {}}));
}

TEST_F(WorkerSessionTest, ClaimMovesToTheNewWorldAtItsFirstCommit) {
  CommitOneStep();
  Receive(Begin(2, WorldOf(1), 1));
  Do(Recovered(2));
  Do(Prepared(2, 2));
  Do(SessionConnected{});
  EXPECT_EQ(SentJoin().claim, (StateClaim{{1, {}}, 1, 2, {2, {}}, {2, {}}}));
  Receive(CommitMessage{2, 2, {1, 1}});
  Do(SessionConnected{});
  EXPECT_EQ(SentJoin().claim, (StateClaim{{2, {}}, 2, 0, {}}));
}

TEST_F(WorkerSessionTest, AWorldThatWasEnteredIsClaimedOnceItsMirrorsAreThere) {
  CommitOneStep();
  Receive(Begin(2, WorldOf(1), 1));
  RecoverDone recovered = Recovered(2);
  recovered.report.mirror_bytes = 100;
  Do(recovered);
  Do(SessionConnected{});
  EXPECT_EQ(SentJoin().claim, (StateClaim{{1, {}}, 1, 0, {}}));
  Do(MirrorsFilled{1});
  Do(SessionConnected{});
  EXPECT_EQ(SentJoin().claim, (StateClaim{{1, {}}, 1, 0, {}})) << "of a world gone by";
  Do(MirrorsFilled{2});
  Do(SessionConnected{});
  EXPECT_EQ(SentJoin().claim, (StateClaim{{1, {}}, 1, 0, {}, {2, {}}}));
  Receive(Begin(3, WorldOf(1), 1));
  Do(SessionConnected{});
  EXPECT_EQ(SentJoin().claim, (StateClaim{{1, {}}, 1, 0, {}})) << "who is told of another source gives it up";
}

// A claim is of the same size whatever the number of workers; who is in the world is said to whom asks for it.
TEST_F(WorkerSessionTest, SaysWhoIsInTheWorldsThatItClaims) {
  CommitOneStep();
  Receive(Begin(2, WorldOf(1), 1));
  Do(Recovered(2));
  Do(Prepared(2, 2));
  Do(SessionConnected{});
  for (const uint64_t generation : {1, 2}) {
    Receive(AskWorldMessage{generation});
    const auto* said = std::get_if<SendToCoordinator>(&actions_.at(0));
    ASSERT_NE(said, nullptr);
    EXPECT_EQ(std::get<KnownWorldMessage>(said->message).world, WorldOf(generation));
  }
  Receive(AskWorldMessage{3});
  EXPECT_EQ(Actions(), "");
}

TEST_F(WorkerSessionTest, CutOffItFinishesTheStepAndSaysNothing) {
  CommitOneStep();
  Do(SessionDisconnected{});
  Do(Prepared(1, 2));
  EXPECT_EQ(Actions(), "");
  Do(SessionConnected{});
  EXPECT_EQ(SentJoin().claim.prepared_step, 2);
}

TEST_F(WorkerSessionTest, CutOffItBeginsNoStep) {
  CommitOneStep();
  Receive(Begin(2, WorldOf(1), 1));
  Do(SessionDisconnected{});
  Do(Recovered(2));
  EXPECT_EQ(Actions(), "");
}

TEST_F(WorkerSessionTest, RefusedItForgetsAndComesBackAsSomebodyElse) {
  CommitOneStep();
  Receive(RefusedMessage{"hung", true});
  EXPECT_EQ(Actions(), "abort forget send0 ");
  EXPECT_EQ(SentJoin().member.id, (WorkerId{"a", 2}));
  EXPECT_EQ(SentJoin().claim, StateClaim{});
  Receive(Begin(2, WorldOf(1), 1));  // names its earlier self
  EXPECT_EQ(Actions(), "");
  Receive(WorldMessage{WorldOf(3, 2), WorldOf(1), 1, Purpose::kTrain, {1, 1}});
  EXPECT_EQ(Actions(), "recover ");
}

TEST_F(WorkerSessionTest, RefusedForItsSettingsItKeepsItsStateAndAsksAgain) {
  CommitOneStep();
  Receive(RefusedMessage{"another configuration", false, /*keep=*/true});
  EXPECT_EQ(Actions(), "abort ");
  Do(SessionDisconnected{});
  Do(SessionConnected{});
  EXPECT_EQ(SentJoin().claim, (StateClaim{{1, {}}, 1, 0, {}}));
  EXPECT_EQ(SentJoin().generation, 1u);
}

TEST_F(WorkerSessionTest, RefusedForItsSettingsItEndsIfItHoldsNothing) {
  Do(SessionConnected{});
  Receive(RefusedMessage{"another configuration", false, /*keep=*/true});
  EXPECT_EQ(Actions(), "exit1 ");
}

// It would end for good, and its own coordinator might come back: its agent waits for that one, too.
TEST_F(WorkerSessionTest, RefusedByAnotherRunItAsksAgainThoughItHoldsNothing) {
  Do(SessionConnected{});
  Receive(WelcomeMessage{7});
  Receive(Begin(1, {}, 0));
  Receive(RefusedMessage{.reason = "another run", .other_run = true});
  EXPECT_EQ(Actions(), "abort ");
  Do(SessionDisconnected{});
  Do(SessionConnected{});
  EXPECT_EQ(Actions(), "send0 ");
  EXPECT_EQ(SentJoin().run, 7u);
  Receive(Begin(2, {}, 0));
  EXPECT_EQ(Actions(), "recover ");
}

TEST_F(WorkerSessionTest, RefusedForGoodItEnds) {
  Do(SessionConnected{});
  Receive(RefusedMessage{"another configuration", false});
  EXPECT_EQ(Actions(), "exit1 ");
  Do(SessionConnected{});
  EXPECT_EQ(Actions(), "");
}

TEST_F(WorkerSessionTest, CountedOnForStateItDoesNotHaveItForgets) {
  Do(SessionConnected{});
  Receive(Begin(4, WorldOf(3), 7));
  EXPECT_EQ(Actions(), "forget send0 ");
}

TEST_F(WorkerSessionTest, AfterTheLastStepItEndsTheRun) {
  Do(SessionConnected{});
  WorldMessage begin = Begin(1, {9, {MemberOf("b", 5)}}, 2);
  Receive(begin);
  Do(Recovered(1));
  Do(Prepared(1, 3));
  Receive(CommitMessage{1, 3, {1, 1}});
  EXPECT_EQ(Actions(), "update3 end3 ");
  Do(EndingDone{1});
  EXPECT_EQ(Actions(), "send8 ");
  Receive(EndMessage{0, "done"});
  EXPECT_EQ(Actions(), "exit0 ");
}

TEST_F(WorkerSessionTest, AskedToStopItSavesWhatIsCommitted) {
  CommitOneStep();
  WorldMessage stop = Begin(2, WorldOf(1), 1);
  stop.purpose = Purpose::kStop;
  Receive(stop);
  EXPECT_EQ(Actions(), "abort recover ");
  Do(Recovered(2));
  EXPECT_EQ(Actions(), "send3 end1 ");
}

TEST_F(WorkerSessionTest, FailureIsReportedAndTheNextWorldAwaited) {
  CommitOneStep();
  Do(TaskFailed{{1, 2, Phase::kReduce, "peer closed the connection", {1}, false}});
  EXPECT_EQ(Actions(), "send5 ");
  Receive(Begin(2, WorldOf(1), 1));
  EXPECT_EQ(Actions(), "recover ") << "nothing is left to abort";
}

}  // namespace
}  // namespace holdfast
