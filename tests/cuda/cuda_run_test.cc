// What a run on a GPU is promised: the CPU's losses, but for rounding; the same bits from run to run, also in the
// shapes that are trained in, in every world (here several workers share one GPU, by Gloo), through kills, and when it
// is taken up again from a checkpoint by another number of workers. Skips without a GPU. HOLDFAST_TEST_DEVICE=cpu shows
// that the tests themselves are right, on any machine; HOLDFAST_TEST_STEPS=N makes the longest of them shorter.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <cstdlib>

#include "framework/tensor/cuda_device.h"
#include "tests/chaos/chaos_run.h"
#include "tests/cuda/require_gpu.h"

namespace holdfast::chaos {
namespace {

const std::string kSteps = "train.steps=200";

std::string LongSteps() {
  const char* steps = std::getenv("HOLDFAST_TEST_STEPS");
  return steps == nullptr ? "1000" : steps;
}

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

/// GPT-2 of the same sizes, with its whole vocabulary.
std::vector<std::string> Gpt2() {
  return {"model.family=gpt2", "model.vocab_size=50257", "model.num_kv_heads=0", "model.intermediate_size=0"};
}

std::vector<double> Losses(const std::string& run) {
  std::vector<double> losses;
  for (const nlohmann::json& line : Lines(run + "/metrics.jsonl")) losses.push_back(line.value("loss", NAN));
  return losses;
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

  /// Trains twice and expects the same bits.
  static void ExpectSameBitsTwice(const std::vector<std::string>& settings) {
    const std::string first = Run() + "first", second = Run() + "second";
    for (const std::string& run : {first, second}) ASSERT_EQ(Train(1, settings, run)->ExitCode(), 0);
    EXPECT_EQ(RunBinary({"compare", first, second}, Run() + ".compare.log"), 0);
  }
};

TEST_F(CudaRun, AThousandStepsTwiceAreEqual) {
  ExpectSameBitsTwice({"train.steps=" + LongSteps(), "log.digest_every_steps=50"});
}

// In these shapes cuBLASLt has more ways to cut a product, of which some add its parts in the order they are done in.
TEST_F(CudaRun, ThirtyStepsOfGpt2TwiceAreEqual) {
  std::vector<std::string> settings = Gpt2();
  settings.insert(
      settings.end(),
      {"model.hidden_size=768", "model.num_heads=12", "model.num_layers=12", "model.max_sequence_length=1024",
       "batch.sequence_length=1024", "batch.microbatch_size=32", "batch.microbatches=1", "train.steps=30",
       "train.validate_every_steps=0", "log.digest_every_steps=5", "checkpoint.every=never"});
  if (Device() == "cpu") {  // which has no such ways
    settings.insert(settings.end(), {"model.num_layers=1", "batch.sequence_length=64", "batch.microbatch_size=1",
                                     "train.steps=3", "log.digest_every_steps=1"});
  }
  ExpectSameBitsTwice(settings);
}

// A GPU that is compared with itself may be wrong the same way twice. Whole vocabularies, sequences of several tiles of
// attention, the kernels of both families and of experts, whose router multiplies fp32 matrices by bf16 ones.
TEST_F(CudaRun, LossesAreThoseOfTheCpu) {
  const std::vector<std::string> llama{"model.vocab_size=128256"};
  // A smaller learning rate, as rounding decides which experts a token goes to.
  const std::vector<std::string> experts{"model.family=qwen2_moe",
                                         "model.num_experts=8",
                                         "model.experts_per_token=2",
                                         "model.expert_intermediate_size=64",
                                         "model.shared_expert_intermediate_size=64",
                                         "optimizer.lr=1e-3"};
  for (std::vector<std::string> settings : {Gpt2(), llama, experts}) {
    const std::string name = settings.front();
    settings.insert(settings.begin(), {"batch.sequence_length=320", "model.max_sequence_length=320",
                                       "batch.microbatches=1", "train.steps=20", "train.validate_every_steps=0",
                                       "schedule.warmup_steps=0", "optimizer.lr=2e-3", "train.threads=0"});
    const std::string gpu = Run() + name + "gpu", cpu = Run() + name + "cpu";
    ASSERT_EQ(Train(1, settings, gpu)->ExitCode(), 0);
    settings.emplace_back("train.device=cpu");
    ASSERT_EQ(Train(1, settings, cpu)->ExitCode(), 0);
    const std::vector<double> losses = Losses(gpu), expected = Losses(cpu);
    ASSERT_EQ(losses.size(), 20u);
    ASSERT_EQ(expected.size(), 20u);
    for (size_t i = 0; i < losses.size(); ++i) {
      EXPECT_NEAR(losses[i], expected[i], 0.01 * expected[i]) << name << ", step " << i + 1;
    }
    EXPECT_LT(losses.back(), 0.8 * losses.front()) << "nothing was learned, so nothing was compared";
  }
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
