// Proves when a checkpoint is begun, when it exists, what becomes of it when a writer is lost, and when a run goes back
// to one: to the newest that can be used, and only if nobody holds the state any more.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <variant>

#include "elastic/control/state_source.h"
#include "framework/base/limits.h"
#include "tests/elastic/control/coordinator_harness.h"

namespace holdfast {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class CheckpointTest : public CoordinatorTest {
 protected:
  static CoordinatorOptions EverySteps(int64_t steps) {
    CoordinatorOptions options = DefaultOptions();
    options.checkpoint.every_steps = steps;
    return options;
  }
  /// Every second step is validated.
  static CoordinatorOptions KeepingTheBest(CoordinatorOptions options) {
    options.checkpoint.keep_best = 1;
    options.validates = true;
    options.validate_every_steps = 2;
    return options;
  }
  void StartThree(const CoordinatorOptions& options) { StartWith({0, 1, 2}, options); }
  void Saved(int worker, int64_t step, const std::string& cause = "", bool no_room = false) {
    SavedMessage message;
    message.generation = Generation();
    message.step = step;
    message.cause = cause;
    message.no_room = no_room;
    message.stall_seconds = worker;
    Say(worker, message);
  }
  void Done(int64_t step, std::vector<CheckpointChoice> usable, const std::string& cause = "", bool fenced = false,
            bool no_room = false) {
    Event(CheckpointDoneEvent{step, Generation(), "c", cause, fenced, 100, 0, std::move(usable), no_room});
  }
  /// Of step 1.
  FailureMessage NoRoomForModel() const {
    return {.generation = Generation(),
            .step = 1,
            .phase = Phase::kSave,
            .cause = "disk full",
            .suspects = {},
            .no_room = true};
  }
  bool ToldToSave(int worker) { return LastSent<CommitMessage>(worker)->save; }
};

TEST_F(CheckpointTest, ExistsWhenAllPartsAreDurable) {
  StartThree(EverySteps(2));
  Commit({0, 1, 2});
  EXPECT_FALSE(ToldToSave(0));
  Commit({0, 1, 2});
  for (const int w : {0, 1, 2}) EXPECT_TRUE(ToldToSave(w));
  Saved(0, 2);
  Saved(0, 2);
  Saved(2, 2);
  EXPECT_THAT(commits_, IsEmpty()) << "one is missing";
  Saved(1, 2);
  ASSERT_EQ(commits_.size(), 1u);
  EXPECT_EQ(commits_[0].step, 2);
  EXPECT_EQ(commits_[0].shards.size(), 3u);
  EXPECT_EQ(commits_[0].stall_seconds, 2);
  EXPECT_EQ(Count<event::CheckpointSaved>(), 0);
  Done(2, {{"c", 2}});
  EXPECT_EQ(Last<event::CheckpointSaved>().step, 2);
}

TEST_F(CheckpointTest, IsWaitedForWhenThoseWhoHoldTheStateHaveEnded) {
  CoordinatorOptions options = EverySteps(1);
  options.parallel.mirrors = 0;
  StartThree(options);
  Commit({0, 1, 2});
  for (const int w : {0, 1, 2}) Saved(w, 1);
  ASSERT_EQ(commits_.size(), 1u);
  AgentComes(91, "n1");
  Event(MessageEvent{91, WorkerExitMessage{MemberOf(2).id, "killed by signal 9 (Killed)", true}});
  Pass(seconds(1), {0, 1});
  ASSERT_EQ(Count<event::StateMissing>(), 1);
  ASSERT_FALSE(ended_.has_value());
  Done(1, {{"one", 1, 0, Generation()}});
  Pass(seconds(1), {0, 1});
  EXPECT_EQ(WorldSize(), 2);
  EXPECT_EQ(worlds_[Connection(0)].checkpoint, "one");
}

// The end of each short run said "a checkpoint every 80 s from now on".
TEST_F(CheckpointTest, TellsOfAnIntervalUnlessTheRunEnds) {
  CoordinatorOptions options = DefaultOptions();
  options.checkpoint.every = CheckpointEvery::kAuto;
  const auto save = [this](int64_t step) {
    for (const int w : {0, 1, 2}) Saved(w, step);
    Done(step, {{"c", step}});
    EXPECT_EQ(Last<event::CheckpointSaved>().step, step);
  };
  StartThree(options);
  int64_t step = 0;
  do {
    ASSERT_LT(step, options.total_steps - 1);
    Pass(seconds(2), {0, 1, 2});
    Commit({0, 1, 2});
    ++step;
  } while (!ToldToSave(0));
  save(step);
  EXPECT_EQ(Count<event::CheckpointInterval>(), 1);

  events_.clear();
  options.total_steps = 1;
  StartThree(options);
  Commit({0, 1, 2});
  save(1);
  EXPECT_EQ(Count<event::CheckpointInterval>(), 0) << "all steps are done";

  options.total_steps = 100;
  StartThree(options);
  Commit({0, 1, 2});
  Event(StopEvent{15});
  save(1);
  EXPECT_EQ(Count<event::CheckpointInterval>(), 0) << "it is stopped";
}

TEST_F(CheckpointTest, KnowsTheDataAndSaysWhenARunGoesOnWithOther) {
  data_digest_ = 5;
  StartThree(EverySteps(1));
  Commit({0, 1, 2});
  for (const int w : {0, 1, 2}) Saved(w, 1);
  ASSERT_EQ(commits_.size(), 1u);
  EXPECT_EQ(commits_[0].data_digest, 5u);

  CoordinatorOptions options = EverySteps(1);
  options.workers_are_new = true;
  for (const auto& [then, now, reports] : {std::tuple{5u, 5u, 0}, {0u, 5u, 0}, {5u, 0u, 0}, {5u, 6u, 1}}) {
    options.checkpoints = {{"one", 1, then}};
    data_digest_ = now;
    events_.clear();
    StartThree(options);
    EXPECT_EQ(WorldSize(), 3);
    EXPECT_EQ(Count<event::DataChanged>(), reports) << then << " " << now;
  }
}

// Whose digest is that of the token files alone, whatever ends a document. 7: with that.
TEST_F(CheckpointTest, ACheckpointOfAnOlderBuildHasTheDataIfTheTokensAreAlike) {
  CoordinatorOptions options = EverySteps(1);
  options.workers_are_new = true;
  for (const auto& [then, now, reports] : {std::tuple{5u, 7u, 0}, {7u, 7u, 0}, {8u, 7u, 1}, {6u, 7u, 1}}) {
    options.checkpoints = {{"one", 1, then}};
    token_digest_ = 5;
    data_digest_ = now;
    events_.clear();
    StartThree(options);
    EXPECT_EQ(WorldSize(), 3);
    EXPECT_EQ(Count<event::DataChanged>(), reports) << then;
  }
}

TEST_F(CheckpointTest, KnowsTheGpusAndSaysWhenARunGoesOnWithOthers) {
  kernel_digest_ = 5;
  StartThree(EverySteps(1));
  Commit({0, 1, 2});
  for (const int w : {0, 1, 2}) Saved(w, 1);
  ASSERT_EQ(commits_.size(), 1u);
  EXPECT_EQ(commits_[0].kernel_digest, 5u);

  CoordinatorOptions options = EverySteps(1);
  options.workers_are_new = true;
  for (const auto& [then, now, knows, reports] :
       {std::tuple{5u, 5u, 0u, 0}, {0u, 5u, 0u, 0}, {5u, 0u, 0u, 0}, {5u, 6u, 0u, 1}, {5u, 6u, 6u, 0}}) {
    options.checkpoints = {{.name = "one", .step = 1, .kernel_digest = then}};
    options.digests.kernels = knows;  // and has warned when the run began
    kernel_digest_ = now;
    events_.clear();
    StartThree(options);
    EXPECT_EQ(WorldSize(), 3);
    EXPECT_EQ(Count<event::KernelsChanged>(), reports) << then << " " << now << " " << knows;
  }
}

TEST_F(CheckpointTest, OneIsWrittenAtATimeAndThoseSkippedAreCounted) {
  StartThree(EverySteps(1));
  for (int i = 0; i < 3; ++i) Commit({0, 1, 2});
  EXPECT_FALSE(ToldToSave(0)) << "the first is still being written";
  for (const int w : {0, 1, 2}) Saved(w, 1);
  Done(1, {{"c", 1}});
  EXPECT_EQ(Last<event::CheckpointSaved>().skipped, 2);
  Commit({0, 1, 2});
  EXPECT_TRUE(ToldToSave(0));
}

TEST_F(CheckpointTest, HasTheValidationLossOfItsOwnStepOnly) {
  CoordinatorOptions options = EverySteps(1);
  options.validates = true;
  options.validate_every_steps = 3;
  StartThree(options);
  const auto save = [&](int64_t step, std::optional<double> validated) {
    Commit({0, 1, 2});
    if (step == 5) Say(0, ValidationMessage{Generation(), 4, 0.25});
    for (const int w : {0, 1, 2}) Saved(w, step);
    if (validated.has_value()) {
      EXPECT_EQ(commits_.size(), static_cast<size_t>(step) - 1) << "the validation of step " << step << " is missing";
      Say(0, ValidationMessage{Generation(), step, *validated});
    }
    EXPECT_EQ(commits_.size(), static_cast<size_t>(step));
    Done(step, {{"c", step}});
    return commits_.back().validation_loss;
  };
  EXPECT_EQ(save(1, std::nullopt), std::nullopt);
  EXPECT_EQ(save(2, std::nullopt), std::nullopt);
  EXPECT_EQ(save(3, 0.5), 0.5);
  EXPECT_EQ(save(4, std::nullopt), std::nullopt);
  EXPECT_EQ(save(5, std::nullopt), std::nullopt);
}

TEST_F(CheckpointTest, WhileTooFewAreThereItDoesNotWaitForItsValidation) {
  CoordinatorOptions options = EverySteps(2);
  options.validates = true;
  options.validate_every_steps = 2;
  options.elastic.min_workers = 3;
  StartThree(options);
  for (int step = 1; step <= 2; ++step) Commit({0, 1, 2});
  for (const int w : {0, 1, 2}) Saved(w, 2);
  Event(DisconnectEvent{Connection(2), "killed"});
  Pass(seconds(2), {0, 1});
  EXPECT_THAT(commits_, IsEmpty()) << "it may be back at once";
  Pass(seconds(2), {0, 1});
  EXPECT_EQ(Count<event::TooFewWorkers>(), 1);
  ASSERT_EQ(commits_.size(), 1u);
  EXPECT_EQ(commits_[0].step, 2);
}

TEST_F(CheckpointTest, WhereTheBestAreKeptEveryValidatedStateIsSaved) {
  StartThree(KeepingTheBest(EverySteps(100)));
  for (const bool saved : {false, true, false, true}) {
    Commit({0, 1, 2});
    EXPECT_EQ(ToldToSave(0), saved) << records_.back().step;
    if (!saved) continue;
    const int64_t step = records_.back().step;
    for (const int w : {0, 1, 2}) Saved(w, step);
    Say(0, ValidationMessage{Generation(), step, 0.25});
    Done(step, {{"c", step}});
  }
  EXPECT_EQ(commits_.back().validation_loss, 0.25);
}

TEST_F(CheckpointTest, AValidatedStateIsSavedBehindOneThatIsBeingWritten) {
  StartThree(KeepingTheBest(EverySteps(1)));
  Commit({0, 1, 2});
  ASSERT_TRUE(ToldToSave(0));
  Pass(seconds(1), {0, 1, 2});
  Commit({0, 1, 2});
  EXPECT_TRUE(ToldToSave(0)) << "that of step 1 is still being written";
  Say(0, ValidationMessage{Generation(), 2, 0.25});
  for (const int64_t step : {1, 2}) {
    for (const int w : {0, 1, 2}) Saved(w, step);
  }
  ASSERT_EQ(commits_.size(), 2u);
  EXPECT_EQ(commits_[0].validation_loss, std::nullopt);
  EXPECT_EQ(commits_[1].validation_loss, 0.25);
  Done(1, {{"one", 1}});
  EXPECT_GE(Last<event::CheckpointSaved>().seconds, 1) << "since it was begun itself";
  Done(2, {{"two", 2}, {"one", 1}});
  EXPECT_EQ(Last<event::CheckpointSaved>().step, 2);
}

TEST_F(CheckpointTest, ALaterValidationIsNotThatOfAnOlderState) {
  CoordinatorOptions options = EverySteps(1);
  options.validates = true;
  options.validate_every_steps = 2;
  StartThree(options);
  Commit({0, 1, 2});
  Commit({0, 1, 2});
  Say(0, ValidationMessage{Generation(), 2, 0.5});
  for (const int w : {0, 1, 2}) Saved(w, 1);
  ASSERT_EQ(commits_.size(), 1u);
  EXPECT_EQ(commits_[0].validation_loss, std::nullopt);
}

TEST_F(CheckpointTest, DoesNotWaitForAValidationThatWillNotBe) {
  CoordinatorOptions options = EverySteps(1);
  options.validates = true;
  options.validate_every_steps = 1;
  StartThree(options);
  Commit({0, 1, 2});
  for (const int w : {0, 1, 2}) Saved(w, 1);
  EXPECT_THAT(commits_, IsEmpty());
  Event(StopEvent{15});
  EXPECT_EQ(commits_.size(), 1u);
}

TEST_F(CheckpointTest, IsGivenUpWithAWriterThatWasLostOrFailedAndTheRunGoesOn) {
  StartThree(EverySteps(2));
  for (int i = 0; i < 2; ++i) Commit({0, 1, 2});
  Saved(0, 2);
  Event(DisconnectEvent{Connection(1), "stream broken"});
  EXPECT_THAT(Last<event::CheckpointFailed>().cause, HasSubstr("n0/1 was lost"));
  Saved(2, 2);
  EXPECT_THAT(commits_, IsEmpty());
  Commit({0, 2});
  Commit({0, 2});
  EXPECT_TRUE(ToldToSave(0));
  Saved(2, 4, "/x: No space left on device");
  EXPECT_THAT(Last<event::CheckpointFailed>().cause, HasSubstr("n1/2 on n1: /x: No space"));
  Commit({0, 2});
  Commit({0, 2});
  EXPECT_TRUE(ToldToSave(0)) << "the next one is tried";
}

TEST_F(CheckpointTest, WhatIsLeftOfOthersGoesIfOneFailsAndNoneIsBeingWritten) {
  const auto room_made = [this] {  // before which step
    int64_t step = 0;
    for (const CoordinatorAction& action : actions_) {
      if (const auto* room = std::get_if<MakeRoomAction>(&action)) step = room->step;
    }
    return step;
  };
  StartThree(KeepingTheBest(EverySteps(1)));
  Commit({0, 1, 2});
  Commit({0, 1, 2});
  ASSERT_TRUE(ToldToSave(0)) << "that of step 1 is still being written";
  Saved(0, 2, "disk full", /*no_room=*/true);
  EXPECT_EQ(room_made(), 0) << "it would take that of step 1 away";
  Saved(1, 1, "disk full", /*no_room=*/true);
  EXPECT_EQ(room_made(), 2) << "the one that failed goes, too";
  Commit({0, 1, 2});
  Saved(0, 3, "no claim");
  EXPECT_EQ(room_made(), 4) << "its place may have been removed, and is made anew";
  Commit({0, 1, 2});
  Say(0, ValidationMessage{Generation(), 4, 0.25});
  for (const int w : {0, 1, 2}) Saved(w, 4);
  Done(4, {}, "disk full", /*fenced=*/false, /*no_room=*/true);
  EXPECT_EQ(room_made(), 4) << "one whose manifest could not be written may exist in spite of that";
}

TEST_F(CheckpointTest, AndALongCauseIsCutBetweenCharacters) {
  StartThree(EverySteps(1));
  Commit({0, 1, 2});
  const std::string kept(kMaxTextBytes - 1, 'x');
  Saved(2, 1, kept + "\xC3\xA9 and more");
  EXPECT_EQ(Last<event::CheckpointFailed>().cause, "n1/2 on n1: " + kept);
  Say(0, FailureMessage{.generation = Generation(), .step = 2, .cause = kept + "\xC3\xA9 and more", .suspects = {}});
  EXPECT_EQ(Last<event::StepFailed>().cause, kept);
}

TEST_F(CheckpointTest, IsGivenUpWithAWriterThatWasLetGo) {
  StartThree(EverySteps(1));
  AgentComes(8, "n1");
  Commit({0, 1, 2});
  for (const int w : {0, 1}) Saved(w, 1);
  Event(MessageEvent{8, LeaveMessage{15}});
  Commit({0, 1, 2});
  Commit({0, 1});
  ASSERT_EQ(Count<event::NodeLeft>(), 1);
  EXPECT_EQ(Last<event::CheckpointFailed>().step, 1) << "else the run would wait for it for ever";
}

TEST_F(CheckpointTest, AWriterLostAfterItsPartIsDurableIsNotMissed) {
  StartThree(EverySteps(1));
  Commit({0, 1, 2});
  const uint64_t generation = Generation();
  for (const int w : {0, 1}) Saved(w, 1);
  Event(DisconnectEvent{Connection(1), "stream broken"});
  SavedMessage late;
  late.generation = generation;
  late.step = 1;
  Say(2, late);
  EXPECT_EQ(commits_.size(), 1u);
}

TEST_F(CheckpointTest, ARunKilledBeforeItsFirstCheckpointBeginsAnew) {
  CoordinatorOptions options = EverySteps(100);
  options.recorded_step = 5;
  StartThree(options);
  EXPECT_EQ(WorldSize(), 0) << "somebody may come back with state";
  Pass(seconds(9), {0, 1, 2});
  EXPECT_EQ(WorldSize(), 0) << "somebody may not have noticed yet that the last coordinator stands still";
  Pass(seconds(4), {0, 1, 2});
  ASSERT_EQ(WorldSize(), 3);
  EXPECT_EQ(worlds_[Connection(0)].committed_step, 0);
  EXPECT_EQ(worlds_[Connection(0)].source.generation, 0u);
  EXPECT_THAT(rewinds_, ElementsAre(0));
}

TEST_F(CheckpointTest, ARunWhoseCheckpointsAreGoneDoesNotBeginAnew) {
  CoordinatorOptions options = EverySteps(100);
  options.recorded_step = 5;
  options.had_checkpoint = true;
  StartThree(options);
  Pass(seconds(12), {0, 1, 2});
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ended_->exit_code, 1);
}

TEST_F(CheckpointTest, RunEndsWithACheckpointOfItsLastStep) {
  CoordinatorOptions options = EverySteps(100);
  options.total_steps = 1;
  StartThree(options);
  Commit({0, 1, 2});
  EXPECT_TRUE(ToldToSave(0));
  for (const int w : {0, 1, 2}) Saved(w, 1);
  for (const int w : {0, 1, 2}) Say(w, FinishedMessage{1});
  EXPECT_FALSE(ended_.has_value()) << "the checkpoint does not exist yet";
  Done(1, {{"c", 1}});
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ended_->exit_code, 0);
}

TEST_F(CheckpointTest, TheLastCheckpointIsComparedWithTheRecordAfterARestartToo) {
  for (const int64_t agreed : {7, 6, 9}) {  // the last of a record that was cut off
    SCOPED_TRACE(agreed);
    CoordinatorOptions options = EverySteps(100);
    options.total_steps = options.recorded_step = 7;
    options.agreed_step = agreed;
    options.agreed_digest = 99;
    Start(options);
    const StateClaim claim{
        .world = {4, {MemberOf(0), MemberOf(1), MemberOf(2)}}, .committed_step = 7, .prepared_world = {}};
    for (const int w : {0, 1, 2}) Join(w, claim);
    for (const int w : {0, 1, 2}) Saved(w, 7);
    ASSERT_FALSE(commits_.empty());
    EXPECT_EQ(commits_.back().state_digest, agreed == 7 ? 99u : 0u);
    commits_.clear();
  }
}

TEST_F(CheckpointTest, WhatWasRecordedOfAStepThatWasGivenUpIsComparedWithNothing) {
  CoordinatorOptions options = After({{"five", 5}});
  options.checkpoint.every_steps = options.recorded_step = options.agreed_step = 7;
  options.agreed_digest = 99;
  StartThree(options);
  for (int i = 0; i < 2; ++i) Commit({0, 1, 2});
  ASSERT_TRUE(ToldToSave(0));
  for (const int w : {0, 1, 2}) Saved(w, 7);
  ASSERT_THAT(commits_, testing::SizeIs(1));
  EXPECT_EQ(commits_[0].state_digest, 0u);
}

TEST_F(CheckpointTest, ARunWhoseLastCheckpointCannotBeWrittenHasFailed) {
  CoordinatorOptions options = EverySteps(100);
  options.total_steps = 1;
  StartThree(options);
  Commit({0, 1, 2});
  for (int attempt = 1; attempt <= 3; ++attempt) {
    ASSERT_FALSE(ended_.has_value()) << attempt;
    ASSERT_EQ(WorldSize(), 3) << attempt;
    for (const int w : {0, 1, 2}) Say(w, FinishedMessage{Generation()});
    Saved(0, 1);
    Saved(1, 1, "not permitted");
    Pass(milliseconds(100), {0, 1, 2});
  }
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ended_->exit_code, 1);
  EXPECT_THAT(ended_->reason, HasSubstr("the only step is done; the model is saved, but the checkpoint could not be "
                                        "written: n0/1 on n0: not permitted; once that is mended, the same command "));
}

// A worker's part does not fit, or the manifest, or the model beside the checkpoint.
TEST_F(CheckpointTest, TheEndOfARunWaitsForRoom) {
  enum class Full { kShard, kManifest, kModel };
  for (const Full full : {Full::kShard, Full::kManifest, Full::kModel}) {
    SCOPED_TRACE(static_cast<int>(full));
    ended_.reset();
    events_.clear();
    CoordinatorOptions options = EverySteps(100);
    options.total_steps = 1;
    StartThree(options);
    Commit({0, 1, 2});
    const auto attempt = [&](bool has_room) {
      for (const int w : {0, 1, 2}) Saved(w, 1, w == 1 && !has_room && full == Full::kShard ? "disk full" : "", true);
      if (full != Full::kShard || has_room) {
        const bool fits = has_room || full != Full::kManifest;
        Done(1, fits ? std::vector<CheckpointChoice>{{"c", 1}} : std::vector<CheckpointChoice>{},
             fits ? "" : "disk full", false, true);
      }
      if (!has_room && full == Full::kModel) {
        for (const int w : {0, 1, 2}) Say(w, NoRoomForModel());
      } else {
        for (const int w : {0, 1, 2}) Say(w, FinishedMessage{Generation()});
      }
    };
    for (int i = 0; i < 120; ++i) {
      const uint64_t generation = Generation();
      attempt(false);
      for (int passed = 0; passed < 150 && Generation() == generation; ++passed) Pass(milliseconds(100), {0, 1, 2});
      ASSERT_FALSE(ended_.has_value()) << ended_->reason;
      ASSERT_GT(Generation(), generation) << "it is not tried again";
    }
    EXPECT_EQ(Count<event::Paused>(), 1);
    EXPECT_EQ(Count<event::Resumed>(), 0);
    EXPECT_THAT(Last<event::Paused>().cause, HasSubstr("disk full"));
    EXPECT_THAT(coordinator_->Status(now_).detail, HasSubstr("paused, retrying: "));
    attempt(true);
    ASSERT_TRUE(ended_.has_value());
    EXPECT_EQ(ended_->exit_code, 0);
    EXPECT_GT(Last<event::Resumed>().seconds, 1000);
  }
}

TEST_F(CheckpointTest, AStopOfARunThatWaitsForRoomEndsSoon) {
  CoordinatorOptions options = EverySteps(100);
  options.total_steps = 1;
  StartThree(options);
  Commit({0, 1, 2});
  const auto try_to_end = [&](seconds time) {
    for (const Instant begun = now_; !ended_.has_value() && now_ - begun < time;) {
      for (const int w : {0, 1, 2}) Say(w, NoRoomForModel());
      Pass(milliseconds(100), {0, 1, 2});
    }
  };
  try_to_end(seconds(2000));
  ASSERT_FALSE(ended_.has_value()) << ended_->reason;
  Event(StopEvent{15});
  try_to_end(seconds(20));
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ended_->exit_code, 1);
  EXPECT_THAT(ended_->reason, HasSubstr("stopped by SIGTERM at step 1, but its state could not be saved"));
}

TEST_F(CheckpointTest, StopLeavesACheckpointOrSaysThatItCouldNot) {
  for (const std::string cause : {"", "disk full"}) {
    ended_.reset();
    StartThree(EverySteps(100));
    Commit({0, 1, 2});
    Event(StopEvent{15});
    for (int attempt = 1; attempt <= (cause.empty() ? 1 : 3); ++attempt) {
      ASSERT_FALSE(ended_.has_value()) << attempt;
      EXPECT_TRUE(worlds_[Connection(0)].save);
      Saved(0, 1);
      Saved(1, 1, cause);
      Saved(2, 1);
      for (const int w : {0, 1, 2}) Say(w, FinishedMessage{Generation()});
      if (cause.empty()) Done(1, {{"c", 1}});
      Pass(milliseconds(100), {0, 1, 2});
    }
    ASSERT_TRUE(ended_.has_value());
    EXPECT_EQ(ended_->exit_code, cause.empty() ? 143 : 1);
    EXPECT_THAT(ended_->reason, HasSubstr(cause.empty() ? "is saved, and the same command resumes" : cause));
  }
}

// The run's end waited for it, with a storage that did not answer for as long again as for the checkpoint.
TEST_F(CheckpointTest, RoomIsMadeForAnotherAttemptOnly) {
  const auto makes_room = [this] {
    return std::any_of(actions_.begin(), actions_.end(),
                       [](const CoordinatorAction& action) { return std::holds_alternative<MakeRoomAction>(action); });
  };
  StartThree(EverySteps(100));
  Commit({0, 1, 2});
  Event(StopEvent{15});
  for (int attempt = 1; attempt <= 3; ++attempt) {
    ASSERT_FALSE(ended_.has_value()) << attempt;
    Saved(0, 1);
    Saved(1, 1, "no answer", /*no_room=*/true);
    EXPECT_FALSE(makes_room()) << attempt;
    Saved(2, 1);
    for (const int w : {0, 1, 2}) Say(w, FinishedMessage{Generation()});
    EXPECT_EQ(makes_room(), attempt < 3) << attempt;
    Pass(milliseconds(100), {0, 1, 2});
  }
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ended_->exit_code, 1);
}

// Somebody has deleted checkpoints, and it was looked which there are.
TEST_F(CheckpointTest, AnEndWithoutACheckpointSaysWhatTheRunResumesFrom) {
  using Choices = std::vector<CheckpointChoice>;
  for (const auto& [there, words] : {std::pair(Choices{{"c", 2}}, "the same command resumes from step 2"),
                                     std::pair(Choices{},
                                               "--overwrite begins anew, as its other checkpoints are "
                                               "gone")}) {
    ended_.reset();
    events_.clear();
    StartThree(EverySteps(4));
    for (int step = 1; step <= 4; ++step) Commit({0, 1, 2});
    for (const int w : {0, 1, 2}) Saved(w, 4);
    Done(4, {{"d", 4}, {"c", 2}});
    Commit({0, 1, 2});
    Event(StopEvent{15});
    for (int attempt = 1; attempt <= 3; ++attempt) {
      ASSERT_FALSE(ended_.has_value()) << attempt;
      Saved(0, 5);
      Saved(1, 5, "the directory is gone", /*no_room=*/true);
      Saved(2, 5);
      Event(CheckpointsTidiedEvent{"", there});
      for (const int w : {0, 1, 2}) Say(w, FinishedMessage{Generation()});
      Pass(milliseconds(100), {0, 1, 2});
    }
    ASSERT_TRUE(ended_.has_value());
    EXPECT_EQ(ended_->exit_code, 1);
    EXPECT_THAT(ended_->reason, HasSubstr(words));
  }
}

TEST_F(CheckpointTest, WhatKeepsOldOnesFromBeingDeletedIsToldWhenItChanges) {
  StartThree(EverySteps(1));
  const auto tidied = [&](const std::string& warning) {
    Event(CheckpointsTidiedEvent{.warning = warning, .usable = {}});
    return Count<event::CheckpointWarning>();
  };
  EXPECT_EQ(tidied("cannot delete one: busy"), 1);
  EXPECT_EQ(tidied("cannot delete one: busy"), 1);
  EXPECT_EQ(tidied("cannot delete two: busy"), 2);
  EXPECT_EQ(tidied(""), 2);
  EXPECT_EQ(tidied("cannot delete two: busy"), 3) << "it could meanwhile";
  EXPECT_EQ(Last<event::CheckpointWarning>().cause, "cannot delete two: busy");
}

TEST_F(CheckpointTest, AWriterThatHangsIsNamed) {
  CoordinatorOptions options = EverySteps(1);
  options.elastic.progress_timeout_ms = 10'000;
  StartThree(options);
  Commit({0, 1, 2});
  Saved(0, 1);
  for (int i = 0; i < 9; ++i) {
    Pass(seconds(1), {0, 1, 2});
    Commit({0, 1, 2});
  }
  EXPECT_EQ(Count<event::CheckpointWarning>(), 0);
  Pass(seconds(2), {0, 1, 2});
  EXPECT_EQ(Last<event::CheckpointWarning>().step, 1);
  EXPECT_THAT(Last<event::CheckpointWarning>().cause,
              HasSubstr("checkpoint of step 1: not written after 10 s by n0/1 on n0 and 1 more"));
  EXPECT_GE(Last<event::CheckpointWarning>().seconds, 10);
  Pass(seconds(5), {0, 1, 2});
  EXPECT_EQ(Count<event::CheckpointWarning>(), 1);
}

TEST_F(CheckpointTest, ACoordinatorsStorageThatHangsIsTold) {
  CoordinatorOptions options = EverySteps(1);
  options.elastic.progress_timeout_ms = 10'000;
  StartThree(options);
  Commit({0, 1, 2});
  for (const int w : {0, 1, 2}) Saved(w, 1);
  for (int i = 0; i < 9; ++i) {
    Pass(seconds(1), {0, 1, 2});
    Commit({0, 1, 2});
  }
  EXPECT_EQ(Count<event::CheckpointWarning>(), 0);
  Pass(seconds(2), {0, 1, 2});
  ASSERT_EQ(Count<event::CheckpointWarning>(), 1);
  EXPECT_THAT(Last<event::CheckpointWarning>().cause,
              HasSubstr("checkpoint of step 1: not written after 10 s by the coordinator, though all its parts are "
                        "there, and no other is begun"));
}

// Its storage hangs whenever it is to save what it alone holds.
TEST_F(CheckpointTest, AStopDoesNotTryForEverToSave) {
  CoordinatorOptions options = EverySteps(100);
  options.parallel.mirrors = 0;
  options.elastic.progress_timeout_ms = 10'000;
  StartThree(options);
  const World source = worlds_[Connection(0)].world;
  Commit({0, 1, 2});
  Event(StopEvent{15});
  for (int attempt = 1; attempt <= 5; ++attempt) {
    ASSERT_FALSE(ended_.has_value()) << attempt;
    ASSERT_EQ(WorldSize(), 3) << attempt;
    for (const int w : {0, 1, 2}) Say(w, RecoveredMessage{Generation()});
    for (const int w : {0, 2}) Say(w, FinishedMessage{Generation()});
    Pass(milliseconds(10'500), {0, 1, 2}, /*progress=*/false);
    EXPECT_EQ(Count<event::WorkerHung>(), attempt);
    Event(DisconnectEvent{Connection(1), ""});
    Join(1, {source, 1, 0, {}});
    Pass(milliseconds(200), {0, 1, 2});
  }
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ended_->exit_code, 1);
  EXPECT_THAT(ended_->reason, HasSubstr("could not be saved: n0/1 on"));
}

TEST_F(CheckpointTest, StopAtAStepThatIsSavedSavesNothing) {
  StartThree(EverySteps(1));
  Commit({0, 1, 2});
  for (const int w : {0, 1, 2}) Saved(w, 1);
  Done(1, {{"c", 1}});
  Event(StopEvent{15});
  EXPECT_FALSE(worlds_[Connection(0)].save);
}

TEST_F(CheckpointTest, ARunThatEndsEarlyWritesItsLastStateOnceUnlessThatFails) {
  CoordinatorOptions options = EverySteps(100);
  options.checkpoint.keep_best = 1;
  options.validates = true;
  options.validate_every_steps = 1;
  options.early_stop.patience = 1;
  for (const bool fails : {false, true}) {
    ended_.reset();
    commits_.clear();
    StartThree(options);
    Commit({0, 1, 2});
    for (const int w : {0, 1, 2}) Saved(w, 1);
    Say(0, ValidationMessage{Generation(), 1, 0.5});
    Done(1, {{"one", 1}});
    Commit({0, 1, 2});
    EXPECT_TRUE(ToldToSave(0));
    const uint64_t writers = Generation();
    Say(0, ValidationMessage{writers, 2, 0.75});
    ASSERT_NE(Generation(), writers) << "the world that ends the run";
    EXPECT_FALSE(worlds_[Connection(0)].save) << "the last state is being written";
    for (const int w : {0, 1, 2}) Say(w, FinishedMessage{Generation()});
    EXPECT_FALSE(ended_.has_value());
    for (const int w : {0, 1, 2}) {
      SavedMessage saved;
      saved.generation = writers;
      saved.step = 2;
      if (fails) saved.cause = "disk full";
      Say(w, saved);
    }
    if (!fails) {
      ASSERT_EQ(commits_.size(), 2u);
      EXPECT_EQ(commits_.back().validation_loss, 0.75);
      Event(CheckpointDoneEvent{2, writers, "two", "", false, 100, 0, {{"two", 2}, {"one", 1}}});
      ASSERT_TRUE(ended_.has_value());
      EXPECT_EQ(ended_->exit_code, 0);
      continue;
    }
    Pass(milliseconds(100), {0, 1, 2});
    ASSERT_FALSE(ended_.has_value());
    EXPECT_TRUE(worlds_[Connection(0)].save) << "it is tried again";
  }
}

TEST_F(CheckpointTest, LostStateIsTakenFromTheNewestCheckpoint) {
  CoordinatorOptions options = EverySteps(100);
  options.parallel.mirrors = 0;
  options.checkpoints = {};
  StartThree(options);
  for (int i = 0; i < 5; ++i) Commit({0, 1, 2});
  Done(3, {{"three", 3}, {"two", 2}});  // as if it had been written meanwhile
  Event(DisconnectEvent{Connection(1), "stream broken"});
  EXPECT_THAT(rewinds_, IsEmpty()) << "who holds it may come back";
  Pass(seconds(11), {0, 2});
  EXPECT_THAT(rewinds_, ElementsAre(3));
  EXPECT_EQ(Last<event::Rewind>().from_step, 5);
  const WorldMessage world = worlds_[Connection(0)];
  EXPECT_EQ(world.checkpoint, "three");
  EXPECT_EQ(world.committed_step, 3);
  EXPECT_EQ(world.source.generation, 0u);
  EXPECT_EQ(world.world.size(), 2);
  Commit({0, 2});
  EXPECT_EQ(records_.back().step, 4);
  // From here on the state lies with the new world again.
  Join(1);
  Pass(milliseconds(200), {0, 1, 2});
  Commit({0, 2});
  EXPECT_EQ(worlds_[Connection(1)].checkpoint, "");
  EXPECT_NE(worlds_[Connection(1)].source.generation, 0u);
}

// Nobody comes back with it, and it may be wrong.
TEST_F(CheckpointTest, WhatOnlyAMinorityHoldsIsTakenFromTheNewestCheckpointAtOnce) {
  CoordinatorOptions options = EverySteps(100);
  options.parallel.mirrors = 0;
  StartThree(options);
  for (int i = 0; i < 5; ++i) Commit({0, 1, 2});
  Done(3, {{"three", 3}, {"two", 2}});  // as if it had been written meanwhile
  VoteWithOtherOf1(&VoteMessage::loss_bits, 6);
  EXPECT_TRUE(Last<event::BitsDiffer>().majority);
  EXPECT_THAT(rewinds_, ElementsAre(3));
  const event::Rewind rewind = Last<event::Rewind>();
  EXPECT_EQ(rewind.from_step, 5);
  EXPECT_EQ(rewind.reason, "most workers had other bits than all holders of a part: n0/1 on n0");
  Pass(milliseconds(200), {0, 2});
  EXPECT_EQ(WorldSize(), 2);
  EXPECT_EQ(coordinator_->Status(now_).detail, "from checkpoint three");
}

// A worker that now and then computes wrongly holds some state each time, which is lost with it.
TEST_F(CheckpointTest, WhoHasOtherBitsAgainAndAgainDoesNotTakeTheRunBackForEver) {
  CoordinatorOptions options = EverySteps(100);
  options.parallel.mirrors = 0;
  StartTraining({0, 1, 2}, options);
  Done(1, {{"one", 1}});
  Commit({0, 1, 2});
  uint64_t incarnation = First(1);
  for (int i = 0; i < 5; ++i) {
    if (WorldSize() == 3) VoteWithOtherOf1(&VoteMessage::loss_bits, Committed() + 1);
    Join(1, {}, ++incarnation);
    Pass(seconds(70), {0, 1, 2});  // beyond any quarantine
    for (int step = 0; step < 2; ++step) Commit(WorldSize() == 3 ? std::vector{0, 1, 2} : std::vector{0, 2});
  }
  EXPECT_EQ(rewinds_.size(), 3u);
  EXPECT_EQ(Count<event::KeptOut>(), 1);
  EXPECT_EQ(WorldSize(), 2);
  EXPECT_THAT(coordinator_->Status(now_).detail, testing::EndsWith("; kept out, as most had other bits: n0/1"));
}

// With it there are two, and nobody could go on with what would be gone back to.
TEST_F(CheckpointTest, WhoIsKeptOutIsNotCountedWhereStateMayComeBack) {
  CoordinatorOptions options = EverySteps(100);
  options.parallel.mirrors = 0;
  options.elastic.min_workers = 2;
  StartTraining({0, 1, 2}, options);
  Done(1, {{"one", 1}});
  uint64_t incarnation = First(1);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(WorldSize(), 3);
    VoteWithOtherOf1(&VoteMessage::loss_bits, Committed() + 1);
    Join(1, {}, ++incarnation);
    Pass(seconds(70), {0, 1, 2});  // beyond any quarantine
    for (int step = 0; step < 2; ++step) Commit(WorldSize() == 3 ? std::vector{0, 1, 2} : std::vector{0, 2});
  }
  ASSERT_EQ(WorldSize(), 2);
  const World old = worlds_[Connection(0)].world;
  const int64_t committed = Committed();
  Event(DisconnectEvent{Connection(0), "its host is cut off"});
  Pass(milliseconds(2 * options.elastic.lost_state_timeout_ms), {1, 2});
  EXPECT_THAT(coordinator_->Status(now_).detail, testing::StartsWith("1 of at least 2 workers connected; "));
  EXPECT_EQ(rewinds_.size(), 3u) << "of the three times";
  Join(0, {old, committed, 0, {}});
  Pass(milliseconds(200), {0, 1, 2});
  Commit({0, 2});
  EXPECT_EQ(Committed(), committed + 1);
}

// Of the two that have it the other one is only away.
TEST_F(CheckpointTest, WhatAMinorityHeldIsWaitedForIfAnotherHasItToo) {
  const CoordinatorOptions options = EverySteps(100);
  StartThree(options);
  Join(3);
  Pass(milliseconds(200), {0, 1, 2, 3});
  Commit({0, 1, 2});
  for (int i = 0; i < 4; ++i) Commit({0, 1, 2, 3});
  Done(3, {{"three", 3}, {"two", 2}});
  const World old = worlds_[Connection(0)].world;
  ASSERT_EQ(old.size(), 4);
  Event(DisconnectEvent{Connection(0), "reset"});
  ASSERT_EQ(WorldSize(), 3);
  // Who of the other node has something together with 0.
  const bool is_2 = !HoldersOfLostState(old, {false, true, false, true}, options.parallel).empty();
  for (const int w : {1, 2, 3}) {
    VoteMessage vote = Vote(Generation(), 6);
    if (w == (is_2 ? 2 : 3)) vote.loss_bits ^= 1;
    Say(w, vote);
  }
  EXPECT_TRUE(Last<event::BitsDiffer>().majority);
  EXPECT_EQ(Count<event::StateMissing>(), 1);
  EXPECT_EQ(contradicted_.size(), 1u) << "a coordinator that is started again waits, too";
  EXPECT_THAT(rewinds_, IsEmpty());
  Join(0, {old, 5, 0, {}});
  Pass(milliseconds(200), {0, 1, is_2 ? 3 : 2});
  EXPECT_THAT(rewinds_, IsEmpty());
  const WorldMessage world = worlds_[Connection(0)];
  EXPECT_EQ(world.world.size(), 3);
  EXPECT_EQ(world.committed_step, 5);
  EXPECT_EQ(world.source.generation, old.generation);
}

TEST_F(CheckpointTest, WhatOthersHoldOfAMinorityIsNotTakenFromACheckpoint) {
  StartThree(EverySteps(100));
  for (int i = 0; i < 5; ++i) Commit({0, 1, 2});
  Done(3, {{"three", 3}, {"two", 2}});
  VoteWithOtherOf1(&VoteMessage::loss_bits, 6);
  EXPECT_THAT(rewinds_, IsEmpty());
  const WorldMessage world = worlds_[Connection(0)];
  EXPECT_EQ(world.committed_step, 5);
  EXPECT_EQ(world.world.size(), 2);
}

TEST_F(CheckpointTest, WhoComesBackWithStateGivenUpJoinsWithoutIt) {
  CoordinatorOptions options = EverySteps(100);
  options.parallel.mirrors = 0;
  StartThree(options);
  for (int i = 0; i < 5; ++i) Commit({0, 1, 2});
  const World old = worlds_[Connection(1)].world;
  Done(3, {{"three", 3}});
  Event(DisconnectEvent{Connection(1), "stream broken"});
  Pass(seconds(11), {0, 2});
  ASSERT_THAT(rewinds_, ElementsAre(3));
  Join(1, {.world = old, .committed_step = 5, .prepared_world = {}});
  const auto* refused = LastSent<RefusedMessage>(1);
  ASSERT_NE(refused, nullptr);
  EXPECT_TRUE(refused->rejoin);
}

TEST_F(CheckpointTest, AnEndedRunGoesOnFromItsNewestCheckpoint) {
  CoordinatorOptions options = EverySteps(100);
  options.recorded_step = 7;
  options.last_generation = 4;
  options.checkpoints = {{"five", 5}, {"two", 2}};
  StartThree(options);
  EXPECT_THAT(rewinds_, IsEmpty()) << "who holds state may still come";
  Pass(seconds(9), {0, 1, 2});
  EXPECT_THAT(rewinds_, IsEmpty()) << "or not have noticed yet that the last coordinator stands still";
  Pass(seconds(4), {0, 1, 2});
  EXPECT_THAT(rewinds_, ElementsAre(5)) << "all are here and none holds anything";
  EXPECT_EQ(worlds_[Connection(2)].checkpoint, "five");
  EXPECT_EQ(worlds_[Connection(2)].world.generation, 5u);
}

TEST_F(CheckpointTest, ARunThatLosesNothingGoesOnAtOnce) {
  CoordinatorOptions options = EverySteps(100);
  options.recorded_step = 5;
  options.last_generation = 4;
  options.checkpoints = {{"five", 5}, {"two", 2}};
  StartThree(options);
  Pass(milliseconds(3200), {0, 1, 2});
  EXPECT_EQ(worlds_[Connection(2)].checkpoint, "five");
}

// As when a job is preempted again while it starts: it is to be started once more, not to fail.
TEST_F(CheckpointTest, AStopOfARunThatLosesNothingIsNoFailure) {
  for (const bool workers_come : {true, false}) {
    CoordinatorOptions options = EverySteps(100);
    options.recorded_step = 5;
    options.last_generation = 4;
    options.checkpoints = {{"five", 5}, {"two", 2}};
    ended_.reset();
    rewinds_.clear();
    Start(options);
    for (int w = 0; workers_come && w < 3; ++w) Join(w);
    Event(StopEvent{15});
    Pass(seconds(60), workers_come ? std::vector<int>{0, 1, 2} : std::vector<int>{});
    ASSERT_TRUE(ended_.has_value());
    EXPECT_EQ(ended_->exit_code, 143);
    EXPECT_EQ(ended_->reason, "stopped by SIGTERM at step 5: its state is in checkpoint five");
    EXPECT_THAT(rewinds_, ElementsAre(5));
  }
}

TEST_F(CheckpointTest, WorkersThatHoldTheStateComeBeforeCheckpoints) {
  StartThree(EverySteps(100));
  for (int i = 0; i < 7; ++i) Commit({0, 1, 2});
  const World old = worlds_[Connection(0)].world;
  CoordinatorOptions options = EverySteps(100);
  options.recorded_step = 7;
  options.last_generation = 1;
  options.checkpoints = {{"five", 5}};
  Start(options);
  for (const int w : {0, 1, 2}) Join(w, {.world = old, .committed_step = 7, .prepared_world = {}});
  EXPECT_THAT(rewinds_, IsEmpty());
  EXPECT_EQ(worlds_[Connection(0)].committed_step, 7);
  EXPECT_EQ(worlds_[Connection(0)].source.generation, 1u);
}

TEST_F(CheckpointTest, SaysHowFarLoadingIs) {
  CoordinatorOptions options = EverySteps(100);
  options.workers_are_new = true;
  options.checkpoints = {{"five", 5}};
  StartThree(options);
  EXPECT_FALSE(coordinator_->Status(now_).loading.has_value()) << "nobody has said how much it is";
  HeartbeatMessage beat{.generation = Generation(), .step = 6, .phase = Phase::kTransfer};
  beat.bytes_to_load = int64_t{1} << 30;
  for (const int w : {0, 1}) {
    beat.bytes_loaded = (w + 1) * (int64_t{1} << 28);
    Say(w, beat);
  }
  ASSERT_TRUE(coordinator_->Status(now_).loading.has_value());
  EXPECT_EQ(coordinator_->Status(now_).loading->total_bytes, 0x1p31);
  EXPECT_THAT(coordinator_->Status(now_).detail, HasSubstr("38% of 2.0 GiB loaded"));
  for (const int w : {0, 1, 2}) Say(w, RecoveredMessage{.generation = Generation()});
  EXPECT_FALSE(coordinator_->Status(now_).loading.has_value());
}

class BadCheckpointTest : public CheckpointTest {
 protected:
  // Three workers load "five"; `recorded_step` is 7.
  void StartLoading() {
    CoordinatorOptions options = EverySteps(100);
    options.recorded_step = 7;
    options.last_generation = 4;
    options.workers_are_new = true;
    options.checkpoints = {{"five", 5, 0, 3}, {"two", 2, 0, 2}};
    StartThree(options);
  }
  void CannotLoad(int worker, const std::string& cause) {
    FailureMessage failure{.generation = Generation(), .step = 6, .cause = cause, .suspects = {}};
    failure.bad_checkpoint = true;
    Say(worker, failure);
  }
  std::vector<std::string> Verified() const {
    std::vector<std::string> names;
    for (const CoordinatorAction& action : actions_) {
      if (const auto* verify = std::get_if<VerifyCheckpointAction>(&action)) names.push_back(verify->name);
    }
    return names;
  }
};

TEST_F(BadCheckpointTest, ADamagedOneIsRejectedForTheNextOlder) {
  StartLoading();
  CannotLoad(1, "shard-0-of-3.h5: wrong digest");
  EXPECT_THAT(Verified(), ElementsAre("five"));
  EXPECT_EQ(WorldSize(), 0) << "until it is verified";
  Event(CheckpointVerifiedEvent{"five", "shard-0-of-3.h5: wrong digest", true});
  EXPECT_EQ(Last<event::CheckpointRejected>().name, "five");
  EXPECT_THAT(rewinds_, ElementsAre(5, 2));
  EXPECT_FALSE(branch_.Includes(Generation() - 1, 3)) << "given up durably";
  EXPECT_EQ(worlds_[Connection(0)].checkpoint, "two");
  CannotLoad(2, "no manifest");
  Event(CheckpointVerifiedEvent{"two", "no manifest", true});
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ended_->exit_code, 1);
  EXPECT_THAT(ended_->reason, HasSubstr("no older one"));
}

TEST_F(BadCheckpointTest, OneThatIsReadForLongIsTold) {
  StartLoading();
  CannotLoad(1, "no answer");
  Pass(seconds(598), {0, 1, 2});
  EXPECT_EQ(Count<event::CheckpointWarning>(), 0);
  for (int i = 0; i < 2; ++i) Pass(seconds(3), {0, 1, 2});
  ASSERT_EQ(Count<event::CheckpointWarning>(), 1);
  EXPECT_THAT(Last<event::CheckpointWarning>().cause, HasSubstr("checkpoint five: not read after 600 s, and there is"));
}

TEST_F(BadCheckpointTest, AHostThatLacksWhatOthersHaveIsRemovedNotTheCheckpoint) {
  StartLoading();
  CannotLoad(1, "/mnt/ck: there is no checkpoint");
  Event(CheckpointVerifiedEvent{"five", "", false});
  EXPECT_EQ(Count<event::CheckpointRejected>(), 0);
  EXPECT_THAT(Last<event::WorkerLost>().cause, HasSubstr("five, which is whole: /mnt/ck"));
  EXPECT_TRUE(LastSent<RefusedMessage>(1)->rejoin);
  ASSERT_EQ(WorldSize(), 2);
  EXPECT_EQ(worlds_[Connection(0)].checkpoint, "five");
  CannotLoad(2, "the same");
  EXPECT_THAT(Verified(), IsEmpty()) << "it is known to be whole";
  EXPECT_EQ(WorldSize(), 1);
  CannotLoad(0, "the same");
  EXPECT_EQ(WorldSize(), 0) << "nobody can load it: the run waits for a host that can";
  EXPECT_FALSE(ended_.has_value());
  EXPECT_THAT(rewinds_, ElementsAre(5));
}

// Rot, or a rule of the bucket that deletes.
TEST_F(BadCheckpointTest, WhatWasWholeOnceMayBeDamagedWhenItIsGoneBackToAgain) {
  StartLoading();
  CannotLoad(1, "/mnt/ck: there is no checkpoint");
  Event(CheckpointVerifiedEvent{"five", "", false});
  ASSERT_EQ(WorldSize(), 2);
  for (const int w : {0, 2}) Say(w, RecoveredMessage{.generation = Generation()});
  Commit({0, 2});
  for (const int w : {0, 2}) Event(DisconnectEvent{Connection(w), "killed"});
  for (const int w : {0, 2}) Join(w, {}, First(w) + (uint64_t{1} << 40));
  Pass(seconds(11), {0, 2});
  ASSERT_EQ(worlds_[Connection(0)].checkpoint, "five");
  CannotLoad(0, "shard-0-of-3.h5: wrong digest");
  EXPECT_THAT(Verified(), ElementsAre("five"));
}

TEST_F(BadCheckpointTest, WhatCannotBeVerifiedIsNotRejected) {
  StartLoading();
  CannotLoad(1, "wrong digest");
  Event(CheckpointVerifiedEvent{"five", "connection refused", false});
  EXPECT_EQ(Count<event::CheckpointRejected>(), 0);
  ASSERT_EQ(WorldSize(), 2);
  CannotLoad(2, "wrong digest");
  EXPECT_THAT(Verified(), ElementsAre("five")) << "nobody knows yet";
}

// --- what was given up --------------------------------------------------------------------------------------------

class GivenUpTest : public CheckpointTest {
 protected:
  // The state of step 5 is lost, and the run goes back to step 3.
  void GoBack() {
    CoordinatorOptions options = EverySteps(1);
    options.parallel.mirrors = 0;
    StartThree(options);
    for (int i = 0; i < 3; ++i) Commit({0, 1, 2});
    Done(3, {{"three", 3, 0, 1}});
    for (int i = 0; i < 2; ++i) Commit({0, 1, 2});
    old_ = worlds_[Connection(1)].world;
    Event(DisconnectEvent{Connection(1), "stream broken"});
    Pass(seconds(11), {0, 2});
    ASSERT_THAT(rewinds_, ElementsAre(3));
  }
  World old_;
};

TEST_F(GivenUpTest, IsExcludedDurablyBeforeTheRecordIsCut) {
  GoBack();
  EXPECT_EQ(branch_.barriers(), (std::vector<Barrier>{{1, 3}}));
  EXPECT_EQ(branch_before_rewind_, branch_);
}

TEST_F(GivenUpTest, ACheckpointThatBeginsToExistLateDoesNotCount) {
  GoBack();
  Event(CheckpointDoneEvent{4, old_.generation, "four", "", false, 100, 0, {{"four", 4, 0, 1}, {"three", 3, 0, 1}}});
  EXPECT_EQ(Count<event::CheckpointSaved>(), 1) << "that of step 3";
  Event(CheckpointsTidiedEvent{"", {{"four", 4, 0, 1}, {"three", 3, 0, 1}}});
  Commit({0, 2});  // step 4, again
  Event(DisconnectEvent{Connection(0), "stream broken"});
  Pass(seconds(11), {2});
  EXPECT_THAT(rewinds_, ElementsAre(3, 3));
  EXPECT_EQ(worlds_[Connection(2)].checkpoint, "three");
}

TEST_F(GivenUpTest, ClaimsFromBeforeDoNotBeatTheLivingRunAfterARestart) {
  GoBack();
  Commit({0, 2});  // step 4, again
  const World now = worlds_[Connection(0)].world;
  CoordinatorOptions options = EverySteps(1);
  options.parallel.mirrors = 0;
  options.recorded_step = 4;
  options.last_generation = Generation();
  options.branch = branch_;
  Start(options);
  Join(1, {old_, 5, 0, {}});
  ASSERT_NE(LastSent<RefusedMessage>(1), nullptr);
  EXPECT_TRUE(LastSent<RefusedMessage>(1)->rejoin);
  for (const int w : {0, 2}) Join(w, {now, 4, 0, {}});
  EXPECT_EQ(worlds_[Connection(0)].source, now);
  EXPECT_EQ(worlds_[Connection(0)].committed_step, 4);
}

TEST_F(GivenUpTest, WhatWasGotInAWorldThatWasGivenUpIsNoClaimEither) {
  GoBack();
  Commit({0, 2});  // step 4, again
  CoordinatorOptions options = EverySteps(1);
  options.recorded_step = 4;
  options.last_generation = Generation();
  options.branch = branch_;
  Start(options);
  Join(1, {{}, 4, 0, {}, old_});
  ASSERT_NE(LastSent<RefusedMessage>(1), nullptr);
  EXPECT_TRUE(LastSent<RefusedMessage>(1)->rejoin);
}

TEST_F(GivenUpTest, ClaimsBeyondTheRecordDoNotMakeAHoleInIt) {
  StartThree(EverySteps(100));
  for (int i = 0; i < 5; ++i) Commit({0, 1, 2});
  const World old = worlds_[Connection(1)].world;
  CoordinatorOptions options = EverySteps(100);
  options.recorded_step = 3;  // a disk that lied
  options.last_generation = 1;
  options.checkpoints = {{"two", 2, 0, 1}};
  Start(options);
  rewinds_.clear();
  for (const int w : {0, 1, 2}) Join(w, {old, 5, 0, {}});
  Pass(seconds(11), {0, 1, 2});
  EXPECT_THAT(rewinds_, ElementsAre(2));
  EXPECT_EQ(worlds_[Connection(0)].committed_step, 2);
}

TEST_F(GivenUpTest, CheckpointsAheadOfTheRunAreNotGoneBackTo) {
  CoordinatorOptions options = EverySteps(1);
  options.workers_are_new = true;
  options.recorded_step = 20;
  options.checkpoints = {{"twenty", 20, 0, 2}};  // --resume 20
  StartThree(options);
  Commit({0, 1, 2});
  Done(21, {{"fifty", 50, 0, 1}, {"twenty-one", 21, 0, Generation()}});
  for (const int w : {0, 1, 2}) Event(DisconnectEvent{Connection(w), ""});
  for (const int w : {0, 1, 2}) Join(w, {}, First(w) + (uint64_t{1} << 40));
  Pass(seconds(11), {0, 1, 2});
  EXPECT_THAT(rewinds_, ElementsAre(20, 21));
}

TEST_F(CheckpointTest, AnImportedModelIsWhereARunBegins) {
  CoordinatorOptions options = EverySteps(100);
  options.checkpoints = {{"zero", 0}};
  StartThree(options);
  EXPECT_EQ(worlds_[Connection(0)].checkpoint, "zero");
  EXPECT_EQ(worlds_[Connection(0)].committed_step, 0);
  Commit({0, 1, 2});
  EXPECT_EQ(records_.back().step, 1);
}

TEST_F(CheckpointTest, ARunWhoseCheckpointsWereTakenOverEnds) {
  StartThree(EverySteps(1));
  Commit({0, 1, 2});
  for (const int w : {0, 1, 2}) Saved(w, 1);
  Done(1, {}, "another run has taken over", /*fenced=*/true);
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ended_->exit_code, 1);
}

// --- when ------------------------------------------------------------------------------------------------------------

TEST(CheckpointSchedule, EverySecondsCountsFromTheLastOneBegun) {
  CheckpointConfig config;
  config.every_seconds = 30;
  CheckpointSchedule schedule(config);
  EXPECT_FALSE(schedule.IsDue(seconds(100), 1));
  EXPECT_FALSE(schedule.IsDue(seconds(129), 2));
  EXPECT_TRUE(schedule.IsDue(seconds(130), 3));
  schedule.OnBegun(seconds(131));
  EXPECT_FALSE(schedule.IsDue(seconds(160), 4));
  EXPECT_TRUE(schedule.IsDue(seconds(161), 5));
}

TEST(CheckpointSchedule, NeverIsNever) {
  CheckpointConfig config;
  config.every = CheckpointEvery::kNever;
  CheckpointSchedule schedule(config);
  EXPECT_FALSE(schedule.enabled());
  EXPECT_FALSE(schedule.IsDue(seconds(0), 1));
  EXPECT_FALSE(schedule.IsDue(seconds(1'000'000), 2));
}

TEST(CheckpointSchedule, AutoBalancesWhatACheckpointCostsAgainstWhatAFailureLoses) {
  CheckpointSchedule schedule{CheckpointConfig{}};
  schedule.IsDue(seconds(0), 1);
  EXPECT_FALSE(schedule.TakeNewInterval(seconds(1)).has_value()) << "nothing is measured yet";
  schedule.OnSaved(/*stall_seconds=*/0.5, /*persist_seconds=*/4);
  const auto calm = schedule.TakeNewInterval(seconds(10));
  ASSERT_TRUE(calm.has_value());
  EXPECT_NEAR(calm->seconds, std::sqrt(2 * 0.5 * 86'410), 0.1);
  EXPECT_EQ(calm->failures, 0) << "a day is an assumption";
  EXPECT_FALSE(schedule.TakeNewInterval(seconds(11)).has_value()) << "it is the same";
  for (int i = 0; i < 99; ++i) schedule.OnFailure();
  const auto stormy = schedule.TakeNewInterval(seconds(20));
  ASSERT_TRUE(stormy.has_value());
  EXPECT_NEAR(stormy->seconds, calm->seconds / 10, 0.1);
  EXPECT_EQ(stormy->failures, 99);
  schedule.OnSaved(0.5, /*persist_seconds=*/100);
  EXPECT_EQ(schedule.TakeNewInterval(seconds(20))->seconds, 100) << "the next cannot begin before the last is written";
}

}  // namespace
}  // namespace holdfast
