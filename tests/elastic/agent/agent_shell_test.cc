// What an agent decides that was asked to stop, and the command lines of its workers.

#include "elastic/agent/agent_shell.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/elastic/worker/scripted_link.h"

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
  EXPECT_EQ(DecideDeparture(RunOf(RunState::kTraining, {"a", "b"}), "a", true, 0ms), Departure::kWait)
      << "it may be stopped as a whole";
  EXPECT_EQ(DecideDeparture(RunOf(RunState::kTraining, {"a", "b"}), "a", true, 2s), Departure::kLeave);
  EXPECT_EQ(DecideDeparture(RunOf(RunState::kRecovering, {"a", "b"}), "a", true, 2s), Departure::kWait);
  EXPECT_EQ(DecideDeparture(RunOf(RunState::kRecovering, {"a", "b"}), "a", true, 30s), Departure::kLeave);
}

TEST(DecideDeparture, StopsARunThatHasNobodyElse) {
  EXPECT_EQ(DecideDeparture(RunOf(RunState::kTraining, {"a", "a"}), "a", true, 2s), Departure::kStopRun);
}

TEST(DecideDeparture, LeavesARunToANodeWhoseWorkersAreStarting) {
  RunStatus run = RunOf(RunState::kTraining, {"a", "a"});
  run.nodes = {"a", "b"};
  EXPECT_EQ(DecideDeparture(run, "a", true, 2s), Departure::kLeave);
  EXPECT_EQ(DecideDeparture(run, "a", /*saves=*/false, 2s), Departure::kStopRun) << "the state would be lost with it";
  run.nodes = {"a"};
  EXPECT_EQ(DecideDeparture(run, "a", true, 2s), Departure::kStopRun);
}

TEST(DecideDeparture, GivesTheOthersTimeToComeToANewCoordinator) {
  RunStatus run = RunOf(RunState::kRecovering, {"a"});
  EXPECT_EQ(DecideDeparture(run, "a", true, 2s), Departure::kWait);
  EXPECT_EQ(DecideDeparture(run, "a", true, 30s), Departure::kStopRun);
  run.world_size = 1;
  EXPECT_EQ(DecideDeparture(run, "a", true, 2s), Departure::kStopRun) << "it has made its world without others";
}

// All others have left, too, so that it is being stopped: the workers of this node hold what is saved.
TEST(HasGotOn, ARunThatSavesItsEndDoes) {
  RunStatus run = RunOf(RunState::kTraining, {"a"});
  run.committed_step = 7;
  run.generation = 3;
  EXPECT_FALSE(HasGotOn(run, {7, 3}));
  EXPECT_TRUE(HasGotOn(run, {6, 3}));
  EXPECT_TRUE(HasGotOn(run, {7, 2}));
  run.state = RunState::kFinishing;
  EXPECT_TRUE(HasGotOn(run, {7, 3}));
}

TEST(DecideDeparture, StaysForTheEnd) {
  EXPECT_EQ(DecideDeparture(RunOf(RunState::kFinishing, {"a", "b"}), "a", true, 0ms), Departure::kStay);
  EXPECT_EQ(DecideDeparture(RunOf(RunState::kEnded, {}), "a", true, 1h), Departure::kStay);
}

TEST(DecideDeparture, LeavesWhenNobodyAnswers) {
  EXPECT_EQ(DecideDeparture(absl::UnavailableError("away"), "a", true, 0ms), Departure::kWait);
  EXPECT_EQ(DecideDeparture(absl::UnavailableError("away"), "a", true, 3s), Departure::kWait)
      << "the first look is after 2 s, and it may have been too many that looked";
  EXPECT_EQ(DecideDeparture(absl::UnavailableError("away"), "a", true, 4s), Departure::kLeave);
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

TEST(WorkerCommands, ShareItWithThoseOfOtherAgents) {
  const AgentSettings settings{.node = "n", .num_workers = 2, .workers_of_host = 100'000, .first_of_host = 6};
  const std::vector<std::string> second = WorkerCommands(Config(), RunDirectory("r"), settings)[1].argv;
  EXPECT_THAT(second, Contains("train.threads=1"));
  const auto here = std::find(second.begin(), second.end(), "--workers-here");
  EXPECT_EQ(std::vector(here, here + 4), (std::vector<std::string>{"--workers-here", "100000", "--local-index", "7"}));
}

TEST(WorkerCommands, OverNcclHaveItsEnvironment) {
  Config config;
  EXPECT_TRUE(WorkerCommands(config, RunDirectory("r"), {.node = "n"}).front().environment.empty());
  config.parallel.transport = Transport::kNccl;
  EXPECT_THAT(WorkerCommands(config, RunDirectory("r"), {.node = "n"}).front().environment,
              Contains(Pair("CUDA_MODULE_LOADING", "EAGER")));
}

TEST(AgentShell, ThatHasSeenNoCoordinatorHasNothingToLeave) {
  const Config config;
  const std::string folder = testing::TempDir() + "/no_coordinator";
  std::filesystem::create_directories(folder);
  const RunDirectory directory(folder);
  ScriptedLink link;
  bool has_asked = false;
  const auto look = [&has_asked]() -> absl::StatusOr<RunStatus> {
    has_asked = true;
    return absl::UnavailableError("away");
  };
  std::ofstream(folder + "/worker") << "#!/bin/sh\nexec sleep 1000\n";
  std::filesystem::permissions(folder + "/worker", std::filesystem::perms::owner_all);
  AgentShell agent(config, directory, {.node = "n0", .binary = folder + "/worker"}, link, look);
  agent.Stop(SIGTERM);
  const EndMessage end = agent.Wait();
  EXPECT_EQ(end.exit_code, 143);
  EXPECT_EQ(end.reason, "stopped by signal 15: it reached no coordinator");
  EXPECT_FALSE(has_asked);
}

/// A worker that says in files of `folder` that it runs, and that it got SIGTERM; it ends when there is a file `end`.
std::string WorkerThatTells(const std::string& folder) {
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::string worker = folder + "/worker";
  std::ofstream(worker) << "#!/bin/sh\ntrap 'touch " << folder << "/told' TERM\ntouch " << folder << "/started\n"
                        << "while [ ! -e " << folder << "/end ]; do sleep 0.05; done\n";
  std::filesystem::permissions(worker, std::filesystem::perms::owner_all);
  return worker;
}

// It may not use SIGTERM: on that, workers ask for a stop of the whole run, which is the other agent's.
TEST(AgentShell, ThatIsRefusedKillsItsWorkersAndIsToBeStartedAgain) {
  const std::string folder = testing::TempDir() + "/refused";
  const std::string worker = WorkerThatTells(folder);
  const Config config;
  const RunDirectory directory(folder);
  ScriptedLink link;
  AgentShell agent(config, directory, {.node = "n0", .binary = worker}, link);
  link.Connect();
  while (!std::filesystem::exists(folder + "/started")) std::this_thread::sleep_for(10ms);
  link.Tell(RefusedMessage{.reason = "there is an agent of node n0 already, on h1"});
  const EndMessage end = agent.Wait();
  EXPECT_EQ(end.exit_code, 75);
  EXPECT_EQ(end.reason, "there is an agent of node n0 already, on h1");
  EXPECT_FALSE(std::filesystem::exists(folder + "/told"));
}

// Nor when it leaves: a worker that was being started would join, and ask.
TEST(AgentShell, ThatLeavesDoesNotTellItsWorkersToStop) {
  const std::string folder = testing::TempDir() + "/leaves";
  const std::string worker = WorkerThatTells(folder);
  const Config config;
  const RunDirectory directory(folder);
  ScriptedLink link;
  std::atomic<int> looks = 0;
  AgentShell agent(config, directory, {.node = "n0", .binary = worker}, link, [&looks] {
    ++looks;
    return RunOf(RunState::kTraining, {"n0", "n1"});
  });
  link.Connect();
  while (!std::filesystem::exists(folder + "/started")) std::this_thread::sleep_for(10ms);
  agent.Stop(SIGTERM);
  std::thread coordinator([&] {
    link.Await<LeaveMessage>();
    EXPECT_LE(looks, 5) << "before, and just after: it costs the coordinator work, and all may be told at once";
    link.Tell(EndMessage{143, "node n0 has left the run"});
    std::this_thread::sleep_for(500ms);  // a signal would have come by then
    std::ofstream(folder + "/end") << "";
  });
  EXPECT_EQ(agent.Wait().reason, "node n0 has left the run");
  coordinator.join();
  EXPECT_FALSE(std::filesystem::exists(folder + "/told"));
}

// The coordinator died, and with it the wish that the run end.
TEST(AgentShell, ThatStaysForTheEndLeavesARunThatTrainsAgain) {
  const std::string folder = testing::TempDir() + "/stays";
  const std::string worker = WorkerThatTells(folder);
  const Config config;
  const RunDirectory directory(folder);
  ScriptedLink link;
  std::atomic<RunState> state = RunState::kFinishing;
  std::atomic<int> looks = 0;
  AgentShell agent(config, directory, {.node = "n0", .binary = worker}, link, [&] {
    RunStatus run = RunOf(state, {"n0", "n1"});
    ++looks;
    return run;
  });
  link.Connect();
  while (!std::filesystem::exists(folder + "/started")) std::this_thread::sleep_for(10ms);
  agent.Stop(SIGTERM);
  std::thread coordinator([&] {
    while (looks == 0) std::this_thread::sleep_for(10ms);
    state = RunState::kTraining;
    link.Connect();
    for (int i = 0; i < 3000 && link.Count<LeaveMessage>() == 0; ++i) std::this_thread::sleep_for(10ms);
    EXPECT_EQ(link.Count<LeaveMessage>(), 1);
    link.Tell(EndMessage{143, "node n0 has left the run"});
    std::ofstream(folder + "/end") << "";
  });
  EXPECT_EQ(agent.Wait().reason, "node n0 has left the run");
  coordinator.join();
}

// Whether the run goes on without this node, or has ended, nobody knows.
TEST(AgentShell, ThatStaysForTheEndAndLosesItsCoordinatorDoesNotSayThatItHasLeft) {
  const std::string folder = testing::TempDir() + "/alone";
  const std::string worker = WorkerThatTells(folder);
  Config config;
  const RunDirectory directory(folder);
  ScriptedLink link;
  std::atomic<int> looks = 0;
  config.elastic.coordinator_timeout_ms = 300;
  AgentShell agent(config, directory, {.node = "n0", .binary = worker}, link, [&looks] {
    ++looks;
    return RunOf(RunState::kFinishing, {"n0", "n1"});
  });
  link.Connect();
  while (!std::filesystem::exists(folder + "/started")) std::this_thread::sleep_for(10ms);
  agent.Stop(SIGTERM);
  std::thread coordinator([&] {
    while (looks == 0) std::this_thread::sleep_for(10ms);
    agent.OnDisconnected("killed");
    while (!std::filesystem::exists(folder + "/told")) std::this_thread::sleep_for(10ms);
    std::ofstream(folder + "/end") << "";
  });
  const EndMessage end = agent.Wait();
  EXPECT_EQ(end.exit_code, 143);
  EXPECT_EQ(end.reason, "stopped by signal 15, and no coordinator has said how the run ended");
  coordinator.join();
}

}  // namespace
}  // namespace holdfast
