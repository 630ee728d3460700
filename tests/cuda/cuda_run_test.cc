// What a run on a GPU is promised: the same bits from run to run, in every world (here several workers share one GPU,
// by Gloo), through kills, and when it is taken up again from a checkpoint by another number of workers. Skips without
// a GPU. HOLDFAST_TEST_DEVICE=cpu shows that the tests themselves are right, on any machine.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

#include "framework/tensor/cuda_device.h"
#include "tests/chaos/chaos_run.h"
#include "tests/cuda/require_gpu.h"

namespace holdfast::chaos {
namespace {

const std::string kSteps = "train.steps=200";

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

class CudaRun : public StageTest {
 protected:
  static void SetUpTestSuite() {
    if (CanRun()) stage_ = std::make_unique<Stage>(Settings());
  }
  void SetUp() override {
    if (!CanRun()) {
      HOLDFAST_NO_GPU();
    }
  }

  static std::unique_ptr<LoggedProcess> Train(int workers, const std::vector<std::string>& more,
                                              const std::string& run = Run()) {
    std::vector<std::string> arguments{"train", stage_->config(), "--workers", std::to_string(workers), "--run-dir",
                                       run};
    for (const std::vector<std::string>& settings : {Settings(), more}) {
      for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    }
    return std::make_unique<LoggedProcess>(arguments, run + ".log");
  }
};

TEST_F(CudaRun, AThousandStepsTwiceAreEqual) {
  for (const char* name : {"first", "second"}) {
    EXPECT_EQ(Train(1, {"train.steps=1000", "log.digest_every_steps=50"}, Run() + name)->ExitCode(), 0);
  }
  EXPECT_EQ(RunBinary({"compare", Run() + "first", Run() + "second"}, Run() + ".compare.log"), 0);
}

TEST_F(CudaRun, EveryWorldHasTheBitsOfTheWorldOfOne) {
  const std::vector<std::pair<int, std::vector<std::string>>> worlds{
      {2, {kSteps, "parallel.sharding=full_shard"}},
      {3, {kSteps, "parallel.sharding=full_shard", "parallel.mirrors_on=cpu"}},
      {2, {kSteps, "parallel.sharding=no_shard"}},
      {4, {kSteps, "parallel.sharding=shard_grad_op", "parallel.replicas=2"}}};
  for (size_t i = 0; i < worlds.size(); ++i) {
    const std::string run = Run() + std::to_string(i);
    EXPECT_EQ(Train(worlds[i].first, worlds[i].second, run)->ExitCode(), 0) << i;
    EXPECT_TRUE(stage_->HasUndisturbedBits(run)) << i;
  }
}

TEST_F(CudaRun, AKilledWorkerChangesNoBit) {
  for (const char* place : {"device", "cpu"}) {  // the lost state comes from mirrors there
    const std::string run = Run() + place;
    const auto process = Train(3, {std::string("parallel.mirrors_on=") + place}, run);
    for (const size_t rank : {2u, 0u}) {
      RunView view;
      ASSERT_TRUE(WaitUntil(*process, run, [&, before = CommittedSteps(run)](const RunView& now) {
        view = now;
        return now.world_size == 3 && now.committed_step >= before + 20;
      }));
      kill(view.workers.at(rank).pid, SIGKILL);
    }
    ASSERT_TRUE(WaitForEvents(*process, run, "worker_lost", 2));
    ASSERT_TRUE(WaitForStep(*process, run, CommittedSteps(run) + 20));
    process->Signal(SIGTERM);
    EXPECT_EQ(process->ExitCode(), 143);
    EXPECT_TRUE(stage_->HasUndisturbedBits(run));
  }
}

TEST_F(CudaRun, ARunThatWasKilledGoesOnFromItsCheckpointInAnotherWorld) {
  for (const int workers : {1, 2}) {
    const auto process = Train(workers, {"checkpoint.every_steps=7"});
    ASSERT_TRUE(WaitForStep(*process, Run(), CommittedSteps(Run()) + 30));
    ASSERT_TRUE(WaitForEvents(*process, Run(), "checkpoint"));
    ASSERT_TRUE(KillAll(*process, Run()));
  }
  const int64_t steps = CommittedSteps(Run()) + 30;
  EXPECT_EQ(Train(1, {"checkpoint.every_steps=7", "train.steps=" + std::to_string(steps)})->ExitCode(), 0);
  EXPECT_EQ(CommittedSteps(Run()), steps);
  EXPECT_TRUE(stage_->HasUndisturbedBits(Run()));
  EXPECT_EQ(RunBinary({"ckpt", "verify", Run(), "--all"}, Run() + ".verify.log"), 0);
}

}  // namespace
}  // namespace holdfast::chaos
