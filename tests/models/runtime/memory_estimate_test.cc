// What `holdfast validate` says of memory is what workers hold: for worlds of several sizes, with experts gathered and
// moved, also where two microbatches of a worker take turns, the estimate is compared with the most that each worker's
// device lent at a time. Communication is held back, so that as much waits for being reduced as may wait. And where all
// tokens go to the same experts, no worker holds more. What kernels work in is counted, too (plan_test.cc proves it of
// a CPU), and on a GPU what digests do; the latter is compared with a state on a device that stands for one.

#include "models/runtime/memory_estimate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "framework/base/processors.h"
#include "framework/optim/optimizer.h"
#include "framework/parallel/sharded_state.h"
#include "models/runtime/make_model.h"
#include "models/runtime/pass_plans.h"
#include "models/runtime/scratch_ops.h"
#include "models/runtime/training_runtime.h"
#include "tests/framework/comm/in_process.h"
#include "tests/framework/comm/wrapped_communicator.h"
#include "tests/framework/train/deferred_device.h"
#include "tests/models/runtime/tiny_run.h"

namespace holdfast {
namespace {

/// Takes a while for each exchange.
class SlowCommunicator final : public WrappedCommunicator {
 public:
  SlowCommunicator(std::unique_ptr<Communicator> inner, const std::chrono::milliseconds& delay)
      : WrappedCommunicator(std::move(inner)), delay_(delay) {}
  absl::Status AllToAllV(RankSlices<ConstBytes> input, RankSlices<Bytes> output, Deadline deadline) override {
    std::this_thread::sleep_for(delay_);
    return WrappedCommunicator::AllToAllV(input, output, deadline);
  }

 private:
  const std::chrono::milliseconds& delay_;
};

class MemoryEstimateTest : public TinyRun {
 protected:
  Config Mixture(int workers, const std::string& experts, const std::vector<std::string>& more = {}) {
    std::vector<std::string> overrides{"model.family=mixtral",
                                       "model.num_layers=3",
                                       "model.hidden_size=64",
                                       "model.num_experts=12",
                                       "model.experts_per_token=2",
                                       "model.expert_intermediate_size=64",
                                       "parallel.sharding=full_shard",
                                       absl::StrCat("elastic.workers=", workers),
                                       absl::StrCat("parallel.experts=", experts),
                                       "batch.microbatches=4"};
    overrides.insert(overrides.end(), more.begin(), more.end());
    return ConfigOf(overrides);
  }

  /// A world of config.elastic.workers, which has committed nothing.
  void Enter(const Config& config) {
    const auto size = static_cast<int>(config.elastic.workers);
    workers_.clear();
    const Placement placement(std::vector<std::string>(static_cast<size_t>(size), "here"), config.parallel);
    std::vector<WorldCommunicators> communicators(static_cast<size_t>(size));
    if (size > 1) {
      auto world = MakeInProcessWorld(size, 1);
      for (size_t r = 0; r < world.size(); ++r) {
        communicators[r].world = std::make_unique<SlowCommunicator>(std::move(world[r]), delay_);
      }
    }
    for (int g = 0; g < placement.num_groups(); ++g) {
      const std::vector<int> group = placement.Group(g);
      if (group.size() == 1) continue;
      auto members = MakeInProcessWorld(static_cast<int>(group.size()), 1);
      auto again = MakeInProcessWorld(static_cast<int>(group.size()), 1);
      for (size_t i = 0; i < group.size(); ++i) {
        communicators[static_cast<size_t>(group[i])].group = std::move(members[i]);
        if (ComputesInParts(config)) communicators[static_cast<size_t>(group[i])].parts = std::move(again[i]);
      }
    }
    for (int rank = 0; rank < size; ++rank) {
      auto runtime = OpenTraining(config, {});
      ASSERT_TRUE(runtime.ok()) << runtime.status();
      workers_.push_back(*std::move(runtime));
      TrainerWorld mine;
      mine.placement = placement;
      mine.rank = rank;
      const auto entered =
          workers_.back()->trainer->EnterWorld(mine, std::move(communicators[static_cast<size_t>(rank)]));
      ASSERT_TRUE(entered.ok()) << entered.status();
    }
  }

  void Step(const Config& config, int64_t step, bool one_token) {
    std::vector<std::thread> threads;
    const auto microbatches = EvenMicrobatches(config.batch.microbatches, static_cast<int>(workers_.size()));
    for (const auto& worker : workers_) {
      threads.emplace_back([&, worker = worker.get()] {
        const auto source = [&](int64_t index) -> absl::StatusOr<Microbatch> {
          Microbatch m{.batch = 2, .sequence = 16, .inputs = {}, .targets = std::vector<int32_t>(32, 9)};
          m.step = static_cast<uint32_t>(step);
          m.index = static_cast<uint32_t>(index);
          for (int64_t i = 0; i < 32; ++i) {
            m.inputs.push_back(one_token ? 7 : static_cast<int32_t>((31 * step + 13 * index + 41 * i) % kVocabulary));
          }
          return m;
        };
        const auto result = worker->trainer->Prepare({step, microbatches}, source, {});
        ASSERT_TRUE(result.ok()) << result.status();
        worker->trainer->Commit(*result);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  double Peak() const {
    int64_t most = 0;
    for (const auto& worker : workers_) most = std::max(most, worker->device->memory().peak_bytes());
    return static_cast<double>(most);
  }

  static double Estimate(const Config& config) {
    const auto device = MakeDevice(config.train);
    const auto model = MakeModel(config, **device);
    const PassPlans plans =
        PlanPasses(**model, config.batch.microbatch_size, config.batch.sequence_length, MovesTokens(config));
    return EstimateMemory(config, (*model)->layout(), plans).total();
  }

  std::chrono::milliseconds delay_{0};
  std::vector<std::unique_ptr<TrainingRuntime>> workers_;
};

TEST_F(MemoryEstimateTest, IsWhatIsUsed) {
  for (const char* experts : {"gather", "move"}) {
    for (int workers = 1; workers <= 4; ++workers) {
      for (const char* more : {"train.compute_dtype=f32", "train.compute_dtype=bf16", "batch.gradient_sum=chains",
                               "parallel.sharding=no_shard", "parallel.sharding=shard_grad_op", "parallel.replicas=2",
                               "model.expert_bias=true", "parallel.overlap_microbatches=true"}) {
        if (std::string_view(experts) == "gather" && std::string_view(more).ends_with("microbatches=true")) continue;
        const Config config = Mixture(workers, experts, {more});
        const double estimate = Estimate(config);
        ASSERT_NO_FATAL_FAILURE(Enter(config));
        delay_ = std::chrono::milliseconds(1);
        // Until the slowest part of a step is to send gradients, however slow this machine computes.
        for (int64_t step = 1; step <= 6 && Peak() < 0.97 * estimate; ++step, delay_ *= 2) {
          Step(config, step, /*one_token=*/false);
        }
        const double share = Peak() / estimate;
        EXPECT_GE(share, 0.96) << workers << " workers, " << experts << ", " << more;
        EXPECT_LE(share, 1.02) << workers << " workers, " << experts << ", " << more;
      }
    }
  }
}

// Each token is the same one, so all choose the same two experts of each layer.
TEST_F(MemoryEstimateTest, HoldsWhereAllTokensGoToTheSameExperts) {
  for (int workers = 2; workers <= 4; ++workers) {
    const Config config = Mixture(workers, "move");
    const double estimate = Estimate(config);
    ASSERT_NO_FATAL_FAILURE(Enter(config));
    delay_ = std::chrono::milliseconds(10);
    for (int64_t step = 1; step <= 2; ++step) Step(config, step, /*one_token=*/true);
    EXPECT_LE(Peak() / estimate, 1.02) << workers << " workers";
  }
}

TEST_F(MemoryEstimateTest, OnAGpuItHasWhatKernelsAndDigestsWorkIn) {
  const Config on_cpu = ConfigOf({"train.compute_dtype=f32"});
  Config on_gpu = on_cpu;
  on_gpu.train.device = DeviceKind::kCuda;
  const auto cpu_device = MakeCpuDevice(1);
  const auto model = MakeModel(on_cpu, *cpu_device).value();
  const ParameterLayout& layout = model->layout();
  const UnitSchedule schedule = PlanTraining(*model, 2, 16).schedule;
  const MemoryEstimate cpu = EstimateMemory(on_cpu, layout, 0, schedule);
  const MemoryEstimate gpu = EstimateMemory(on_gpu, layout, 0, schedule);
  EXPECT_EQ(cpu.kernels + cpu.digests, 0);
  EXPECT_EQ(gpu.kernels, 64 << 20);
  EXPECT_NEAR(gpu.total(), cpu.total() + gpu.kernels + gpu.digests, 1);

  DeferredDevice device;
  const auto stream = device.CreateStream(StreamKind::kCompute).value();
  const Placement placement({"here"}, on_gpu.parallel);
  const ShardMap map(layout, DType::kF32, placement);
  const auto optimizer = MakeOptimizer(on_gpu.optimizer);
  const StateLayout planes = LayoutOf(*optimizer, layout);
  const auto state = ShardedState::Create(map, planes, {.whole_units = true}, device, *stream);
  ASSERT_TRUE(state.ok()) << state.status();
  const auto held = static_cast<double>(device.memory().peak_bytes());
  EXPECT_NEAR(held, gpu.weights + gpu.optimizer + gpu.digests, 4096);  // units begin at multiples of 64 bytes
}

TEST_F(MemoryEstimateTest, OnACpuItHasWhatKernelsOfAllThreadsWorkIn) {
  Config config = ConfigOf({"train.compute_dtype=f32", "train.threads=3"});
  const auto device = MakeCpuDevice(1);
  const auto model = MakeModel(config, *device).value();
  const BatchConfig& batch = config.batch;
  const auto scratch = [&](int threads) {
    return PlanScratch(*model, batch.microbatch_size, batch.sequence_length, kernels::Arithmetic::kPortable, threads);
  };
  EXPECT_EQ(CpuScratchBytes(config, *model, 2).value(), scratch(3));
  EXPECT_GT(scratch(3), scratch(1));
  config.train.threads = 0;
  EXPECT_EQ(CpuScratchBytes(config, *model, 1).value(), scratch(AvailableProcessors()));
  EXPECT_EQ(CpuScratchBytes(config, *model, AvailableProcessors() + 1).value(), scratch(1));
  PassPlans plans = PlanPasses(*model, batch.microbatch_size, batch.sequence_length);
  const double without = EstimateMemory(config, model->layout(), plans).total();
  plans.scratch_bytes = 5 << 20;
  EXPECT_EQ(EstimateMemory(config, model->layout(), plans).total(), without + (5 << 20));
}

TEST_F(MemoryEstimateTest, AMixtureOnAGpuCopiesTheInputsOfRouters) {
  Config config = Mixture(1, "gather", {"train.compute_dtype=bf16", "batch.microbatch_size=16384"});
  config.train.device = DeviceKind::kCuda;
  const auto cpu_device = MakeCpuDevice(1);
  const auto model = MakeModel(config, *cpu_device).value();
  const UnitSchedule schedule = PlanTraining(*model, 2, 16).schedule;
  const auto kernels = [&] { return EstimateMemory(config, model->layout(), 0, schedule).kernels; };
  EXPECT_EQ(kernels(), (32 << 20) + 16384 * 16 * 64 * 4);
  config.train.compute_dtype = ComputeDType::kF32;
  EXPECT_EQ(kernels(), 64 << 20);
}

// Where the state is what does not fit, smaller passes are no help.
TEST(CheckHostMemoryTest, SaysWhatMakesTheStateSmaller) {
  const absl::Status refused = CheckHostMemory(MemoryEstimate{.weights = 1e18}, {}, 1);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_NE(refused.message().find("train a part of the model (lora, train.only), add workers on other machines"),
            std::string::npos)
      << refused;
}

// Each thread has memory of its own.
TEST(CheckHostMemoryTest, SaysThatFewerThreadsTakeLessWhereTheyTakeMost) {
  Config config;
  const auto message = [&](double weights) {
    return std::string(CheckHostMemory({.weights = weights, .kernels = 1e18}, config, 1).message());
  };
  EXPECT_NE(message(9e17).find("available; set train.threads to fewer, "), std::string::npos) << message(9e17);
  EXPECT_EQ(message(2e18).find("train.threads"), std::string::npos);
  config.train.threads = 1;
  EXPECT_EQ(message(0).find("train.threads"), std::string::npos);
}

TEST(CheckHostMemoryTest, WhatIsSetAlreadyIsNotAdvised) {
  Config config;
  config.batch.microbatch_size = config.batch.microbatches = 2;
  const auto advice = [&](int64_t workers_here) {
    const std::string refused(CheckHostMemory(MemoryEstimate{.weights = 1e18}, config, workers_here).message());
    return refused.substr(refused.rfind("available; "));
  };
  EXPECT_EQ(advice(2),
            "available; start fewer workers on this machine, lower batch.microbatch_size, set batch.gradient_sum: "
            "chains, set train.recompute: block, train a part of the model (lora, train.only), add workers on other "
            "machines, or use a smaller model");
  config.batch.gradient_sum = GradientSumKind::kChains;
  config.train.recompute = RecomputeMode::kBlock;
  config.lora.rank = 2;
  EXPECT_EQ(advice(1), "available; lower batch.microbatch_size, add workers on other machines, or use a smaller model");
  config.batch.microbatch_size = config.batch.microbatches = 1;
  config.batch.gradient_sum = GradientSumKind::kTree;
  config.parallel.sharding = Sharding::kNoShard;
  EXPECT_EQ(advice(1), "available; use a smaller model");
}

}  // namespace
}  // namespace holdfast
