// Proves what a trial's processes are told when one of them is killed, with scripts in place of the binary.

#include "elastic/sweep/trial_run.h"

#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/framework/base/temporary_directory.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr auto kDeadline = std::chrono::minutes(5);  // no measure of speed

class TrialRunTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(directory_ / "runs/a"); }

  /// What stands for `holdfast`: `coordinator` is run as one, and agents write their arguments down.
  std::string Binary(const std::string& coordinator) const {
    const fs::path script = directory_ / "holdfast.sh";
    std::ofstream(script) << "#!/bin/bash\ncd " << directory_.string()
                          << "\nif [ $1 = agent ]; then echo \"$@\" >agent."
                          << "new; mv agent.new agent; exec sleep 300; fi\naddress=runs/a/coordinator.address\n"
                          << coordinator;
    fs::permissions(script, fs::perms::owner_all);
    return script;
  }

  TrialRun Trial(const std::string& binary, const Config& config = {}) {
    return {config,
            RunDirectory((directory_ / "runs/a").string()),
            {.binary = binary, .listen = "127.0.0.1", .hosts = {{.name = "w"}}, .health = &health_, .slots = &slots_}};
  }

  static void TickUntilEnd(TrialRun& run, std::chrono::milliseconds limit = kDeadline) {
    for (const auto begin = std::chrono::steady_clock::now();
         !run.end().has_value() && std::chrono::steady_clock::now() - begin < limit;) {
      run.Tick();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  std::string WaitForAgent(TrialRun& run) const {
    for (const auto begin = std::chrono::steady_clock::now(); std::chrono::steady_clock::now() - begin < kDeadline;) {
      run.Tick();
      if (fs::exists(directory_ / "agent")) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    std::stringstream text;
    text << std::ifstream(directory_ / "agent").rdbuf();
    return text.str();
  }

  const TemporaryDirectory root_;
  const fs::path directory_ = root_.path();
  HostHealth health_{1};
  HostSlots slots_{{2}};
};

TEST_F(TrialRunTest, AgentsAreNotSentToACoordinatorThatWasKilledBeforeItWasHeardOf) {
  const std::string binary = Binary(
      "if [ ! -e first ]; then touch first; echo 127.0.0.1:11 >$address; kill -9 $$; fi\n"
      "sleep 0.3; echo 127.0.0.1:22 >$address; exec sleep 300\n");
  TrialRun run = Trial(binary);
  ASSERT_TRUE(run.Start({1}).ok());
  siginfo_t dead{};
  ASSERT_EQ(waitid(P_ALL, 0, &dead, WEXITED | WNOWAIT), 0);
  EXPECT_THAT(WaitForAgent(run), HasSubstr("--coordinator 127.0.0.1:22 "));
}

TEST_F(TrialRunTest, ACoordinatorThatIsKilledComesBackWhereItsAgentsKnowIt) {
  const std::string binary = Binary(
      "echo \"$@\" >>coordinators\n"
      "echo 127.0.0.1:11 >$address.new; mv $address.new $address\n"
      "while [ ! -e agent ]; do sleep 0.01; done\n"
      "if [ ! -e first ]; then touch first; kill -9 $$; fi\n"
      "exec sleep 300\n");
  TrialRun run = Trial(binary);
  ASSERT_TRUE(run.Start({1}).ok());
  WaitForAgent(run);
  siginfo_t dead{};
  ASSERT_EQ(waitid(P_ALL, 0, &dead, WEXITED | WNOWAIT), 0);
  std::stringstream said;
  const auto begin = std::chrono::steady_clock::now();
  while (said.str().find("--listen 127.0.0.1:11\n") == std::string::npos &&
         std::chrono::steady_clock::now() - begin < kDeadline) {
    run.Tick();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    said.str("");
    said << std::ifstream(directory_ / "coordinators").rdbuf();
  }
  EXPECT_THAT(said.str(), HasSubstr("--listen 127.0.0.1:0 --new-workers\n"));
  EXPECT_THAT(said.str(), HasSubstr("--listen 127.0.0.1:11\n"));
}

// With no time that is waited for it: one look at which it is frozen suffices.
TEST_F(TrialRunTest, ACoordinatorThatIsFrozenIsKilledAndStartedAgain) {
  Config config;
  config.elastic.coordinator_lease_ms = 500;
  TrialRun run = Trial(Binary("if [ ! -e first ]; then touch first; kill -STOP $$; fi\n"
                              "echo 127.0.0.1:22 >$address.new; mv $address.new $address; exec sleep 300\n"),
                       config);
  ASSERT_TRUE(run.Start({1}).ok());
  EXPECT_THAT(WaitForAgent(run), HasSubstr("--coordinator 127.0.0.1:22 "));
}

TEST_F(TrialRunTest, ACoordinatorThatIsFrozenDoesNotKeepASweepFromStopping) {
  TrialRun run = Trial(Binary("kill -STOP $$\nexec sleep 300\n"));
  ASSERT_TRUE(run.Start({1}).ok());
  siginfo_t frozen{};
  ASSERT_EQ(waitid(P_ALL, 0, &frozen, WSTOPPED | WNOWAIT), 0);
  run.Stop();
  TickUntilEnd(run);
  ASSERT_TRUE(run.end().has_value());
  EXPECT_EQ(run.end()->exit_code, 128 + SIGKILL);
}

TEST_F(TrialRunTest, AnAgentThatIsFrozenLeavesWhenItIsToldTo) {
  const fs::path binary = directory_ / "binary";
  std::ofstream(binary) << "#!/bin/bash\ncd " << directory_.string()
                        << "\nif [ $1 = agent ]; then touch agent.$$; kill -STOP $$; exec sleep 300; fi\n"
                           "address=runs/a/coordinator.address\n"
                           "echo 127.0.0.1:11 >$address.new; mv $address.new $address; exec sleep 300\n";
  fs::permissions(binary, fs::perms::owner_all);
  Config config;
  config.elastic.coordinator_lease_ms = 500;
  TrialRun run = Trial(binary, config);
  ASSERT_TRUE(run.Start({2}).ok());
  const auto tick_until = [&](const auto& is_so) {
    for (const auto begin = std::chrono::steady_clock::now();
         !is_so() && std::chrono::steady_clock::now() - begin < kDeadline;) {
      run.Tick();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  };
  std::vector<pid_t> agents;
  tick_until([&] {
    agents.clear();
    for (const auto& entry : fs::directory_iterator(directory_)) {
      const std::string name = entry.path().filename();
      if (name.starts_with("agent.")) agents.push_back(std::stoi(name.substr(6)));
    }
    return agents.size() == 2;
  });
  ASSERT_EQ(agents.size(), 2u);
  for (const pid_t agent : agents) {
    siginfo_t frozen{};
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(agent), &frozen, WSTOPPED | WNOWAIT), 0);
  }
  const auto alive = [&] { return std::ranges::count_if(agents, [](pid_t agent) { return kill(agent, 0) == 0; }); };
  run.SetWorkers({1});
  tick_until([&] { return alive() < 2; });
  EXPECT_EQ(alive(), 1) << "the other one may be continued";
}

// As where a worker has no GPU: no agent reaches the coordinator.
TEST_F(TrialRunTest, AgentsThatCannotBeginEndTheRun) {
  const std::string binary = directory_ / "binary";
  std::ofstream(binary) << "#!/bin/sh\n"
                           "if [ \"$1\" = agent ]; then echo error: no GPU for it; exit 1; fi\n"
                           "echo 127.0.0.1:11 >"
                        << (directory_ / "runs/a/coordinator.address").string() << "\nexec sleep 300\n";
  fs::permissions(binary, fs::perms::owner_all);
  TrialRun run = Trial(binary);
  ASSERT_TRUE(run.Start({1}).ok());
  TickUntilEnd(run);
  ASSERT_TRUE(run.end().has_value());
  EXPECT_EQ(run.end()->exit_code, 1);
  EXPECT_THAT(run.end()->cause, AllOf(HasSubstr("agents end when they are started"), HasSubstr("no GPU for it")));
}

// Agents that live, whose workers do not: nothing ends by itself.
TEST_F(TrialRunTest, WorkersThatCannotLiveEndTheRun) {
  const std::string binary = Binary("echo 127.0.0.1:11 >$address.new; mv $address.new $address; exec sleep 300\n");
  TrialRun run = Trial(binary);
  ASSERT_TRUE(run.Start({2}).ok());
  ASSERT_THAT(WaitForAgent(run), HasSubstr("--node w-"));
  const auto ends = [&](const char* worker) {
    std::ofstream(directory_ / "runs/a/events.jsonl", std::ios::app)
        << R"({"time":1.5,"event":"worker_exited","worker":")" << worker
        << R"(","cause":"killed by signal 9","restarting":1})"
        << "\n";
  };
  for (int i = 0; i < 50; ++i) ends("w-0/0");
  TickUntilEnd(run, std::chrono::milliseconds(1500));
  EXPECT_FALSE(run.end().has_value()) << "the other one lives: " << run.end()->cause;
  for (int i = 0; i < 5; ++i) ends("w-1/0");
  TickUntilEnd(run);
  ASSERT_TRUE(run.end().has_value());
  EXPECT_EQ(run.end()->exit_code, EXIT_FAILURE);
  EXPECT_EQ(run.end()->cause,
            "workers end again and again, and no step is committed between; w-0/0 did 50 times, at last: killed by "
            "signal 9");
}

TEST_F(TrialRunTest, ACoordinatorThatIsKilledAgainAndAgainEndsTheRunByAnError) {
  TrialRun run = Trial(Binary("kill -9 $$\n"));
  ASSERT_TRUE(run.Start({1}).ok());
  TickUntilEnd(run);
  ASSERT_TRUE(run.end().has_value());
  EXPECT_EQ(run.end()->exit_code, EXIT_FAILURE);
  EXPECT_EQ(run.end()->cause, "coordinator killed by signal 9");
}

}  // namespace
}  // namespace holdfast
