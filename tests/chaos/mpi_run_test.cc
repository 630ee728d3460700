// Proves that a run whose workers are the processes of one mpirun has the bits of every other; that a member which is
// killed or frozen ends all of it with an exit code that says "start again", nothing left behind; and that started
// again it goes on from its newest checkpoint.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/chaos/chaos_run.h"

namespace holdfast::chaos {
namespace {

using testing::HasSubstr;

constexpr char kMpirun[] = "/usr/bin/mpirun";

class MpiRun : public testing::Test {
 protected:
  static void SetUpTestSuite() { stage_ = std::make_unique<Stage>(60); }
  static void TearDownTestSuite() { stage_.reset(); }
  void SetUp() override {
    if (access(kMpirun, X_OK) != 0) GTEST_SKIP() << "mpirun is not installed";
  }
  void TearDown() override {
    for (const int pid : ProcessesWith(Run())) kill(pid, SIGKILL);
  }

  std::string Run() const { return stage_->Path(testing::UnitTest::GetInstance()->current_test_info()->name()); }
  std::unique_ptr<LoggedProcess> Start(int ranks) {
    const std::vector<std::string> arguments{"--allow-run-as-root",
                                             "--oversubscribe",
                                             "--bind-to",
                                             "none",
                                             "-n",
                                             std::to_string(ranks),
                                             "-x",
                                             "HOLDFAST_TEST_SLOWDOWN_MS",
                                             HOLDFAST_BINARY,
                                             "train",
                                             stage_->config(),
                                             "--run-dir",
                                             Run(),
                                             "--set",
                                             "parallel.transport=mpi",
                                             "--set",
                                             "checkpoint.every_steps=4"};
    const std::vector<std::pair<std::string, std::string>> environment{{"HOLDFAST_TEST_SLOWDOWN_MS", "10"}};
    return std::make_unique<LoggedProcess>(arguments, Run() + ".log", environment, kMpirun);
  }
  int Lines() const {
    std::ifstream file(Run() + "/metrics.jsonl");
    int count = 0;
    for (std::string line; std::getline(file, line);) ++count;
    return count;
  }
  bool WaitForStep(int step) const {
    for (int i = 0; i < 3000 && Lines() < step; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return Lines() >= step;
  }
  /// The process of a rank that is not the coordinator's.
  int PidOfAnother() const {
    const RunView view = Look(Run());
    for (const WorkerView& worker : view.workers) {
      if (worker.id.find("mpi/00001") != std::string::npos) return worker.pid;
    }
    return -1;
  }
  /// Strikes one rank after step 10, then starts again with as many ranks.
  void StrikeAndStartAgain(int signal) {
    auto process = Start(3);
    ASSERT_TRUE(WaitForStep(10)) << process->Log();
    const int pid = PidOfAnother();
    ASSERT_GT(pid, 0) << process->Log();
    kill(pid, signal);
    const int code = process->Wait(60).value_or(-1);
    EXPECT_TRUE(code == 75 || code == 128 + SIGKILL) << code << "\n" << process->Log();
    if (code == 75) {  // else mpirun was quicker
      EXPECT_THAT(process->Log(), HasSubstr("start the job again"));
    }
    for (int i = 0; i < 500 && !ProcessesWith(Run()).empty(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_TRUE(ProcessesWith(Run()).empty()) << "processes are left";
    process = Start(2);
    EXPECT_EQ(process->Wait(120).value_or(-1), 0) << process->Log();
    EXPECT_EQ(RunBinary({"compare", stage_->undisturbed(), Run()}, Run() + ".compare"), 0);
    EXPECT_EQ(Lines(), 60);
  }

  static std::unique_ptr<Stage> stage_;
};

std::unique_ptr<Stage> MpiRun::stage_;

TEST_F(MpiRun, AKilledRankEndsTheJobWhichGoesOnWhenItIsStartedAgain) { StrikeAndStartAgain(SIGKILL); }

TEST_F(MpiRun, AFrozenRankEndsTheJobWhichGoesOnWhenItIsStartedAgain) { StrikeAndStartAgain(SIGSTOP); }

TEST_F(MpiRun, IsSavedWhenItIsToldToStop) {
  const auto process = Start(3);
  ASSERT_TRUE(WaitForStep(5)) << process->Log();
  process->Signal(SIGUSR1);  // which mpirun passes on
  EXPECT_EQ(process->Wait(60).value_or(-1), 128 + SIGUSR1) << process->Log();
  EXPECT_EQ(Events(Run(), "run_stopped").size(), 1u);
  EXPECT_EQ(RunBinary({"compare", stage_->undisturbed(), Run()}, Run() + ".compare"), 0);
}

TEST_F(MpiRun, WhatRankZeroRefusesEndsAll) {
  std::filesystem::create_directories(Run());
  std::ofstream(Run() + "/something") << "that is no run";
  std::ofstream(Run() + "/metrics.jsonl") << "neither is this\n";
  const auto process = Start(3);
  EXPECT_EQ(process->Wait(60).value_or(-1), 1) << process->Log();
  EXPECT_TRUE(ProcessesWith(Run()).empty());
}

}  // namespace
}  // namespace holdfast::chaos
