// Proves that a run whose workers are the processes of one mpirun has the bits of every other; that a member which is
// killed or frozen ends all of it with an exit code that says "start again", nothing left behind, and so does a run
// that is taken; and that started again it resumes from its newest checkpoint. Also that tokens move to experts over
// MPI with the same bits.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/chaos/chaos_run.h"
#include "tests/paths.h"

namespace holdfast::chaos {
namespace {

using testing::HasSubstr;

constexpr char kMpirun[] = "/usr/bin/mpirun";

// Ranks that wait for each other keep the processors busy, so on a busy machine one may be silent for long, which ends
// a job in which nobody can be replaced.
const std::vector<std::string> kPatient = {"elastic.heartbeat_timeout_ms=19000"};  // a collective may take 20 s here

class MpiRun : public StageTest {
 protected:
  void SetUp() override {
    if (access(kMpirun, X_OK) != 0) GTEST_SKIP() << "mpirun is not installed";
  }
  void TearDown() override {
    for (const int pid : ProcessesWith(Run())) kill(pid, SIGKILL);
    StageTest::TearDown();
  }

  static std::unique_ptr<LoggedProcess> Start(int ranks, const std::string& steps = "train.steps=1000000",
                                              const std::vector<std::string>& settings = kPatient) {
    std::vector<std::string> arguments{"--allow-run-as-root",
                                       "--oversubscribe",
                                       "--bind-to",
                                       "none",
                                       "-n",
                                       std::to_string(ranks),
                                       "-x",
                                       "HOLDFAST_TEST_SLOWDOWN_MS",
                                       TestedBinary(),
                                       "train",
                                       stage_->config(),
                                       "--run-dir",
                                       Run(),
                                       "--set",
                                       "parallel.transport=mpi",
                                       "--set",
                                       "checkpoint.every_steps=4",
                                       "--set",
                                       steps};
    for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    const std::vector<std::pair<std::string, std::string>> environment{{"HOLDFAST_TEST_SLOWDOWN_MS", "10"}};
    return std::make_unique<LoggedProcess>(arguments, Run() + ".log", environment, kMpirun);
  }
  /// The process of a rank that is not the coordinator's.
  static int PidOfAnother(LoggedProcess& process) {
    int pid = -1;
    WaitUntil(process, Run(), [&](const RunView& view) {
      for (const WorkerView& worker : view.workers) {
        if (worker.id.find("mpi/00001") != std::string::npos) pid = worker.pid;
      }
      return pid > 0;
    });
    return pid;
  }
  /// Strikes one rank when there is a checkpoint, then starts again with other ranks.
  static void StrikeAndStartAgain(int signal, int ranks = 3) {
    const auto process = Start(ranks, "train.steps=1000000", {"elastic.heartbeat_timeout_ms=10000"});
    ASSERT_TRUE(WaitForEvents(*process, Run(), "checkpoint"));
    const int pid = PidOfAnother(*process);
    ASSERT_GT(pid, 0);
    kill(pid, signal);
    const int code = process->ExitCode();
    EXPECT_TRUE(code == 75 || code == 128 + SIGKILL) << code;
    if (code == 75) {  // else mpirun was quicker
      EXPECT_THAT(process->Log(), HasSubstr("start the job again"));
    }
    EXPECT_TRUE(WaitFor([] { return ProcessesWith(Run()).empty(); })) << "processes are left";
    const int64_t steps = CommittedSteps(Run()) + 20;
    EXPECT_EQ(Start(2, "train.steps=" + std::to_string(steps))->ExitCode(), 0);
    EXPECT_TRUE(stage_->HasUndisturbedBits(Run()));
    EXPECT_EQ(CommittedSteps(Run()), steps);
  }
};

TEST_F(MpiRun, AKilledRankEndsTheJobWhichGoesOnWhenItIsStartedAgain) { StrikeAndStartAgain(SIGKILL); }

TEST_F(MpiRun, AFrozenRankEndsTheJobWhichGoesOnWhenItIsStartedAgain) { StrikeAndStartAgain(SIGSTOP); }

TEST_F(MpiRun, ARankThatIsLeftAloneDoesNotGoOn) { StrikeAndStartAgain(SIGSTOP, 2); }

TEST_F(MpiRun, IsSavedWhenItIsToldToStop) {
  const auto process = Start(3);
  ASSERT_TRUE(WaitForStep(*process, Run(), 5));
  process->Signal(SIGUSR1);  // which mpirun passes on
  EXPECT_EQ(process->ExitCode(), 128 + SIGUSR1);
  EXPECT_EQ(Events(Run(), "run_stopped").size(), 1u);
  EXPECT_TRUE(stage_->HasUndisturbedBits(Run()));
}

// No other coordinator reaches its workers: they waited for ever.
TEST_F(MpiRun, WhoseRunIsTakenEnds) {
  const auto process = Start(2);
  ASSERT_TRUE(WaitForStep(*process, Run(), 5));
  std::filesystem::remove(Run() + "/.lock");
  const int code = process->ExitCode();
  EXPECT_TRUE(code == 1 || code == 128 + SIGKILL) << code;
  EXPECT_THAT(process->Log(), HasSubstr("another process may own the run"));
  EXPECT_TRUE(WaitFor([] { return ProcessesWith(Run()).empty(); })) << "processes are left";
}

TEST_F(MpiRun, WhatRankZeroRefusesEndsAll) {
  std::filesystem::create_directories(Run());
  std::ofstream(Run() + "/something") << "that is no run";
  std::ofstream(Run() + "/metrics.jsonl") << "neither is this\n";
  EXPECT_EQ(Start(3)->ExitCode(), 1);
  EXPECT_TRUE(WaitFor([] { return ProcessesWith(Run()).empty(); })) << "processes are left";
}

class MpiExperts : public MpiRun {
 protected:
  static void SetUpTestSuite() { stage_ = std::make_unique<Stage>(kSettings); }
  inline static const std::vector<std::string> kSettings{
      "model.family=qwen2_moe", "model.num_experts=5", "model.experts_per_token=2", "model.expert_intermediate_size=24",
      "model.shared_expert_intermediate_size=16"};
};

// Rows travel over a communicator of MPI's own, beside those that gather weights and reduce gradients.
TEST_F(MpiExperts, HaveTheBitsWhereTokensMove) {
  std::vector<std::string> settings = kSettings;
  settings.insert(settings.end(), kPatient.begin(), kPatient.end());
  settings.insert(settings.end(), {"parallel.sharding=full_shard", "parallel.experts=move"});
  ASSERT_EQ(Start(3, "train.steps=10", settings)->ExitCode(), 0);
  EXPECT_EQ(CommittedSteps(Run()), 10);
  EXPECT_TRUE(stage_->HasUndisturbedBits(Run()));
  for (const auto& line : Lines(Run() + "/metrics.jsonl")) {
    EXPECT_TRUE(line.contains("exchanged_bytes")) << "no token has moved: " << line.dump();
  }
}

}  // namespace
}  // namespace holdfast::chaos
