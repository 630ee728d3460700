// The lines of events.jsonl are a contract with whoever reads them: they are written out here for each kind of event,
// and every kind comes back from its line as it was.

#include "elastic/coordinator/event_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "elastic/coordinator/event_text.h"

namespace holdfast {
namespace {

struct Expected {
  RunEvent event;
  std::string fields;  // of its line, after time and name
};

std::vector<Expected> EachKind() {
  const event::StragglerFields straggler{"a", 1, "h", 2.5, 1.5, Phase::kForwardBackward, 7, "r"};
  const event::LinkFields link{"h1", "h2", "a", "b", 4, 7, "a, c"};
  const event::EndFields end{143, 7, "r"};
  const std::string straggler_line =
      R"("worker":"a","rank":1,"host":"h","factor":2.5,"own_factor":1.5,"phase":"forward_backward","step":7,)"
      R"("reason":"r")";
  const std::string link_line =
      R"("host":"h1","peer_host":"h2","worker":"a","peer":"b","links":4,"step":7,"without":"a, c")";
  const std::string end_line = R"("exit_code":143,"step":7,"reason":"r")";
  return {
      {event::AgentJoined{"n", "h", 8}, R"("node":"n","host":"h","workers":8)"},
      {event::AgentLost{"n", "h", "c"}, R"("node":"n","host":"h","cause":"c")"},
      {event::AgentRefused{"n", "h", 9, "g", 7}, R"("node":"n","host":"h","pid":9,"other_host":"g","other_pid":7)"},
      {event::WorkerJoined{"a", -1, "n", "h", 99}, R"("worker":"a","rank":-1,"node":"n","host":"h","pid":99)"},
      {event::WorkerRefused{"a", "n", "h", "c"}, R"("worker":"a","node":"n","host":"h","cause":"c")"},
      {event::WorkerLost{"a", 1, "n", "h", "c", 3, 7},
       R"("worker":"a","rank":1,"node":"n","host":"h","cause":"c","generation":3,"step":7)"},
      {event::WorkerHung{"a", 1, "n", "h", Phase::kReduce, 7, 0.5, "r"},
       R"("worker":"a","rank":1,"node":"n","host":"h","phase":"reduce","step":7,"seconds":0.5,"reason":"r")"},
      {event::WorkerExited{"a", "c", true}, R"("worker":"a","cause":"c","restarting":1)"},
      {event::Quarantined{"a", 3, 60}, R"("worker":"a","failures":3,"seconds":60.0)"},
      {event::KeptOut{"a", "n", "h", 99, 3}, R"("worker":"a","node":"n","host":"h","pid":99,"contradictions":3)"},
      {event::KeptOutResolved{"a", "n", "h", 99}, R"("worker":"a","node":"n","host":"h","pid":99)"},
      {event::NodeLeaving{"n", "h", 7}, R"("node":"n","host":"h","step":7)"},
      {event::NodeLeft{"n", 7}, R"("node":"n","step":7)"},
      {event::NodeReturned{"n", "h"}, R"("node":"n","host":"h")"},
      {event::WorldPublished{3, 4, 7, "r"}, R"("generation":3,"size":4,"step":7,"reason":"r")"},
      {event::Recovered{3, 4, "r", 0.5, 1, 1.5, 2, 2.5, 1024},
       R"("generation":3,"size":4,"reason":"r","detect_seconds":0.5,"abort_seconds":1.0,"rendezvous_seconds":1.5,)"
       R"("transfer_seconds":2.0,"first_step_seconds":2.5,"bytes":1024)"},
      {event::MirrorsMissing{3, 7, 1024}, R"("generation":3,"step":7,"bytes":1024)"},
      {event::MirrorsComplete{3, 7, 0.5, 1024}, R"("generation":3,"step":7,"seconds":0.5,"bytes":1024)"},
      {event::StepFailed{"a", 1, "h", 7, Phase::kVote, "c", {0, 2}},
       R"("worker":"a","rank":1,"host":"h","step":7,"phase":"vote","cause":"c","suspects":"0,2")"},
      {event::BitsDiffer{7, "a, b", "01/02, 01/03", true},
       R"("step":7,"workers":"a, b","bits":"01/02, 01/03","majority":1)"},
      {event::CopiesDiffer{7, "a on h", 5, 2, true, true},
       R"("step":7,"workers":"a on h","chunk":5,"chunks":2,"majority":1,"computed_with":1)"},
      {event::NoProgress{3, 7, 0.5}, R"("generation":3,"step":7,"seconds":0.5)"},
      {event::NoGradient{7, 10.5}, R"("step":7,"loss":10.5)"},
      {event::TooFewWorkers{7, "d", 0.5}, R"("step":7,"detail":"d","seconds":0.5)"},
      {event::Straggler{straggler}, straggler_line},
      {event::StragglerResolved{straggler}, straggler_line},
      {event::Rebalanced{7, {3, 1, 4}}, R"("step":7,"microbatches":"3,1,4")"},
      {event::StepSlow{7, 5, 0.5, "a on h in vote"},
       R"("step":7,"seconds":5.0,"usual_seconds":0.5,"waiting_for":"a on h in vote")"},
      {event::StepSlowResolved{7, 1, 0.5}, R"("step":7,"seconds":1.0,"usual_seconds":0.5)"},
      {event::LinkCut{link}, link_line},
      {event::LinkBack{link}, link_line},
      {event::LinkSlow{"a", "h", "b", "k", 80, 0.5, 7},
       R"("worker":"a","host":"h","peer":"b","peer_host":"k","milliseconds":80.0,"usual_milliseconds":0.5,"step":7)"},
      {event::StateMissing{{7, "a on n"}}, R"("step":7,"holders":"a on n")"},
      {event::StateLost{{7, "a on n"}}, R"("step":7,"holders":"a on n")"},
      {event::CheckpointSaved{7, "step-7", 1024, 2, 0.5, 1},
       R"("step":7,"name":"step-7","bytes":1024,"seconds":2.0,"stall_seconds":0.5,"skipped":1)"},
      {event::CheckpointFailed{7, "c"}, R"("step":7,"cause":"c")"},
      {event::CheckpointRejected{"step-7", "c"}, R"("name":"step-7","cause":"c")"},
      {event::CheckpointWarning{7, "c", 2.5}, R"("step":7,"cause":"c","seconds":2.5)"},
      {event::CheckpointInterval{60, 0.5, 3600, 2},
       R"("seconds":60.0,"cost_seconds":0.5,"failure_seconds":3600.0,"failures":2)"},
      {event::DataChanged{"step-7"}, R"("name":"step-7")"},
      {event::KernelsChanged{"step-7"}, R"("name":"step-7")"},
      {event::Rewind{9, 7, "step-7", "r"}, R"("from_step":9,"step":7,"name":"step-7","reason":"r")"},
      {event::RunStarted{4, 0, 100, 6400, "0b"},
       R"("workers":4,"step":0,"total_steps":100,"data_tokens":6400,"data_digest":"0b")"},
      {event::CoordinatorChanged{"c"}, R"("cause":"c")"},
      {event::Paused{"c"}, R"("cause":"c")"},
      {event::Resumed{0.5}, R"("seconds":0.5)"},
      {event::Validation{7, 2.5}, R"("step":7,"loss":2.5)"},
      {event::EarlyStop{9, 2.5, 6, 2.25, 2, 3, 2.5},
       R"("step":9,"loss":2.5,"best_step":6,"best_loss":2.25,"validations":2,"fall_step":3,"fall_loss":2.5)"},
      {event::StopRequested{15, "a", 7}, R"("signal":15,"by":"a","step":7)"},
      {event::AlertFailed{"c"}, R"("cause":"c")"},
      {event::RunFinished{end}, end_line},
      {event::RunStopped{end}, end_line},
      {event::RunFailed{end}, end_line},
  };
}

// JSON has no number for it; 0 would be the best of all losses.
TEST(EventJson, ALossThatIsNotFiniteComesBackAsThat) {
  const std::string line = EventLine(0, event::Validation{7, std::numeric_limits<double>::infinity()});
  const auto recorded = ReadEventLine(line);
  ASSERT_TRUE(recorded.has_value() && recorded->event.has_value()) << line;
  EXPECT_TRUE(std::isnan(std::get<event::Validation>(*recorded->event).loss)) << line;
}

TEST(EventJson, EachKindHasItsLineAndComesBackFromIt) {
  std::set<size_t> kinds;
  for (const Expected& expected : EachKind()) {
    kinds.insert(expected.event.index());
    const std::string name = EventName(expected.event);
    const std::string line = EventLine(1700000000.5, expected.event);
    EXPECT_EQ(line, R"({"time":1700000000.5,"event":")" + name + "\"," + expected.fields + "}");
    const auto back = ReadEventLine(line);
    ASSERT_TRUE(back.has_value()) << line;
    EXPECT_EQ(back->time, 1700000000.5);
    EXPECT_EQ(back->name, name);
    ASSERT_TRUE(back->event.has_value()) << line;
    EXPECT_EQ(back->event->index(), expected.event.index()) << line;
    EXPECT_EQ(FieldsOf(*back->event), FieldsOf(expected.event)) << line;
  }
  EXPECT_EQ(kinds.size(), std::variant_size_v<RunEvent>) << "a kind is missing above";
}

TEST(EventJson, LinesOfOthersAreRead) {
  EXPECT_FALSE(ReadEventLine(R"({"time":1,"event":"node_l)").has_value());
  EXPECT_FALSE(ReadEventLine(R"(["event"])").has_value());
  const auto newer = ReadEventLine(R"({"time":1,"event":"of_a_later_version","step":7})");
  ASSERT_TRUE(newer.has_value());
  EXPECT_EQ(newer->name, "of_a_later_version");
  EXPECT_FALSE(newer->event.has_value());
  const auto other = ReadEventLine(R"({"event":"worker_lost","worker":"a","rank":"one","new":[1],"cause":"c"})");
  ASSERT_TRUE(other.has_value() && other->event.has_value());
  const auto* lost = std::get_if<event::WorkerLost>(&*other->event);
  ASSERT_NE(lost, nullptr);
  EXPECT_EQ(lost->worker + lost->cause, "ac");
  EXPECT_EQ(lost->rank, -1);
}

TEST(EventJson, BytesThatAreNotTextDoNotBreakTheLine) {
  EXPECT_EQ(EventLine(1, event::Paused{"\xff"}), "{\"time\":1.0,\"event\":\"paused\",\"cause\":\"\xEF\xBF\xBD\"}");
}

TEST(EventText, InWordsOrListed) {
  EXPECT_EQ(EventText(event::WorkerLost{"local/1", 1, "n", "vm", "killed by signal 9 (Killed)", 3, 89}),
            "lost local/1 (rank 1 on vm) in step 89: killed by signal 9 (Killed)");
  EXPECT_EQ(EventText(event::WorkerLost{"local/1", -1, "n", "vm", "killed by signal 9 (Killed)", 3, 89}),
            "lost local/1 (on vm) in step 89: killed by signal 9 (Killed)");
  EXPECT_EQ(EventText(event::WorkerHung{"a", 1, "n", "h", Phase::kReduce, 7, 3.25, "no heartbeat"}),
            "hung: a (rank 1 on h) in phase reduce of step 7 for 3.25 s: no heartbeat");
  EXPECT_EQ(EventText(event::Rewind{9, 0, "", "r"}), "rewinding from step 9 to step 0: r");
  EXPECT_EQ(EventText(event::RunStopped{{143, 7, "stopped by SIGTERM at step 7"}}), "stopped by SIGTERM at step 7");
  EXPECT_EQ(EventText(event::WorkerRefused{"a", "n", "h", "has another configuration"}),
            "refused a on h, which holds state and asks again: it has another configuration; if it is this "
            "coordinator that has the wrong settings or run directory, start it again with the right ones");
  EXPECT_EQ(EventText(event::AgentLost{"n", "h", "c"}), "the agent of node n on h is gone: c");
  EXPECT_EQ(EventText(event::NodeLeaving{"n", "h", 7}), "node n on h is to leave the run, which has done step 7");
  EXPECT_EQ(EventText(event::NodeLeft{"n", 8}), "node n has left the run after step 8");
  EXPECT_EQ(EventText(event::NodeReturned{"n", "h"}), "node n on h is back");
  EXPECT_EQ(EventText(event::NoProgress{3, 7, 600}), "no step for 600 s: step 7 is not done (generation 3)");
  EXPECT_EQ(EventText(event::Quarantined{"a", 3, 60}), "quarantined: worker a, failures 3, seconds 60");
  EXPECT_EQ(EventText(event::KeptOut{"a", "n", "h", 99, 3}),
            "keeping a on h out: most had other bits than it 3 times within a day, so its processor or memory is "
            "faulty; when that is mended, end its process (99), so that its agent starts it again");
  EXPECT_EQ(EventText(event::KeptOutResolved{"a", "n", "h", 99}),
            "no longer keeping a out: another process has its name (h, pid 99)");
  event::StragglerFields slow{.worker = "a", .rank = 1, .host = "h", .factor = 1.26, .own_factor = 1.58, .reason = ""};
  EXPECT_EQ(EventText(event::Straggler{slow}),
            "slow: a (rank 1 on h) takes 1.26 times as long as the others (forward_backward)");
  slow.reason = "slower than it used to be";
  EXPECT_EQ(EventText(event::Straggler{slow}),
            "slow: a (rank 1 on h) takes 1.58 times as long as it used to and 1.26 times as long as the others "
            "(forward_backward)");
  slow.factor = 0.964;
  EXPECT_EQ(EventText(event::StragglerResolved{slow}),
            "no longer slow: a (rank 1 on h) takes 0.964 times as long as the others");
  slow.factor = 1.004;
  EXPECT_EQ(EventText(event::StragglerResolved{slow}), "no longer slow: a (rank 1 on h) takes as long as the others");
  EXPECT_EQ(EventText(event::StragglerResolved{{.worker = "a", .host = "", .reason = "left the world"}}),
            "no longer slow: a: left the world");
  EXPECT_EQ(EventText(event::StateMissing{{7, "a on n"}}),
            "waiting for workers that hold a part of the state of step 7: a on n");
  EXPECT_EQ(EventText(event::StateMissing{{7, ""}}), "waiting for workers with the state of step 7: none is connected");
  EXPECT_EQ(EventText(event::StateLost{{7, "a on n"}}), "lost the state of step 7, of which a part was held by a on n");
  EXPECT_EQ(EventText(event::StopRequested{2, "coordinator", 7}),
            "a stop was requested after step 7: the coordinator got SIGINT (Ctrl-C)");
  EXPECT_EQ(EventText(event::StopRequested{15, "n0/1", 7}), "a stop was requested after step 7: n0/1 got SIGTERM");
  EXPECT_EQ(EventText(event::StopRequested{15, "node n0", 7}),
            "a stop was requested after step 7: node n0 got SIGTERM");
  EXPECT_EQ(EventText(event::CheckpointSaved{7, "step-7", 1 << 20, 2, 0.5, 0}),
            "checkpoint of step 7: 1.0 MiB in 2.00 s, training held up for 0.500 s");
  EXPECT_THAT(EventText(event::CheckpointSaved{7, "step-7", 1 << 20, 2, 0.5, 1}),
              testing::EndsWith(" 0.500 s (skipped at 1 step: another one was still being written)"));
  EXPECT_THAT(EventText(event::CheckpointSaved{7, "step-7", 1 << 20, 2, 0.5, 2}), testing::HasSubstr("at 2 steps:"));
  EXPECT_EQ(EventText(event::CheckpointInterval{60, 0.5, 86401, 1}),
            "a checkpoint every 60 s from now on: one costs 0.500 s, mean time between failures 1 d 00 h");
  EXPECT_EQ(EventText(event::CheckpointInterval{60, 0.5, 86401, 0}),
            "a checkpoint every 60 s from now on: one costs 0.500 s, no failure so far (one in 1 d 00 h is "
            "assumed)");
  EXPECT_EQ(EventText(event::Validation{7, 2.5}), "");
  EXPECT_EQ(EventText(event::EarlyStop{9, 2.5, 3, 2.25, 2}),
            "the validation loss has not fallen below that of step 3, 2.2500, for 2 validations: the run ends");
  EXPECT_EQ(EventText(event::EarlyStop{9, 2.5, 6, 2.25, 2, 3, 2.5}),
            "the validation loss has not fallen below that of step 3, 2.5000, by more than train.early_stop_min_delta "
            "for 2 validations: the run ends; it was lowest at step 6, 2.2500");
}

}  // namespace
}  // namespace holdfast
