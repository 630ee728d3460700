// What an agent decides that was asked to stop, and the command lines of its workers.

#include "elastic/agent/agent_shell.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/elastic/worker/scripted_link.h"
#include "tests/framework/base/temporary_directory.h"

namespace holdfast {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
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
TEST(LeaveWatch, ARunThatSavesItsEndGetsOn) {
  auto now = LeaveWatch::Clock::time_point(1h);
  LeaveWatch watch(now, 30s, 2s);
  RunStatus run = RunOf(RunState::kTraining, {"a"});
  const auto waits_for = [&](std::chrono::seconds time) {
    for (const auto end = now + time; now < end; now += 2s) {
      if (!watch.GetsOn(now, run)) return false;
    }
    return true;
  };
  run.committed_step = 7;
  run.generation = 3;
  EXPECT_TRUE(waits_for(30s));
  ++run.committed_step;
  EXPECT_TRUE(waits_for(30s));
  ++run.generation;
  EXPECT_TRUE(waits_for(30s));
  run.state = RunState::kFinishing;
  EXPECT_TRUE(waits_for(1h));
  run.state = RunState::kTraining;
  EXPECT_FALSE(waits_for(1h));
}

// An agent that was frozen while it left would kill workers whose state nobody has taken over yet.
TEST(LeaveWatch, TimeInWhichItWasFrozenDoesNotCount) {
  auto now = LeaveWatch::Clock::time_point(1h);
  LeaveWatch watch(now, 30s, 2s);
  const absl::StatusOr<RunStatus> away = absl::UnavailableError("away");
  EXPECT_TRUE(watch.GetsOn(now += 2s, away));
  EXPECT_TRUE(watch.GetsOn(now += 1h, away));
  for (int second = 6; second < 30; second += 2) EXPECT_TRUE(watch.GetsOn(now += 2s, away)) << second;
  EXPECT_FALSE(watch.GetsOn(now += 2s, away));
}

// It would leave a run whose coordinator is only being started again, or stop one that others train.
TEST(SinceSignal, TimeInWhichItWasFrozenDoesNotCount) {
  auto now = SinceSignal::Clock::time_point(1h);
  SinceSignal since(now, 2s);
  EXPECT_EQ(since.At(now += 2s), 2s);
  EXPECT_EQ(since.At(now += 1h), 4s);
  EXPECT_EQ(since.At(now += 2s), 6s);
  since.Restart(now += 1h);  // it has waited for the end meanwhile
  EXPECT_EQ(since.At(now), 0s);
  EXPECT_EQ(since.At(now += 2s), 2s);
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

/// An agent of node n0, whose worker is a shell script.
class AgentShellTest : public testing::Test {
 protected:
  void WriteWorker(const std::string& script) const {
    std::ofstream(folder_ / "worker") << "#!/bin/sh\n" << script;
    std::filesystem::permissions(folder_ / "worker", std::filesystem::perms::owner_all);
  }
  AgentShell Start(AgentShell::LookFn look = nullptr) {
    std::filesystem::create_directory(directory_.logs());
    return {config_, directory_, {.node = "n0", .binary = folder_ / "worker"}, link_, std::move(look)};
  }
  /// With a worker that says in files that it runs, and that it got SIGTERM (`told`) or SIGUSR1 (`told_usr1`); it ends
  /// when there is a file `end`. It has begun to join, or is loading still.
  AgentShell StartWithWorkerThatTells(AgentShell::LookFn look = nullptr, bool joins = true) {
    WriteWorker(absl::StrCat(joins ? "trap '' USR2\n" : "", "trap 'touch ", folder_ / "told", "' TERM\ntrap 'touch ",
                             folder_ / "told_usr1", "' USR1\ntouch ", folder_ / "started", "\nwhile [ ! -e ",
                             folder_ / "end", " ]; do sleep 0.05; done\n"));
    return Start(std::move(look));
  }
  void AwaitWorker() {
    link_.Connect();
    Await([&] { return Exists("started"); });
  }
  static void Await(const std::function<bool()>& condition) {
    while (!condition()) std::this_thread::sleep_for(10ms);
  }
  bool Exists(const std::string& file) const { return std::filesystem::exists(folder_ / file); }
  void EndWorker() const { std::ofstream(folder_ / "end") << ""; }

  const TemporaryDirectory folder_;
  const RunDirectory directory_{folder_.path()};
  Config config_;
  ScriptedLink link_;
  std::atomic<int> looks_ = 0;
};

TEST_F(AgentShellTest, ThatHasSeenNoCoordinatorHasNothingToLeave) {
  WriteWorker("exec sleep 1000\n");
  AgentShell agent = Start([this]() -> absl::StatusOr<RunStatus> {
    ++looks_;
    return absl::UnavailableError("away");
  });
  testing::internal::CaptureStderr();
  agent.Stop(SIGTERM);
  const EndMessage end = agent.Wait();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "that its worker is killed is no error";
  EXPECT_EQ(end.exit_code, 143);
  EXPECT_EQ(end.reason, "stopped by SIGTERM: it reached no coordinator");
  EXPECT_EQ(looks_, 0);
}

// It may not use SIGTERM: on that, workers ask for a stop of the whole run, which is the other agent's.
TEST_F(AgentShellTest, ThatIsRefusedKillsItsWorkersAndIsToBeStartedAgain) {
  AgentShell agent = StartWithWorkerThatTells();
  AwaitWorker();
  link_.Tell(RefusedMessage{.reason = "there is an agent of node n0 already, on h1"});
  const EndMessage end = agent.Wait();
  EXPECT_EQ(end.exit_code, 75);
  EXPECT_EQ(end.reason, "there is an agent of node n0 already, on h1");
  EXPECT_FALSE(Exists("told"));
}

/// A coordinator of run 7 has taken it in and is gone. In its place is one of another run.
class LeftOverAgentTest : public AgentShellTest {
 protected:
  /// Tries to connect once more.
  void Knock(AgentShell& agent) {
    agent.OnDisconnected("gone");
    link_.Connect();
    link_.Tell(RefusedMessage{.reason = "the coordinator leads run b", .other_run = true});
  }
  void Orphan(AgentShell& agent) {
    AwaitWorker();
    link_.Tell(WelcomeMessage{7});
    Knock(agent);
  }
};

TEST_F(LeftOverAgentTest, SaysWhoseItIsAndWaitsForItsOwnCoordinator) {
  AgentShell agent = StartWithWorkerThatTells();
  Orphan(agent);
  EXPECT_EQ(link_.Await<AgentHelloMessage>().run, 0u) << "at first it did not know";
  link_.Await<AgentHelloMessage>([](const AgentHelloMessage& hello) { return hello.run == 7; });
  EXPECT_GT(agent.AloneFor(), 0ms);
  link_.Connect();
  EXPECT_GT(agent.AloneFor(), 0ms) << "that may be the other one again";
  link_.Tell(WelcomeMessage{7});
  EXPECT_EQ(agent.AloneFor(), 0ms);
  link_.Tell(EndMessage{0, "done"});
  EndWorker();
  EXPECT_EQ(agent.Wait().reason, "done");
}

// A worker that was in no world has nothing but this to say whose it is.
TEST_F(LeftOverAgentTest, TellsAWorkerThatIsStartedAgainWhoseItIs) {
  WriteWorker(absl::StrCat("if [ -e ", folder_ / "started", " ]; then\n  echo $HOLDFAST_RUN_ID > ", folder_ / "run.new",
                           "\n  mv ", folder_ / "run.new", " ", folder_ / "run", "\n  exec sleep 1000\nfi\ntouch ",
                           folder_ / "started", "\nwhile [ ! -e ", folder_ / "end",
                           " ]; do sleep 0.05; done\nkill -9 $$\n"));
  AgentShell agent = Start();
  Orphan(agent);
  EndWorker();
  Await([&] { return Exists("run"); });
  std::string run;
  std::ifstream(folder_ / "run") >> run;
  EXPECT_EQ(run, "7");
}

// It may load for minutes, and another run's coordinator may have come in the place of its own when it joins.
TEST_F(AgentShellTest, TellsAWorkerThatWaitsForItWhoseItIs) {
  WriteWorker(absl::StrCat("touch ", folder_ / "started", "\nread run && echo $HOLDFAST_RUN_ID $run > ",
                           folder_ / "run.new", "\nmv ", folder_ / "run.new ", folder_ / "run", "\nread more || touch ",
                           folder_ / "end\nexec sleep 1000\n"));
  AgentShell agent = Start();
  AwaitWorker();
  link_.Tell(WelcomeMessage{7});
  Await([&] { return Exists("end"); });
  std::ifstream file(folder_ / "run");
  std::string run;
  std::getline(file, run);
  EXPECT_EQ(run, "input 7");
}

TEST_F(LeftOverAgentTest, EndsAfterTheTimeWithoutItsCoordinatorThatItHas) {
  config_.elastic.coordinator_timeout_ms = 300;
  AgentShell agent = StartWithWorkerThatTells();
  Orphan(agent);
  std::jthread link([&](const std::stop_token& stop) {
    for (; !stop.stop_requested(); std::this_thread::sleep_for(10ms)) Knock(agent);
  });
  const EndMessage end = agent.Wait();
  EXPECT_EQ(end.exit_code, 75);
  EXPECT_THAT(end.reason, HasSubstr("but to one of another run (the coordinator leads run b)"));
}

// The other run is not its to leave, nor to stop.
TEST_F(LeftOverAgentTest, HasNothingToLeave) {
  AgentShell agent = StartWithWorkerThatTells([] { return RunOf(RunState::kTraining, {"n1"}); });
  Orphan(agent);
  agent.Stop(SIGTERM);
  EXPECT_EQ(agent.Wait().exit_code, 143);
  EXPECT_EQ(link_.Count<LeaveMessage>(), 0);
  EXPECT_FALSE(Exists("told"));
}

// Nor when it leaves: a worker that was being started would join, and ask.
TEST_F(AgentShellTest, ThatLeavesDoesNotTellItsWorkersToStop) {
  std::vector<std::chrono::steady_clock::time_point> looks_after;  // it has asked to be let go
  AgentShell agent = StartWithWorkerThatTells([&] {
    if (link_.Count<LeaveMessage>() == 0) {
      ++looks_;
    } else {
      looks_after.push_back(std::chrono::steady_clock::now());
    }
    return RunOf(RunState::kTraining, {"n0", "n1"});
  });
  AwaitWorker();
  agent.Stop(SIGTERM);
  std::thread coordinator([&] {
    link_.Await<LeaveMessage>();
    EXPECT_EQ(looks_, 1) << "each costs the coordinator work, and all may be told at once";
    std::this_thread::sleep_for(500ms);  // others might come
    link_.Tell(EndMessage{143, "node n0 has left the run"});
    std::this_thread::sleep_for(500ms);  // a signal would have come by then
    EndWorker();
  });
  EXPECT_EQ(agent.Wait().reason, "node n0 has left the run");
  coordinator.join();
  EXPECT_FALSE(Exists("told"));
  for (size_t i = 1; i < looks_after.size(); ++i) EXPECT_GE(looks_after[i] - looks_after[i - 1], 2s);
}

// They load, hear nothing of the end, and would not end by a SIGTERM either, which is for the coordinator.
TEST_F(AgentShellTest, WorkersThatHaveNotJoinedAreNotWaitedForAtTheEnd) {
  AgentShell agent = StartWithWorkerThatTells(nullptr, /*joins=*/false);
  AwaitWorker();
  link_.Tell(EndMessage{0, "all 7 steps are done"});
  testing::internal::CaptureStderr();
  EXPECT_EQ(agent.Wait().reason, "all 7 steps are done");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), Not(HasSubstr("killed by signal")));
  EXPECT_FALSE(Exists("told"));
}

TEST_F(AgentShellTest, NorWhenTheNodeLeaves) {
  AgentShell agent = StartWithWorkerThatTells([] { return RunOf(RunState::kTraining, {"n0", "n1"}); }, /*joins=*/false);
  AwaitWorker();
  agent.Stop(SIGTERM);
  std::thread coordinator([&] {
    link_.Await<LeaveMessage>();
    link_.Tell(EndMessage{143, "node n0 has left the run"});
  });
  testing::internal::CaptureStderr();
  EXPECT_EQ(agent.Wait().reason, "node n0 has left the run");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), Not(HasSubstr("killed by signal")));
  coordinator.join();
}

// A scheduler tells by the signal whether the run is to be started again, and finds it in the exit code.
TEST_F(AgentShellTest, ThatIsTheOnlyOneHasTheRunStoppedByTheSignalItGot) {
  AgentShell agent = StartWithWorkerThatTells([] { return RunOf(RunState::kTraining, {"n0"}); });
  AwaitWorker();
  agent.Stop(SIGUSR1);
  std::thread coordinator([&] {
    Await([&] { return Exists("told") || Exists("told_usr1"); });
    EXPECT_TRUE(Exists("told_usr1"));
    link_.Tell(EndMessage{138, "stopped by SIGUSR1 at step 7; the model of that step is saved"});
    EndWorker();
  });
  EXPECT_EQ(agent.Wait().exit_code, 138);
  coordinator.join();
}

// It had hung and was removed, say, and the coordinator that it looks for is gone.
TEST_F(AgentShellTest, AWorkerThatDoesNotEndAfterAStoppedRunDoesNotHoldUpItsAgent) {
  WriteWorker(absl::StrCat("trap '' USR2\ntrap 'touch ", folder_ / "told_usr1", "' USR1\ntouch ", folder_ / "started",
                           "\nwhile :; do sleep 0.05; done\n"));
  AgentShell agent = Start([] { return RunOf(RunState::kTraining, {"n0"}); });
  AwaitWorker();
  agent.Stop(SIGUSR1);
  std::thread coordinator([&] {
    Await([&] { return Exists("told_usr1"); });
    link_.Tell(EndMessage{138, "stopped by SIGUSR1 at step 7; the model of that step is saved"});
  });
  EXPECT_EQ(agent.Wait().exit_code, 138);
  coordinator.join();
}

// The coordinator died, and with it the wish that the run end.
TEST_F(AgentShellTest, ThatStaysForTheEndLeavesARunThatTrainsAgain) {
  std::atomic<RunState> state = RunState::kFinishing;
  AgentShell agent = StartWithWorkerThatTells([&] {
    RunStatus run = RunOf(state, {"n0", "n1"});
    ++looks_;
    return run;
  });
  AwaitWorker();
  agent.Stop(SIGTERM);
  std::thread coordinator([&] {
    Await([&] { return looks_ > 0; });
    state = RunState::kTraining;
    link_.Connect();
    for (int i = 0; i < 3000 && link_.Count<LeaveMessage>() == 0; ++i) std::this_thread::sleep_for(10ms);
    EXPECT_EQ(link_.Count<LeaveMessage>(), 1);
    link_.Tell(EndMessage{143, "node n0 has left the run"});
    EndWorker();
  });
  EXPECT_EQ(agent.Wait().reason, "node n0 has left the run");
  coordinator.join();
}

// Whether the run continues without this node, or has ended, nobody knows.
TEST_F(AgentShellTest, ThatStaysForTheEndAndLosesItsCoordinatorDoesNotSayThatItHasLeft) {
  config_.elastic.coordinator_timeout_ms = 300;
  AgentShell agent = StartWithWorkerThatTells([this] {
    ++looks_;
    return RunOf(RunState::kFinishing, {"n0", "n1"});
  });
  AwaitWorker();
  agent.Stop(SIGTERM);
  std::thread coordinator([&] {
    Await([&] { return looks_ > 0; });
    agent.OnDisconnected("killed");
    Await([&] { return Exists("told"); });
    EndWorker();
  });
  const EndMessage end = agent.Wait();
  EXPECT_EQ(end.exit_code, 143);
  EXPECT_EQ(end.reason, "stopped by SIGTERM, and no coordinator has said how the run ended");
  coordinator.join();
}

}  // namespace
}  // namespace holdfast
