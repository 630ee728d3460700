// Proves which recorded steps count when a coordinator is started again: those before the first that was given up, even
// if a later one is of a newer world, which would leave a hole; and from which events a run is known to be over.

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "elastic/coordinator/coordinator_shell.h"
#include "elastic/coordinator/event_json.h"
#include "tests/framework/base/temporary_directory.h"

namespace holdfast {
namespace {

TEST(CoordinatorHistory, EndsBeforeTheFirstStepThatWasGivenUp) {
  const TemporaryDirectory root;
  const RunDirectory directory(root.path());
  Branch branch;
  branch.GoBack({.generation = 7, .step = 20});
  ASSERT_TRUE(WriteCoordinatorState(directory, {8, branch}).ok());
  auto writer = JsonLinesWriter::Open(directory.metrics());
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (const auto& [step, generation] : {std::pair{19, 3}, {20, 3}, {21, 7}, {22, 8}}) {
    StepMetrics line;
    line.step = step;
    line.generation = generation;
    if (step != 20) line.state_digest = static_cast<uint64_t>(step) + 100;
    ASSERT_TRUE(writer->Write(line.ToJson()).ok());
  }
  const auto history = ReadCoordinatorHistory(directory);
  ASSERT_TRUE(history.ok()) << history.status();
  EXPECT_EQ(history->recorded_step, 20);
  EXPECT_EQ(history->agreed_step, 19);
  EXPECT_EQ(history->agreed_digest, 119u);
}

TEST(CoordinatorHistory, AFirstLineThatWasCutOffCountsForNothing) {
  const TemporaryDirectory root;
  const RunDirectory directory(root.path());
  const std::string line = CoordinatorStateLine({7, {}});
  for (size_t size = 0; size <= line.size(); ++size) {
    std::ofstream(directory.coordinator_state()) << line.substr(0, size);
    const auto history = ReadCoordinatorHistory(directory);
    ASSERT_TRUE(history.ok()) << history.status();
    EXPECT_EQ(history->state.generation, 0u) << line.substr(0, size);
  }
}

TEST(CoordinatorHistory, BarriersAndContradictedWorkersThatCannotBeReadAreNotNone) {
  const TemporaryDirectory root;
  const RunDirectory directory(root.path());
  for (const char* line :
       {R"({"barriers": [{"generation": 7}], "generation": 8})", R"({"contradicted": {"a": "b"}, "generation": 8})",
        R"({"contradicted": 7, "generation": 8})", R"({"contradictions": 7, "generation": 8})",
        R"({"contradictions": {"a": 7}, "generation": 8})",
        R"({"contradictions": {"a": {"kept_out": true, "times": [1]}}, "generation": 8})",
        R"({"contradictions": {"a": {"process": 1, "kept_out": 1, "times": [1]}}, "generation": 8})",
        R"({"contradictions": {"a": {"process": 1, "kept_out": true, "times": []}}, "generation": 8})",
        R"({"contradictions": {"a": {"process": 1, "kept_out": true, "times": [-1]}}, "generation": 8})",
        R"({"contradictions": {"a": {"process": 1, "kept_out": true, "times": [1e99]}}, "generation": 8})"}) {
    std::ofstream(directory.coordinator_state()) << line << "\n";
    const absl::Status status = ReadCoordinatorHistory(directory).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << line << ": " << status;
  }
}

TEST(CoordinatorHistory, AFileOfAnOlderBuildKeepsNobodyOut) {
  const TemporaryDirectory root;
  const RunDirectory directory(root.path());
  std::ofstream(directory.coordinator_state()) << R"({"barriers":[],"contradicted":{"a":7},"generation":8})"
                                               << "\n";
  const auto history = ReadCoordinatorHistory(directory);
  ASSERT_TRUE(history.ok()) << history.status();
  EXPECT_EQ(history->state.contradicted.size(), 1u);
  EXPECT_TRUE(history->state.contradictions.empty());
}

TEST(CoordinatorHistory, ARecordThatCannotBeReadIsNotAnEmptyOne) {
  const TemporaryDirectory root;
  const RunDirectory directory(root.path());
  std::filesystem::create_symlink("metrics.jsonl", directory.metrics());  // to itself
  const auto history = ReadCoordinatorHistory(directory);
  ASSERT_FALSE(history.ok());
  EXPECT_NE(history.status().message().find("metrics.jsonl"), absl::string_view::npos) << history.status();
}

TEST(CoordinatorHistory, ARunIsOverIfItsLastEventSaysSo) {
  const auto read = [](const std::vector<RunEvent>& events, const std::string& last_line) {
    const TemporaryDirectory root;
    const RunDirectory directory(root.path());
    auto writer = JsonLinesWriter::Open(directory.events());
    EXPECT_TRUE(writer.ok()) << writer.status();
    for (const RunEvent& event : events) EXPECT_TRUE(writer->Write(EventLine(1, event)).ok());
    if (!last_line.empty()) {
      EXPECT_TRUE(writer->Write(last_line).ok());
    }
    const auto history = ReadCoordinatorHistory(directory);
    EXPECT_TRUE(history.ok()) << history.status();
    return *history;
  };
  const RunEvent end = event::RunFinished{{0, 20, "all 20 steps are done"}};
  EXPECT_FALSE(read({}, "").finished);
  EXPECT_TRUE(read({event::CheckpointSaved{5, "five"}, end}, "").finished);
  EXPECT_TRUE(read({event::CheckpointSaved{5, "five"}, end}, "").has_saved);
  EXPECT_FALSE(read({end}, "").has_saved);
  EXPECT_TRUE(read({end, event::AlertFailed{"slack: HTTP status 500"}}, "").finished)
      << "alerts are sent after the end";
  EXPECT_TRUE(read({end}, R"({"time":1,"event":"worker_j)").finished) << "cut off by a crash";
  EXPECT_FALSE(read({end, event::RunStarted{}}, "").finished);
  EXPECT_FALSE(read({end}, R"({"time":1,"event":"of_a_later_version"})").finished);
}

TEST(CoordinatorHistory, ARunThatEndedEarlyIsDoneUnlessItHasMorePatience) {
  const TemporaryDirectory root;
  const RunDirectory directory(root.path());
  StepMetrics step;
  auto metrics = JsonLinesWriter::Open(directory.metrics());
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  for (step.step = 1; step.step <= 4; ++step.step) {
    step.validation = step.step == 3 ? std::optional(ValidationResult{2, 0.5}) : std::nullopt;
    ASSERT_TRUE(metrics->Write(step.ToJson()).ok());
  }
  const auto add = [&](const RunEvent& event) {
    auto events = JsonLinesWriter::Open(directory.events());
    return events.ok() && events->Write(EventLine(1, event)).ok();
  };
  const auto done = [&](int64_t patience) {
    Config config;
    config.train.steps = 10;
    config.train.early_stop_patience = patience;
    const auto history = ReadCoordinatorHistory(directory);
    EXPECT_TRUE(history.ok()) << history.status();
    EXPECT_EQ(history->validations, (std::vector<ValidationResult>{{2, 0.5}}));
    return IsDone(config, *history);
  };
  ASSERT_TRUE(add(event::EarlyStop{.step = 4, .loss = 0.75, .best_step = 2, .best_loss = 0.5, .validations = 1}));
  EXPECT_FALSE(done(1)) << "what it holds is not saved yet";
  ASSERT_TRUE(add(event::RunFinished{{0, 4, "ended early"}}));
  EXPECT_TRUE(done(1));
  EXPECT_FALSE(done(2));
  EXPECT_FALSE(done(0));
}

}  // namespace
}  // namespace holdfast
