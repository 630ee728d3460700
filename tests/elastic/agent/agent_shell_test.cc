// What an agent decides that was asked to stop, and the command lines of its workers.

#include "elastic/agent/agent_shell.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::Contains;
using ::testing::Pair;
using namespace std::chrono_literals;

RunStatus RunOf(RunState state, const std::vector<std::string>& nodes) {
  RunStatus run;
  run.state = state;
  for (const std::string& node : nodes) {
    run.workers.emplace_back();
    run.workers.back().node = node;
  }
  return run;
}

TEST(DecideDeparture, LeavesARunThatOthersGoOnWith) {
  EXPECT_EQ(DecideDeparture(RunOf(RunState::kTraining, {"a", "b"}), "a", 0ms), Departure::kWait)
      << "it may be stopped as a whole";
  EXPECT_EQ(DecideDeparture(RunOf(RunState::kTraining, {"a", "b"}), "a", 2s), Departure::kLeave);
  EXPECT_EQ(DecideDeparture(RunOf(RunState::kRecovering, {"a", "b"}), "a", 2s), Departure::kWait);
  EXPECT_EQ(DecideDeparture(RunOf(RunState::kRecovering, {"a", "b"}), "a", 30s), Departure::kLeave);
}

TEST(DecideDeparture, StopsARunThatHasNobodyElse) {
  EXPECT_EQ(DecideDeparture(RunOf(RunState::kTraining, {"a", "a"}), "a", 2s), Departure::kStopRun);
}

TEST(DecideDeparture, StaysForTheEnd) {
  EXPECT_EQ(DecideDeparture(RunOf(RunState::kFinishing, {"a", "b"}), "a", 0ms), Departure::kStay);
  EXPECT_EQ(DecideDeparture(RunOf(RunState::kEnded, {}), "a", 1h), Departure::kStay);
}

TEST(DecideDeparture, LeavesWhenNobodyAnswers) {
  EXPECT_EQ(DecideDeparture(absl::UnavailableError("away"), "a", 0ms), Departure::kWait);
  EXPECT_EQ(DecideDeparture(absl::UnavailableError("away"), "a", 2s), Departure::kLeave);
}

TEST(WorkerCommands, ShareTheProcessorsOfTheMachine) {
  Config config;
  const AgentSettings settings{.node = "n", .num_workers = 100'000};
  const auto commands = WorkerCommands(config, RunDirectory("r"), settings);
  EXPECT_EQ(commands.size(), 100'000u);
  EXPECT_THAT(commands.front().argv, Contains("train.threads=1"));
  EXPECT_EQ(commands.back().name, "n/99999");
  EXPECT_EQ(commands.back().log_path, "r/logs/n-99999.log");
  config.train.threads = 5;
  EXPECT_THAT(WorkerCommands(config, RunDirectory("r"), settings).front().argv, Contains("train.threads=5"));
}

TEST(WorkerCommands, OverNcclHaveItsEnvironment) {
  Config config;
  EXPECT_TRUE(WorkerCommands(config, RunDirectory("r"), {.node = "n"}).front().environment.empty());
  config.parallel.transport = Transport::kNccl;
  EXPECT_THAT(WorkerCommands(config, RunDirectory("r"), {.node = "n"}).front().environment,
              Contains(Pair("CUDA_MODULE_LOADING", "EAGER")));
}

}  // namespace
}  // namespace holdfast
