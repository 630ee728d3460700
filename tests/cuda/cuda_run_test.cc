// What a run on a GPU is promised: the same bits from run to run, in every world (here several workers share one GPU,
// by Gloo), through kills, and when it is taken up again from a checkpoint by another number of workers. Skips without
// a GPU. HOLDFAST_TEST_DEVICE=cpu shows that the tests themselves are right, on any machine.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "framework/tensor/cuda_device.h"
#include "tests/chaos/chaos_run.h"
#include "tests/cuda/require_gpu.h"

namespace holdfast::chaos {
namespace {

constexpr int kSteps = 200;

std::string Device() {
  const char* device = std::getenv("HOLDFAST_TEST_DEVICE");
  return device == nullptr ? "cuda" : device;
}

bool CanRun() { return Device() != "cuda" || NumCudaDevices() > 0; }

/// A model that takes the tensor cores' path: heads of 64, rows of whole tiles.
std::vector<std::string> Settings() {
  return {"train.device=" + Device(),
          "model.hidden_size=128",
          "model.num_heads=2",
          "model.num_kv_heads=1",
          "model.head_dim=64",
          "model.intermediate_size=256",
          "batch.sequence_length=64",
          "model.max_sequence_length=64",
          "elastic.heartbeat_timeout_ms=10000"};
}

class CudaRun : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (CanRun()) stage_ = std::make_unique<Stage>(kSteps, Settings());
  }
  static void TearDownTestSuite() { stage_.reset(); }
  void SetUp() override {
    if (!CanRun()) {
      HF_NO_GPU();
    }
  }

  std::string Run() const {
    return stage_->Path(testing::UnitTest::GetInstance()->current_test_info()->name() + std::to_string(runs_));
  }
  std::unique_ptr<LoggedProcess> Train(int workers, const std::vector<std::string>& more, const std::string& run) {
    std::vector<std::string> arguments{"train", stage_->config(), "--workers", std::to_string(workers), "--run-dir",
                                       run};
    for (const std::vector<std::string>& settings : {Settings(), more}) {
      for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    }
    return std::make_unique<LoggedProcess>(arguments, run + ".log");
  }
  void ExpectEqualBits(const std::string& run) const {
    EXPECT_EQ(RunBinary({"compare", stage_->undisturbed(), run}, run + ".compare"), 0) << run;
  }
  static bool WaitForStep(const std::string& run, int step) {
    for (int i = 0; i < 6000; ++i) {
      std::ifstream file(run + "/metrics.jsonl");
      int lines = 0;
      for (std::string line; std::getline(file, line);) ++lines;
      if (lines >= step) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  static std::unique_ptr<Stage> stage_;
  int runs_ = 0;
};

std::unique_ptr<Stage> CudaRun::stage_;

TEST_F(CudaRun, AThousandStepsTwiceAreEqual) {
  for (const char* name : {"first", "second"}) {
    const auto process = Train(1, {"train.steps=1000", "log.digest_every_steps=50"}, Run() + name);
    EXPECT_EQ(process->Wait(280).value_or(-1), 0) << process->Log();
  }
  EXPECT_EQ(RunBinary({"compare", Run() + "first", Run() + "second"}, Run() + ".compare"), 0);
}

TEST_F(CudaRun, EveryWorldHasTheBitsOfTheWorldOfOne) {
  const std::vector<std::pair<int, std::vector<std::string>>> worlds{
      {2, {"parallel.sharding=full_shard"}},
      {3, {"parallel.sharding=full_shard", "parallel.mirrors_on=host"}},
      {2, {"parallel.sharding=no_shard"}},
      {4, {"parallel.sharding=shard_grad_op", "parallel.replicas=2"}}};
  for (const auto& [workers, settings] : worlds) {
    const std::string run = Run() + "-" + std::to_string(++runs_);
    const auto process = Train(workers, settings, run);
    EXPECT_EQ(process->Wait(280).value_or(-1), 0) << process->Log();
    ExpectEqualBits(run);
  }
}

TEST_F(CudaRun, AKilledWorkerChangesNoBit) {
  for (const char* place : {"device", "host"}) {  // the lost state comes from mirrors there
    const std::string run = Run() + place;
    const auto process = Train(3, {std::string("parallel.mirrors_on=") + place}, run);
    for (const int step : {20, 60}) {
      ASSERT_TRUE(WaitForStep(run, step)) << process->Log();
      const RunView view = Look(run);
      ASSERT_TRUE(view.reachable && !view.workers.empty()) << process->Log();
      kill(view.workers[static_cast<size_t>(step) % view.workers.size()].pid, SIGKILL);
    }
    EXPECT_EQ(process->Wait(280).value_or(-1), 0) << process->Log();
    EXPECT_GE(Events(run, "worker_lost").size(), 1u) << process->Log();
    ExpectEqualBits(run);
  }
}

TEST_F(CudaRun, ARunThatWasKilledGoesOnFromItsCheckpointInAnotherWorld) {
  const std::string run = Run();
  int step = 0;
  for (const int workers : {1, 2, 1}) {
    const auto process = Train(workers, {"checkpoint.every_steps=7"}, run);
    step += 50;
    if (step < 150) {
      ASSERT_TRUE(WaitForStep(run, step)) << process->Log();
      process->Signal(SIGKILL);
      for (const int pid : ProcessesWith(run)) kill(pid, SIGKILL);
      process->Wait(20);
    } else {
      EXPECT_EQ(process->Wait(280).value_or(-1), 0) << process->Log();
    }
  }
  ExpectEqualBits(run);
  EXPECT_EQ(RunBinary({"ckpt", "verify", run, "--all"}, run + ".verify"), 0);
}

}  // namespace
}  // namespace holdfast::chaos
