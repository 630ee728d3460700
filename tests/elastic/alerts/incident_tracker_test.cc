// One alert when an incident begins, one when it is over, whatever happens in between; told as event sequences.

#include "elastic/alerts/incident_tracker.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

RunEvent Worker(const std::string& event, const std::string& worker, const std::string& cause = "") {
  return {event, {{"worker", worker}, {"rank", int64_t{2}}, {"host", "h7"}, {"cause", cause}}};
}
RunEvent Plain(const std::string& event) { return {event, {{"step", int64_t{7}}, {"reason", "because"}}}; }

class IncidentTrackerTest : public ::testing::Test {
 protected:
  /// "+key" for a trigger, "-key" for a resolve, "news" for a notice.
  std::vector<std::string> On(const RunEvent& event) {
    std::vector<std::string> told;
    for (const Alert& alert : tracker_.OnEvent(event)) {
      last_ = alert;
      const std::string key = alert.key.substr(alert.key.find('/', alert.key.find('/') + 1) + 1);
      told.push_back(alert.action == Alert::Action::kTrigger   ? "+" + key
                     : alert.action == Alert::Action::kResolve ? "-" + key
                                                               : "news");
    }
    return told;
  }

  IncidentTracker tracker_{"tiny"};
  Alert last_;
};

TEST_F(IncidentTrackerTest, ALostWorkerIsOneIncidentUntilItIsBack) {
  EXPECT_THAT(On(Worker("worker_lost", "a", "killed by signal 9 (Killed)")), ElementsAre("+worker/a"));
  EXPECT_EQ(last_.key, "holdfast/tiny/worker/a");
  EXPECT_EQ(last_.summary, "run tiny: worker a (rank 2, host h7) lost: killed by signal 9 (Killed)");
  EXPECT_EQ(last_.source, "h7");
  EXPECT_THAT(On(Plain("world_published")), IsEmpty());  // the world without it
  EXPECT_THAT(On(Plain("recovered")), IsEmpty());
  EXPECT_THAT(On(Worker("worker_joined", "a")), IsEmpty());
  EXPECT_THAT(On(Plain("world_published")), IsEmpty());
  EXPECT_THAT(On(Plain("recovered")), ElementsAre("-worker/a"));
  EXPECT_EQ(last_.key, "holdfast/tiny/worker/a");
  EXPECT_THAT(On(Plain("recovered")), IsEmpty());
}

TEST_F(IncidentTrackerTest, ALinkThatIsCutIsOneIncidentUntilItIsBack) {
  const auto link = [](const std::string& name, const std::string& without) {
    return RunEvent{name, {{"host", "h1"}, {"peer_host", "h2"}, {"step", int64_t{7}}, {"without", without}}};
  };
  EXPECT_THAT(On(link("link_cut", "n1/2")), ElementsAre("+link/h1/h2"));
  EXPECT_EQ(last_.summary, "run tiny: no link between h1 and h2 in step 7; going on without n1/2");
  EXPECT_THAT(On(link("link_cut", "n1/2")), IsEmpty());
  EXPECT_THAT(On(Plain("recovered")), IsEmpty());
  EXPECT_THAT(On(link("link_back", "")), ElementsAre("-link/h1/h2"));
}

TEST_F(IncidentTrackerTest, SlownessAndStandstillsAreIncidents) {
  EXPECT_THAT(On(Plain("step_slow")), ElementsAre("+pace"));
  EXPECT_THAT(On(Worker("link_slow", "a")), ElementsAre("+slow_link"));
  EXPECT_THAT(On(Plain("step_slow_resolved")), ElementsAre("-slow_link", "-pace"));
  EXPECT_THAT(On(Plain("too_few_workers")), ElementsAre("+size"));
  EXPECT_THAT(On(Plain("recovered")), ElementsAre("-size"));
  EXPECT_THAT(On({"paused", {{"cause", "disk full"}}}), ElementsAre("+disk"));
  EXPECT_THAT(On({"resumed", {{"seconds", 3.0}}}), ElementsAre("-disk"));
}

TEST_F(IncidentTrackerTest, ANodeThatWasToldToLeaveIsNoIncident) {
  const auto lost = [](const std::string& node) {
    return RunEvent{"worker_lost", {{"worker", node + "/0"}, {"node", node}, {"cause", "killed by signal 9 (Killed)"}}};
  };
  On({"node_leaving", {{"node", "n1"}, {"host", "h1"}}});
  EXPECT_THAT(On(lost("n1")), IsEmpty());
  EXPECT_THAT(On(lost("n2")), ElementsAre("+worker/n2/0"));
  On({"node_returned", {{"node", "n1"}, {"host", "h1"}}});
  EXPECT_THAT(On(lost("n1")), ElementsAre("+worker/n1/0"));
}

TEST_F(IncidentTrackerTest, JoiningDuringARecoveryIsNotBeingBack) {
  On(Worker("worker_lost", "a"));
  On(Plain("world_published"));
  On(Worker("worker_joined", "a"));
  EXPECT_THAT(On(Plain("recovered")), IsEmpty());
  On(Plain("world_published"));
  EXPECT_THAT(On(Plain("recovered")), ElementsAre("-worker/a"));
}

TEST_F(IncidentTrackerTest, LostAgainBeforeItWasBackIsTheSameIncident) {
  EXPECT_THAT(On(Worker("worker_lost", "a")), ElementsAre("+worker/a"));
  On(Worker("worker_joined", "a"));
  On(Plain("world_published"));
  EXPECT_THAT(On(Worker("worker_lost", "a")), IsEmpty());
  On(Plain("world_published"));
  EXPECT_THAT(On(Plain("recovered")), IsEmpty());
  On(Worker("worker_joined", "a"));
  On(Plain("world_published"));
  EXPECT_THAT(On(Plain("recovered")), ElementsAre("-worker/a"));
  EXPECT_THAT(On(Worker("worker_lost", "a")), ElementsAre("+worker/a"));  // a new one
}

TEST_F(IncidentTrackerTest, AHungWorkerIsLostWithoutASecondAlert) {
  EXPECT_THAT(
      On({"worker_hung", {{"worker", "a"}, {"phase", "reduce"}, {"reason", "no heartbeat"}, {"seconds", 3.25}}}),
      ElementsAre("+worker/a"));
  EXPECT_THAT(last_.summary, HasSubstr("worker a hangs in phase reduce: no heartbeat for 3.25 s"));
  EXPECT_THAT(On(Worker("worker_lost", "a")), IsEmpty());
}

TEST_F(IncidentTrackerTest, WorkersAreToldApart) {
  EXPECT_THAT(On(Worker("worker_lost", "a")), ElementsAre("+worker/a"));
  EXPECT_THAT(On(Worker("worker_lost", "b")), ElementsAre("+worker/b"));
  On(Worker("worker_joined", "b"));
  On(Plain("world_published"));
  EXPECT_THAT(On(Plain("recovered")), ElementsAre("-worker/b"));
}

TEST_F(IncidentTrackerTest, AStragglerUntilItIsFastOrGone) {
  EXPECT_THAT(On(Worker("straggler", "a")), ElementsAre("+straggler/a"));
  EXPECT_THAT(On(Worker("straggler", "a")), IsEmpty());
  EXPECT_THAT(On(Worker("straggler_resolved", "a")), ElementsAre("-straggler/a"));
  EXPECT_THAT(On(Worker("straggler_resolved", "a")), IsEmpty());
  On(Worker("straggler", "a"));
  EXPECT_THAT(On(Worker("worker_lost", "a")), ElementsAre("-straggler/a", "+worker/a"));
}

TEST_F(IncidentTrackerTest, NoProgressMissingStateAndDifferingBitsUntilTheRunGoesOn) {
  EXPECT_THAT(On(Plain("no_progress")), ElementsAre("+progress"));
  EXPECT_THAT(On(Plain("state_missing")), ElementsAre("+state"));
  EXPECT_THAT(On(Plain("rewind")), IsEmpty());
  EXPECT_THAT(On(Plain("bits_differ")), ElementsAre("+bits"));
  EXPECT_THAT(On(Plain("recovered")), ElementsAre("-progress", "-state", "-bits"));
}

TEST_F(IncidentTrackerTest, ARunThatFailsStaysOpen) {
  On(Worker("worker_lost", "a"));
  On(Plain("state_lost"));
  EXPECT_THAT(On(Plain("run_failed")), ElementsAre("-state", "-worker/a", "+run"));
  EXPECT_EQ(last_.severity, Alert::Severity::kCritical);
  EXPECT_EQ(last_.summary, "run tiny: failed at step 7: because");
}

TEST_F(IncidentTrackerTest, ARunThatEndsIsNews) {
  On(Worker("straggler", "a"));
  EXPECT_THAT(On(Plain("run_finished")), ElementsAre("-straggler/a", "news"));
  EXPECT_THAT(IncidentTracker("x").OnEvent(Plain("run_stopped")).size(), 1u);
}

TEST_F(IncidentTrackerTest, OtherEventsAreNobodysBusiness) {
  for (const char* event :
       {"worker_joined", "agent_joined", "run_started", "validation", "alert_failed", "rebalanced"}) {
    EXPECT_THAT(On(Worker(event, "a")), IsEmpty()) << event;
  }
}

}  // namespace
}  // namespace holdfast
