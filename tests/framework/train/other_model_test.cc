// Proves that a trainer needs nothing of a language model: a small denoiser (values instead of tokens, a noise level
// per sample, attention that is not causal, a squared error) is planned and trained by the trainer as it stands,
// learns, and has the same bits in worlds of one, two and three.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <thread>

#include "framework/train/trainer.h"
#include "models/plan.h"
#include "models/unit_guard.h"
#include "tests/framework/comm/in_process.h"

namespace holdfast {
namespace {

constexpr int64_t kBatch = 2, kLength = 6, kWidth = 8, kRows = kBatch * kLength, kMicrobatches = 5, kSteps = 8;

enum Arrays : size_t { kNoisy, kNoise, kLevel };  // (R, kWidth), (R, kWidth), (B)

/// loss of a row = |noise - prediction|^2 / 2, with prediction = attention(noisy + level * weight_level) W^T.
class Denoiser final : public Model {
 public:
  Denoiser()
      : layout_({{.name = "level.weight", .shape = {kWidth}, .init = InitKind::kConstant},
                 {.name = "qkv.weight",
                  .shape = {3 * kWidth, kWidth},
                  .init = InitKind::kNormal,
                  .init_std = 0.5,
                  .decay = true,
                  .unit = 1},
                 {.name = "out.weight",
                  .shape = {kWidth, kWidth},
                  .init = InitKind::kNormal,
                  .init_std = 0.5,
                  .decay = true,
                  .unit = 2}},
                {"level", "attention", "out"}) {}

  const ParameterLayout& layout() const override { return layout_; }
  DType compute_dtype() const override { return DType::kF32; }
  absl::Span<const BatchArray> batch_arrays() const override {
    static constexpr std::array<BatchArray, 3> arrays = {{{"noisy", kWidth}, {"noise", kWidth}, {"level", 1}}};
    return arrays;
  }

  /// Of a microbatch's samples: how many have a level up to 1 and above, and the sum of 1 / level.
  const StatisticsLayout& statistics() const override { return statistics_; }
  std::vector<Figure> Figures(const Statistics& step) const override {
    return {{.name = "inverse_level", .values = {step.Reals("inverse_level")[0]}}};
  }

  absl::Status ForwardBackward(const Batch& batch, const PassContext& context, float* losses) override {
    for (int64_t b = 0; context.statistics != nullptr && b < kBatch; ++b) {
      const float level = batch.array<float>(kLevel)[b];
      ++statistics_.At<int64_t>(context.statistics, 0)[level > 1 ? 1 : 0];
      *statistics_.At<double>(context.statistics, 1) += 1.0 / level;
    }
    const ArenaScope scope(*context.arena);
    ASSIGN_OR_RETURN(const Activations a, Forward(batch, context, losses));
    kernels::Ops& ops = *context.ops;
    const Tensor d_x = Values(context, kWidth), d_qkv = Values(context, 3 * kWidth);
    {
      for (int64_t i = 0; losses != nullptr && i < a.error.shape.elements(); ++i) {
        a.error.f32()[i] *= context.loss_scale;
      }
      ASSIGN_OR_RETURN(const AcquiredUnit unit, AcquiredUnit::Acquire(*context.store, 2));
      ASSIGN_OR_RETURN(const UnitTensors gradients, context.store->BeginGradients(2));
      ops.Gemm({.a = a.error.matrix(), .transpose_a = true, .b = a.attended.matrix(), .c = gradients[0].matrix()});
      ops.Gemm({.a = a.error.matrix(), .b = unit.weights()[0].matrix(), .c = d_x.matrix()});
      RETURN_IF_ERROR(context.store->EndGradients(2));
    }
    {
      ASSIGN_OR_RETURN(const AcquiredUnit unit, AcquiredUnit::Acquire(*context.store, 1));
      ASSIGN_OR_RETURN(const UnitTensors gradients, context.store->BeginGradients(1));
      ops.AttentionBackward(d_qkv.matrix(), d_x.matrix(), a.attended.matrix(), a.lse.f32(), a.qkv.matrix(),
                            ShapeOf(batch));
      ops.Gemm({.a = d_qkv.matrix(), .transpose_a = true, .b = a.x.matrix(), .c = gradients[0].matrix()});
      ops.Gemm({.a = d_qkv.matrix(), .b = unit.weights()[0].matrix(), .c = d_x.matrix()});
      RETURN_IF_ERROR(context.store->EndGradients(1));
    }
    ASSIGN_OR_RETURN(const UnitTensors gradients, context.store->BeginGradients(0));
    for (int64_t j = 0; losses != nullptr && j < kWidth; ++j) {
      float sum = 0;
      for (int64_t r = 0; r < kRows; ++r) sum += d_x.f32()[r * kWidth + j] * batch.array<float>(kLevel)[r / kLength];
      gradients[0].f32()[j] = sum;
    }
    return context.store->EndGradients(0);
  }

  absl::Status Evaluate(const Batch& batch, const PassContext& context, float* losses) override {
    const ArenaScope scope(*context.arena);
    return Forward(batch, context, losses).status();
  }

 private:
  struct Activations {
    Tensor x, qkv, attended, lse, error;
  };

  static Tensor Values(const PassContext& context, int64_t cols) {
    return context.arena->Allocate(DType::kF32, {kRows, cols});
  }
  static kernels::AttentionShape ShapeOf(const Batch& batch) {
    return {.batch = batch.batch,
            .sequence = batch.sequence,
            .num_heads = 1,
            .num_kv_heads = 1,
            .head_dim = kWidth,
            .dropout = {},
            .causal = false};
  }

  absl::StatusOr<Activations> Forward(const Batch& batch, const PassContext& context, float* losses) const {
    kernels::Ops& ops = *context.ops;
    const Activations a{Values(context, kWidth), Values(context, 3 * kWidth), Values(context, kWidth),
                        context.arena->Allocate(DType::kF32, {kRows}), Values(context, kWidth)};
    const bool dry = losses == nullptr;
    {
      ASSIGN_OR_RETURN(const AcquiredUnit unit, AcquiredUnit::Acquire(*context.store, 0));
      for (int64_t i = 0; !dry && i < kRows * kWidth; ++i) {
        const float level = batch.array<float>(kLevel)[i / kWidth / kLength];
        a.x.f32()[i] = batch.array<float>(kNoisy)[i] + level * unit.weights()[0].f32()[i % kWidth];
      }
    }
    {
      ASSIGN_OR_RETURN(const AcquiredUnit unit, AcquiredUnit::Acquire(*context.store, 1));
      ops.Gemm({.a = a.x.matrix(), .b = unit.weights()[0].matrix(), .transpose_b = true, .c = a.qkv.matrix()});
      ops.AttentionForward(a.attended.matrix(), a.lse.f32(), a.qkv.matrix(), ShapeOf(batch));
    }
    ASSIGN_OR_RETURN(const AcquiredUnit unit, AcquiredUnit::Acquire(*context.store, 2));
    ops.Gemm({.a = a.attended.matrix(), .b = unit.weights()[0].matrix(), .transpose_b = true, .c = a.error.matrix()});
    for (int64_t r = 0; !dry && r < kRows; ++r) {
      losses[r] = 0;
      for (int64_t i = r * kWidth; i < (r + 1) * kWidth; ++i) {
        a.error.f32()[i] -= batch.array<float>(kNoise)[i];
        losses[r] += a.error.f32()[i] * a.error.f32()[i] / 2;
      }
    }
    return a;
  }

  ParameterLayout layout_;
  StatisticsLayout statistics_{{{.name = "levels", .combine = Combine::kCount, .size = 2},
                                {.name = "inverse_level", .combine = Combine::kMean}}};
};

/// A smooth signal of another phase for each sample, and noise of another level.
CpuBatch MakeBatch(int64_t step, int64_t index) {
  std::mt19937 random(static_cast<unsigned>(step * 1000 + index));
  std::normal_distribution<float> normal;
  std::vector<float> noisy, noise, level;
  for (int64_t b = 0; b < kBatch; ++b) {
    level.push_back(0.5f + static_cast<float>(random() % 100) / 100);
    const float phase = static_cast<float>(random() % 628) / 100;
    for (int64_t i = 0; i < kLength * kWidth; ++i) {
      noise.push_back(normal(random));
      noisy.push_back(std::sin(phase + static_cast<float>(i % kWidth)) + level.back() * noise.back());
    }
  }
  CpuBatch batch;
  batch.batch = kBatch;
  batch.sequence = kLength;
  batch.arrays = {noisy, noise, level};
  batch.counted = kRows;
  batch.step = static_cast<uint32_t>(step);
  batch.index = static_cast<uint32_t>(index);
  return batch;
}

TrainerOptions Options(Model& model) {
  const PassPlan training = PlanTraining(model, kBatch, kLength);
  TrainerOptions options;
  options.batch = {.sequence_length = kLength, .microbatch_size = kBatch, .microbatches = kMicrobatches};
  options.optimizer.lr = 3e-2;
  options.total_steps = 1000;
  options.seed = 7;
  options.arena_bytes = training.arena_bytes;
  options.training_schedule = training.schedule;
  options.evaluation_schedule = PlanEvaluation(model, kBatch, kLength).schedule;
  return options;
}

/// Of a run.
struct Trace {
  std::vector<float> losses;  // of all steps, and the validation loss after them
  std::vector<Statistics> statistics;
};

Trace TrainIn(int size) {
  const std::vector<std::string> nodes(static_cast<size_t>(size), "here");
  auto communicators = MakeInProcessWorld(size, 1), groups = MakeInProcessWorld(size, 1);
  std::vector<Trace> traces(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto at = static_cast<size_t>(rank);
      Denoiser model;
      const auto device = MakeCpuDevice(1);
      const auto trainer = Trainer::Create(model, *device, Options(model)).value();
      WorldCommunicators connected;
      if (size > 1) connected = {.world = std::move(communicators[at]), .group = std::move(groups[at])};
      TrainerWorld world;
      world.placement = Placement(nodes, {});
      world.rank = rank;
      const auto entered = trainer->EnterWorld(std::move(world), std::move(connected));
      ASSERT_TRUE(entered.ok()) << entered.status();
      for (int64_t step = 1; step <= kSteps; ++step) {
        const auto result =
            trainer->Prepare({step, EvenMicrobatches(kMicrobatches, size)},
                             [&](int64_t index) -> absl::StatusOr<CpuBatch> { return MakeBatch(step, index); }, {});
        ASSERT_TRUE(result.ok()) << result.status();
        traces[at].losses.push_back(result->loss);
        traces[at].statistics.push_back(result->statistics);
        EXPECT_EQ(result->figures.at(0).values.at(0), result->statistics.Reals("inverse_level")[0]);
        trainer->Commit(*result);
      }
      const auto loss =
          trainer->Evaluate(4, [&](int64_t index) -> absl::StatusOr<CpuBatch> { return MakeBatch(99, index); }, {});
      ASSERT_TRUE(loss.ok()) << loss.status();
      traces[at].losses.push_back(static_cast<float>(*loss));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Trace& of_rank : traces) {
    EXPECT_EQ(of_rank.losses, traces[0].losses);
    EXPECT_EQ(of_rank.statistics, traces[0].statistics);
  }
  return traces[0];
}

TEST(OtherModelTest, HasTheSameBitsInAnyWorldAndLearns) {
  const Trace alone = TrainIn(1);
  ASSERT_EQ(alone.losses.size(), kSteps + 1u);
  EXPECT_LT(alone.losses[kSteps - 1], 0.8f * alone.losses[0]);
  const absl::Span<const int64_t> levels = alone.statistics[3].Counts("levels");
  EXPECT_EQ(levels[0] + levels[1], kBatch * kMicrobatches);
  EXPECT_GT(levels[1], 0);
  double inverse = 0;
  for (int64_t i = 0; i < kMicrobatches; ++i) {
    const CpuBatch batch = MakeBatch(4, i);
    for (const float level : std::get<std::vector<float>>(batch.arrays[kLevel])) inverse += 1.0 / level;
  }
  EXPECT_NEAR(alone.statistics[3].Reals("inverse_level")[0], inverse / kMicrobatches, 1e-12);
  for (int size : {2, 3, 7}) {  // of 7 two have no microbatch
    const Trace many = TrainIn(size);
    EXPECT_EQ(many.statistics, alone.statistics) << size << " ranks";
    ASSERT_EQ(many.losses.size(), alone.losses.size());
    for (size_t i = 0; i < alone.losses.size(); ++i) {
      EXPECT_EQ(std::bit_cast<uint32_t>(many.losses[i]), std::bit_cast<uint32_t>(alone.losses[i]))
          << size << " ranks, loss " << i;
    }
  }
}

TEST(OtherModelTest, PlansWithoutData) {
  Denoiser model;
  const PassPlan plan = PlanTraining(model, kBatch, kLength);
  EXPECT_EQ(plan.schedule.size(), 2u * 3 + 2 * 2 + 2 * 3);  // acquired and released: three forward, two back; gradients
  const double products = 2.0 * kRows * kWidth * kWidth * (3 + 1), pairs = 2.0 * kBatch * kWidth * kLength * kLength;
  EXPECT_DOUBLE_EQ(plan.flops, 3 * products + 7 * pairs);  // every query sees every key
}

}  // namespace
}  // namespace holdfast
