// One alert when an incident begins, one when it is over, whatever happens in between; told as event sequences.

#include "elastic/alerts/incident_tracker.h"

#include <chrono>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using namespace std::chrono_literals;

RunEvent WorkerJoins(const std::string& worker) { return event::WorkerJoined{worker, 2, "n", "h7", 99}; }
RunEvent WorkerIsLost(const std::string& worker, const std::string& cause = "") {
  return event::WorkerLost{worker, 2, "n", "h7", cause, 3, 7};
}
RunEvent WorkerIsSlow(const std::string& worker) {
  return event::Straggler{{.worker = worker, .rank = 2, .host = "h7", .reason = ""}};
}
RunEvent WorkerIsFast(const std::string& worker) {
  return event::StragglerResolved{{.worker = worker, .rank = 2, .host = "h7", .reason = ""}};
}
const RunEvent kPublished = event::WorldPublished{.step = 7, .reason = "because"};
const RunEvent kRecovered = event::Recovered{.reason = "because"};

class IncidentTrackerTest : public ::testing::Test {
 protected:
  /// "+key" for a trigger, "-key" for a resolve, "news" for a notice.
  std::vector<std::string> On(const RunEvent& event) {
    std::vector<std::string> told = AtOnce(event);
    for (const std::string& later : After(IncidentTracker::kGathering)) told.push_back(later);
    return told;
  }
  std::vector<std::string> AtOnce(const RunEvent& event) { return Names(tracker_.OnEvent(now_, event)); }
  std::vector<std::string> After(std::chrono::seconds time) { return Names(tracker_.OnTime(now_ += time)); }

  std::vector<std::string> Names(const std::vector<Alert>& alerts) {
    std::vector<std::string> told;
    for (const Alert& alert : alerts) {
      last_ = alert;
      const std::string key = alert.key.substr(alert.key.find('/', alert.key.find('/') + 1) + 1);
      told.push_back(alert.action == Alert::Action::kTrigger   ? "+" + key
                     : alert.action == Alert::Action::kResolve ? "-" + key
                                                               : "news");
    }
    return told;
  }

  IncidentTracker::Time now_{};
  IncidentTracker tracker_{{.name = "tiny", .directory = "/runs/tiny", .workers = 8, .total_steps = 100}};
  Alert last_;
};

TEST_F(IncidentTrackerTest, ALostWorkerIsOneIncidentUntilItIsBack) {
  EXPECT_THAT(On(WorkerIsLost("a", "killed by signal 9 (Killed)")), ElementsAre("+worker/a"));
  const std::string key = last_.key;
  EXPECT_THAT(key, MatchesRegex("holdfast/tiny-[0-9a-f]{8}/worker/a"));
  EXPECT_EQ(last_.summary, "run tiny: worker a (rank 2, host h7) lost: killed by signal 9 (Killed)");
  EXPECT_EQ(last_.source, "h7");
  EXPECT_THAT(On(kPublished), IsEmpty());  // the world without it
  EXPECT_THAT(On(kRecovered), IsEmpty());
  EXPECT_THAT(On(WorkerJoins("a")), IsEmpty());
  EXPECT_THAT(On(kPublished), IsEmpty());
  EXPECT_THAT(On(kRecovered), ElementsAre("-worker/a"));
  EXPECT_EQ(last_.key, key);
  EXPECT_THAT(On(kRecovered), IsEmpty());
}

// A worker of the node "n1", of the eight that it has.
RunEvent IsLost(int worker, const std::string& node = "n1") {
  return event::WorkerLost{.worker = node + "/" + std::to_string(worker),
                           .rank = worker,
                           .node = node,
                           .host = "host-of-" + node,
                           .cause = "connection lost"};
}

TEST_F(IncidentTrackerTest, AHostThatDiesIsOneIncidentThatNamesIt) {
  for (int i = 0; i < 8; ++i) EXPECT_THAT(AtOnce(IsLost(i)), IsEmpty());
  EXPECT_THAT(AtOnce(event::AgentLost{"n1", "host-of-n1", "connection lost"}), IsEmpty());
  EXPECT_THAT(AtOnce(IsLost(0, "n2")), IsEmpty());  // another one
  EXPECT_THAT(After(1s), IsEmpty());
  EXPECT_THAT(After(1s), ElementsAre("+node/n1", "+worker/n2/0"));
  EXPECT_THAT(After(10s), IsEmpty());
}

TEST_F(IncidentTrackerTest, TheIncidentOfAHostSaysWhatItHasLostAndWhatToDo) {
  tracker_.OnStep(7, 12'345);
  for (int i = 0; i < 2; ++i) AtOnce(IsLost(i));
  AtOnce(event::AgentLost{"n1", "host-of-n1", "no heartbeat"});
  After(2s);
  EXPECT_EQ(last_.source, "host-of-n1");
  EXPECT_EQ(last_.summary,
            "run tiny: host host-of-n1 (node n1) has lost its agent and 2 workers (n1/0, n1/1): connection lost");
  EXPECT_THAT(last_.advice, HasSubstr("holdfast agent"));
  EXPECT_THAT(last_.advice, HasSubstr("holdfast status /runs/tiny"));
  EXPECT_EQ(last_.run.step, 7);
  EXPECT_EQ(last_.run.tokens, 12'345);
  EXPECT_EQ(last_.run.directory, "/runs/tiny");
  EXPECT_EQ(last_.run.total_steps, 100);
}

TEST_F(IncidentTrackerTest, AHostIsBackWhenAllThatItLostIsBack) {
  for (int i = 0; i < 2; ++i) AtOnce(IsLost(i));
  EXPECT_THAT(After(2s), ElementsAre("+node/n1"));
  EXPECT_THAT(On(IsLost(2)), IsEmpty());                                             // late, of the same cause
  EXPECT_THAT(On(event::AgentLost{"n1", "host-of-n1", "no heartbeat"}), IsEmpty());  // later still
  for (int i = 0; i < 2; ++i) On(WorkerJoins("n1/" + std::to_string(i)));
  On(kPublished);
  EXPECT_THAT(On(kRecovered), IsEmpty());
  On(WorkerJoins("n1/2"));
  On(kPublished);
  EXPECT_THAT(On(kRecovered), ElementsAre("-node/n1"));
}

TEST_F(IncidentTrackerTest, AnAgentThatGoesAfterItsOnlyWorkerIsNoNews) {
  EXPECT_THAT(On(IsLost(0)), ElementsAre("+worker/n1/0"));
  EXPECT_THAT(On(event::AgentLost{"n1", "host-of-n1", "no heartbeat"}), IsEmpty());
}

TEST_F(IncidentTrackerTest, WhatIsOverIsNewsWhenItBeginsAgain) {
  const event::AgentLost agent{"n1", "host-of-n1", "no heartbeat"};
  const event::Recovered whole{.size = 8, .reason = ""};
  EXPECT_THAT(On(IsLost(0)), ElementsAre("+worker/n1/0"));
  EXPECT_THAT(On(whole), ElementsAre("-worker/n1/0"));
  EXPECT_THAT(On(agent), ElementsAre("+node/n1"));
  EXPECT_THAT(On(IsLost(0)), IsEmpty()) << "of a host that is known to be lost";
  EXPECT_THAT(On(whole), ElementsAre("-node/n1"));
  EXPECT_THAT(On(IsLost(0)), ElementsAre("+worker/n1/0"));
  EXPECT_THAT(On(IsLost(1)), ElementsAre("+worker/n1/1"));
  EXPECT_THAT(On(agent), IsEmpty());
  On(WorkerJoins("n1/1"));
  On(kPublished);
  EXPECT_THAT(On(kRecovered), ElementsAre("-worker/n1/1"));
  EXPECT_THAT(On(agent), IsEmpty()) << "the other one is still away";
}

TEST_F(IncidentTrackerTest, AnAgentAloneIsLostUntilItIsBack) {
  const event::AgentJoined joins{.node = "n1", .host = "host-of-n1", .workers = 8};
  const event::AgentLost lost{"n1", "host-of-n1", ""};
  EXPECT_THAT(AtOnce(lost), IsEmpty());
  EXPECT_THAT(On(joins), IsEmpty());  // a hiccup
  EXPECT_THAT(On(lost), ElementsAre("+node/n1"));
  EXPECT_EQ(last_.summary, "run tiny: host host-of-n1 (node n1) has lost its agent: connection lost");
  EXPECT_THAT(On(joins), ElementsAre("-node/n1"));
}

TEST_F(IncidentTrackerTest, AHostThatIsReplacedByAnotherIsBack) {
  for (int i = 0; i < 2; ++i) AtOnce(IsLost(i));
  EXPECT_THAT(After(2s), ElementsAre("+node/n1"));
  EXPECT_THAT(On(event::Recovered{.size = 7, .reason = ""}), IsEmpty());
  EXPECT_THAT(On(event::Recovered{.size = 8, .reason = ""}), ElementsAre("-node/n1"));
  EXPECT_THAT(last_.summary, HasSubstr("the run has all its workers again"));
}

TEST_F(IncidentTrackerTest, WhatIsBackBeforeItWasGatheredIsToldAndOver) {
  AtOnce(IsLost(0));
  AtOnce(WorkerJoins("n1/0"));
  AtOnce(kPublished);
  EXPECT_THAT(AtOnce(kRecovered), ElementsAre("+worker/n1/0", "-worker/n1/0"));
  AtOnce(IsLost(0));
  EXPECT_THAT(AtOnce(kRecovered), IsEmpty());  // without it
  EXPECT_THAT(AtOnce(event::Recovered{.size = 8, .reason = ""}), ElementsAre("+worker/n1/0", "-worker/n1/0"));
}

TEST_F(IncidentTrackerTest, WhatIsGatheredWhenTheCoordinatorEndsIsTold) {
  AtOnce(IsLost(0));
  EXPECT_THAT(Names(tracker_.Close()), ElementsAre("+worker/n1/0"));
  EXPECT_THAT(Names(tracker_.Close()), IsEmpty());
}

TEST_F(IncidentTrackerTest, RunsOfOneNameAreToldApartAndARunThatIsResumedIsTheSame) {
  const auto key = [](const std::string& directory) {
    IncidentTracker tracker({.name = "tiny", .directory = directory});
    return tracker.OnEvent({}, event::Paused{"disk full"}).at(0).key;
  };
  EXPECT_NE(key("/runs/tiny"), key("/other/tiny"));
  EXPECT_EQ(key("/runs/tiny"), key("/runs/../runs/tiny"));
}

TEST_F(IncidentTrackerTest, ALinkThatIsCutIsOneIncidentUntilItIsBack) {
  const event::LinkFields link{.host = "h1", .peer_host = "h2", .worker = "", .peer = "", .step = 7, .without = "n1/2"};
  EXPECT_THAT(On(event::LinkCut{link}), ElementsAre("+link/h1/h2"));
  EXPECT_EQ(last_.summary, "run tiny: no link between h1 and h2 in step 7; continuing without n1/2");
  EXPECT_THAT(On(event::LinkCut{link}), IsEmpty());
  EXPECT_THAT(On(kRecovered), IsEmpty());
  EXPECT_THAT(On(event::LinkBack{link}), ElementsAre("-link/h1/h2"));
}

TEST_F(IncidentTrackerTest, SlownessAndStandstillsAreIncidents) {
  EXPECT_THAT(On(event::StepSlow{}), ElementsAre("+pace"));
  EXPECT_THAT(On(event::LinkSlow{.worker = "a", .host = "h7", .peer = "", .peer_host = ""}), ElementsAre("+slow_link"));
  EXPECT_THAT(On(event::StepSlowResolved{}), ElementsAre("-slow_link", "-pace"));
  EXPECT_THAT(On(event::TooFewWorkers{}), ElementsAre("+size"));
  EXPECT_THAT(On(kRecovered), ElementsAre("-size"));
  EXPECT_THAT(On(event::Paused{"disk full"}), ElementsAre("+disk"));
  EXPECT_THAT(On(event::Resumed{3.0}), ElementsAre("-disk"));
}

// At its end a run that waits for room makes a world for each attempt, which recovers, and says once that it is paused.
TEST_F(IncidentTrackerTest, APauseIsNotOverWithAWorldThatTriesAgain) {
  EXPECT_THAT(On(event::Paused{"disk full"}), ElementsAre("+disk"));
  EXPECT_THAT(On(kPublished), IsEmpty());
  EXPECT_THAT(On(kRecovered), IsEmpty());
  EXPECT_THAT(On(event::Resumed{30.0}), ElementsAre("-disk"));
}

TEST_F(IncidentTrackerTest, CheckpointsThatFailAgainAndAgainAreAnIncidentUntilOneIsWritten) {
  const auto fails = [](int64_t step) { return event::CheckpointFailed{step, "s3://b/c: Access Denied"}; };
  const auto exists = [](int64_t step) { return event::CheckpointSaved{.step = step, .name = "c"}; };
  for (const int64_t step : {10, 20}) EXPECT_THAT(On(fails(step)), IsEmpty());
  EXPECT_THAT(On(exists(30)), IsEmpty());
  for (const int64_t step : {40, 50}) EXPECT_THAT(On(fails(step)), IsEmpty());
  EXPECT_THAT(On(fails(60)), ElementsAre("+checkpoints"));
  EXPECT_EQ(last_.severity, Alert::Severity::kError);
  EXPECT_EQ(last_.summary,
            "run tiny: 3 checkpoints have failed and none was written since that of step 30; that of step 60: "
            "s3://b/c: Access Denied");
  EXPECT_THAT(last_.advice, HasSubstr("credentials"));
  EXPECT_THAT(On(fails(70)), IsEmpty());
  EXPECT_THAT(On(kRecovered), IsEmpty());
  EXPECT_THAT(On(exists(80)), ElementsAre("-checkpoints"));
  EXPECT_THAT(On(fails(90)), IsEmpty()) << "counts from the one that was written";
}

TEST_F(IncidentTrackerTest, ACheckpointThatIsWrittenForLongIsAnIncidentUntilOneExists) {
  EXPECT_THAT(On(event::CheckpointWarning{.step = 7, .cause = "cannot delete step-1"}), IsEmpty());
  const std::string cause = "checkpoint of step 7: not written after 600 s by a on h1";
  EXPECT_THAT(On(event::CheckpointWarning{.step = 7, .cause = cause, .seconds = 600}), ElementsAre("+checkpoints"));
  EXPECT_EQ(last_.summary, "run tiny: " + cause);
  EXPECT_THAT(On(event::CheckpointSaved{.step = 7, .name = "c"}), ElementsAre("-checkpoints"));
}

// As at the end of a run, where each attempt fails.
TEST_F(IncidentTrackerTest, CheckpointsThatFailWhileTheRunIsPausedForThemAreNoIncidentBesideIt) {
  EXPECT_THAT(On(event::Paused{"disk full"}), ElementsAre("+disk"));
  for (int i = 0; i < 5; ++i) EXPECT_THAT(On(event::CheckpointFailed{100, "disk full"}), IsEmpty());
}

TEST_F(IncidentTrackerTest, AChangeOfCoordinatorsIsAnIncidentUntilWorkersAreBack) {
  EXPECT_THAT(On(event::CoordinatorChanged{"process 7 on h1 has been silent for 5000 ms"}),
              ElementsAre("+coordinator"));
  EXPECT_EQ(
      last_.summary,
      "run tiny: another coordinator leads: process 7 on h1 has been silent for 5000 ms; workers come back to it");
  EXPECT_THAT(On(kPublished), IsEmpty());
  EXPECT_THAT(On(kRecovered), ElementsAre("-coordinator"));
}

TEST_F(IncidentTrackerTest, ANodeThatWasToldToLeaveIsNoIncident) {
  const auto lost = [](const std::string& node) {
    return event::WorkerLost{.worker = node + "/0", .node = node, .host = "h1", .cause = "killed by signal 9 (Killed)"};
  };
  On(event::NodeLeaving{.node = "n1", .host = "h1"});
  EXPECT_THAT(On(lost("n1")), IsEmpty());
  EXPECT_THAT(On(lost("n2")), ElementsAre("+worker/n2/0"));
  On(event::NodeReturned{.node = "n1", .host = "h1"});
  EXPECT_THAT(On(lost("n1")), ElementsAre("+worker/n1/0"));
}

TEST_F(IncidentTrackerTest, JoiningDuringARecoveryIsNotBeingBack) {
  On(WorkerIsLost("a"));
  On(kPublished);
  On(WorkerJoins("a"));
  EXPECT_THAT(On(kRecovered), IsEmpty());
  On(kPublished);
  EXPECT_THAT(On(kRecovered), ElementsAre("-worker/a"));
}

TEST_F(IncidentTrackerTest, LostAgainBeforeItWasBackIsTheSameIncident) {
  EXPECT_THAT(On(WorkerIsLost("a")), ElementsAre("+worker/a"));
  On(WorkerJoins("a"));
  On(kPublished);
  EXPECT_THAT(On(WorkerIsLost("a")), IsEmpty());
  On(kPublished);
  EXPECT_THAT(On(kRecovered), IsEmpty());
  On(WorkerJoins("a"));
  On(kPublished);
  EXPECT_THAT(On(kRecovered), ElementsAre("-worker/a"));
  EXPECT_THAT(On(WorkerIsLost("a")), ElementsAre("+worker/a"));  // a new one
}

TEST_F(IncidentTrackerTest, AHungWorkerIsLostWithoutASecondAlert) {
  EXPECT_THAT(
      On(event::WorkerHung{
          .worker = "a", .node = "", .host = "", .phase = Phase::kReduce, .seconds = 3.25, .reason = "no heartbeat"}),
      ElementsAre("+worker/a"));
  EXPECT_THAT(last_.summary, HasSubstr("worker a hung in phase reduce: no heartbeat for 3.25 s"));
  EXPECT_THAT(On(WorkerIsLost("a")), IsEmpty());
}

TEST_F(IncidentTrackerTest, WorkersAreToldApart) {
  EXPECT_THAT(On(WorkerIsLost("a")), ElementsAre("+worker/a"));
  EXPECT_THAT(On(WorkerIsLost("b")), ElementsAre("+worker/b"));
  On(WorkerJoins("b"));
  On(kPublished);
  EXPECT_THAT(On(kRecovered), ElementsAre("-worker/b"));
}

TEST_F(IncidentTrackerTest, AStragglerUntilItIsFastOrGone) {
  EXPECT_THAT(On(WorkerIsSlow("a")), ElementsAre("+straggler/a"));
  EXPECT_THAT(On(WorkerIsSlow("a")), IsEmpty());
  EXPECT_THAT(On(WorkerIsFast("a")), ElementsAre("-straggler/a"));
  EXPECT_THAT(On(WorkerIsFast("a")), IsEmpty());
  On(WorkerIsSlow("a"));
  EXPECT_THAT(On(WorkerIsLost("a")), ElementsAre("-straggler/a", "+worker/a"));
  On(event::Straggler{{.worker = "b",
                       .rank = 1,
                       .host = "h",
                       .factor = 1.26,
                       .own_factor = 1.58,
                       .reason = "slower than it used to be"}});
  EXPECT_THAT(last_.summary,
              ::testing::EndsWith("is slow: 1.58 times as long as it used to take, 1.26 times the median in phase "
                                  "forward_backward"));
  On(event::Straggler{{.worker = "c",
                       .rank = 2,
                       .host = "h",
                       .factor = 1.004,
                       .own_factor = 2,
                       .reason = "slower than it used to be"}});
  EXPECT_THAT(last_.summary,
              ::testing::EndsWith("is slow: 2 times as long as it used to take, as long as the median in "
                                  "phase forward_backward"));
}

TEST_F(IncidentTrackerTest, NoProgressMissingStateAndDifferingBitsUntilTheRunGoesOn) {
  EXPECT_THAT(On(event::NoProgress{}), ElementsAre("+progress"));
  EXPECT_THAT(On(event::StateMissing{}), ElementsAre("+state"));
  EXPECT_THAT(On(event::Rewind{}), IsEmpty());
  EXPECT_THAT(On(event::BitsDiffer{}), ElementsAre("+bits"));
  EXPECT_THAT(On(kRecovered), ElementsAre("-progress", "-state", "-bits"));
}

TEST_F(IncidentTrackerTest, CopiesThatDifferAreABrokenHostAndNoLostState) {
  EXPECT_THAT(On(event::CopiesDiffer{.step = 7, .workers = "a on h1, b on h2"}), ElementsAre("+bits"));
  EXPECT_EQ(last_.summary, "run tiny: copies of the state of step 7 differ (faulty memory): a on h1, b on h2");
  EXPECT_THAT(last_.advice, HasSubstr("test its memory"));
  EXPECT_THAT(On(kRecovered), ElementsAre("-bits"));
  EXPECT_THAT(On(event::CopiesDiffer{.step = 7, .workers = "a on h1", .computed_with = true}), ElementsAre("+bits"));
  EXPECT_THAT(last_.summary, HasSubstr("a on h1; steps before may have been computed with a wrong one"));
  const std::string why = "two copies of the state differ, and neither has a majority: a on h1, b on h2";
  EXPECT_THAT(On(event::Rewind{.from_step = 6, .step = 4, .name = "four", .reason = why}), ElementsAre("+state"));
  EXPECT_EQ(last_.summary, "run tiny: rewinding from step 6 to step 4: " + why);
  EXPECT_THAT(On(kRecovered), ElementsAre("-state", "-bits"));
}

// In containers pids and hosts repeat, so which process joins is not told by them.
TEST_F(IncidentTrackerTest, AWorkerIsKeptOutUntilTheCoordinatorSaysThatAnotherProcessHasItsName) {
  const event::KeptOut kept_out{.worker = "a", .node = "n", .host = "h7", .pid = 99, .contradictions = 3};
  EXPECT_THAT(On(kept_out), ElementsAre("+kept_out/a"));
  EXPECT_EQ(last_.summary,
            "run tiny: worker a (host h7) is kept out: most had other bits than it 3 times within a day (faulty "
            "processor or memory)");
  EXPECT_THAT(last_.advice, HasSubstr("Test the processor and memory"));
  EXPECT_THAT(On(event::WorkerJoined{"a", -1, "n", "h7", 99}), IsEmpty());
  EXPECT_THAT(On(event::WorkerJoined{"a", -1, "n", "h8", 99}), IsEmpty());
  EXPECT_THAT(On(kRecovered), IsEmpty());
  EXPECT_THAT(On(event::KeptOutResolved{"a", "n", "h7", 99}), ElementsAre("-kept_out/a"));
  EXPECT_THAT(On(kept_out), ElementsAre("+kept_out/a"));
}

// The coordinator before told of it, and this one knows of no other incident of that one's.
TEST_F(IncidentTrackerTest, AWorkerThatWasKeptOutByAnEarlierCoordinatorIsToldToBeBack) {
  EXPECT_THAT(On(event::KeptOutResolved{.worker = "a", .node = "n", .host = "h7", .pid = 99}),
              ElementsAre("-kept_out/a"));
  EXPECT_EQ(last_.summary, "run tiny: worker a is kept out - another process has its name");
}

// As where a coordinator was started again with another config: the run stands still, and no state is known to be lost.
TEST_F(IncidentTrackerTest, AHolderOfStateThatIsRefusedIsAnIncident) {
  const auto refused = [](const std::string& worker) {
    return event::WorkerRefused{
        .worker = worker, .node = "n", .host = "h7", .cause = "has another configuration than this run (optimizer.lr)"};
  };
  EXPECT_THAT(On(refused("a")), ElementsAre("+settings"));
  EXPECT_EQ(last_.summary,
            "run tiny: worker a (host h7) holds state and is refused: it has another configuration than "
            "this run (optimizer.lr)");
  EXPECT_THAT(last_.advice, HasSubstr("with the directory, config and data of the run"));
  EXPECT_THAT(On(refused("b")), IsEmpty());
  EXPECT_THAT(On(kRecovered), ElementsAre("-settings"));
}

TEST_F(IncidentTrackerTest, MissingStateNamesItsHoldersIfItHasSome) {
  On(event::StateMissing{{.step = 7, .holders = ""}});
  EXPECT_EQ(last_.summary, "run tiny: no connected worker holds the state of step 7");
  On(kRecovered);
  On(event::StateMissing{{.step = 9, .holders = "a, b"}});
  EXPECT_EQ(last_.summary, "run tiny: no holder of a part of the state of step 9 is connected: a, b");
}

TEST_F(IncidentTrackerTest, ARunThatFailsStaysOpen) {
  On(WorkerIsLost("a"));
  On(event::StateLost{});
  EXPECT_THAT(On(event::RunFailed{{1, 7, "because"}}), ElementsAre("-state", "-worker/a", "+run"));
  EXPECT_EQ(last_.severity, Alert::Severity::kCritical);
  EXPECT_EQ(last_.summary, "run tiny: failed at step 7: because");
}

TEST_F(IncidentTrackerTest, ARunThatEndsIsNews) {
  On(WorkerIsSlow("a"));
  EXPECT_THAT(On(event::RunFinished{{0, 7, "because"}}), ElementsAre("-straggler/a", "news"));
  EXPECT_THAT(IncidentTracker({.name = "x"}).OnEvent({}, event::RunStopped{{143, 7, "because"}}).size(), 1u);
}

TEST_F(IncidentTrackerTest, OtherEventsAreNobodysBusiness) {
  for (const RunEvent& event : std::vector<RunEvent>{WorkerJoins("a"), event::AgentJoined{}, event::RunStarted{},
                                                     event::Validation{}, event::AlertFailed{}, event::Rebalanced{}}) {
    EXPECT_THAT(On(event), IsEmpty()) << EventName(event);
  }
}

}  // namespace
}  // namespace holdfast
