// Proves that a pass's random numbers are keyed by seed, step and microbatch, each of them by itself: what a model is
// told, and what a real one makes of it. Worlds that agree with each other do not show an error here: all share it.

#include "framework/train/pass_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <set>
#include <vector>

#include "framework/train/trainer.h"
#include "models/plan.h"
#include "models/transformer.h"
#include "tests/framework/train/tiny_model.h"

namespace holdfast {
namespace {

constexpr int64_t kVocab = 61, kSequence = 12, kBatch = 2;

Microbatch MicrobatchOf(uint32_t step, uint32_t index) {
  Microbatch m{.batch = kBatch, .sequence = kSequence, .inputs = {}, .targets = {}, .step = step, .index = index};
  for (int32_t i = 0; i < kBatch * kSequence; ++i) {  // the same tokens whatever the key
    m.inputs.push_back(i * 7 % kVocab);
    m.targets.push_back(i * 11 % kVocab);
  }
  return m;
}

/// Takes note of the keys it is given.
class KeyRecorder final : public LanguageModel {
 public:
  explicit KeyRecorder(const ParameterLayout& layout) : layout_(layout) {}
  const ParameterLayout& layout() const override { return layout_; }
  DType compute_dtype() const override { return DType::kF32; }
  absl::Status ForwardBackward(const Batch& batch, const PassContext& context, float* losses) override {
    keys.push_back(context.random);
    std::fill_n(losses, batch.batch * batch.sequence, 1.0f);
    ++*statistics_.At<int64_t>(context.statistics, 0);  // from zero
    statistics_.At<double>(context.statistics, 1)[1] = context.random.microbatch;
    return absl::OkStatus();
  }
  const StatisticsLayout& statistics() const override { return statistics_; }
  absl::Status Evaluate(const Batch&, const PassContext&, float*) override { return absl::OkStatus(); }
  absl::Status LastLogits(const TokenBatch&, const PassContext&, float*) override { return absl::OkStatus(); }

  std::vector<kernels::RandomKey> keys;

 private:
  const ParameterLayout& layout_;
  StatisticsLayout statistics_{{{.name = "passes", .combine = Combine::kCount}, {.name = "index", .size = 2}}};
};

class NoStore final : public UnitStore {
 public:
  absl::StatusOr<absl::Span<const Tensor>> Acquire(int) override { return absl::UnimplementedError(""); }
  void Release(int) override {}
  absl::StatusOr<absl::Span<const Tensor>> BeginGradients(int) override { return absl::UnimplementedError(""); }
  absl::Status EndGradients(int) override { return absl::OkStatus(); }
};

ModelConfig TinyModel() {
  ModelConfig m = TinyTransformer(kVocab, kSequence);
  m.dropout = 0.5;
  return m;
}

TEST(PassRunner, TellsTheModelSeedStepAndMicrobatch) {
  const ParameterLayout layout = TransformerLayout(TinyModel());
  const auto device = MakeCpuDevice(1);
  KeyRecorder model(layout);
  NoStore store;
  constexpr uint64_t kSeed = 0xfedcba9876543210;
  const auto runner = PassRunner::Create(
      model, *device, {.max_rows = kBatch * kSequence, .max_passes = 4, .arena_bytes = 1024, .seed = kSeed});
  ASSERT_TRUE(runner.ok()) << runner.status();
  (*runner)->BeginStep();
  for (const auto& [step, index] : {std::pair{1u, 0u}, {4u, 0u}, {1u, 5u}, {70'001u, 9u}}) {
    ASSERT_TRUE((*runner)->ForwardBackward(MicrobatchOf(step, index), 1, store).ok());
    EXPECT_EQ(model.keys.back().seed, kSeed);
    EXPECT_EQ(model.keys.back().step, step);
    EXPECT_EQ(model.keys.back().microbatch, index);
    EXPECT_EQ(model.keys.back().site, 0u) << "which is the model's own";
  }
}

// Site 0 of a pass is a parameter's number of initial values: a step of 0 would give both the same numbers.
TEST(PassRunner, TheFirstStepDrawsOtherNumbersThanInitialValues) {
  constexpr uint64_t kSeed = 7;
  const auto device = MakeCpuDevice(1);
  const auto model = MakeTransformer(TinyModel(), {.compute_dtype = DType::kF32}, *device).value();
  TrainerOptions options;
  options.batch = {.sequence_length = kSequence, .microbatch_size = kBatch, .microbatches = 1};
  options.total_steps = 1;
  options.seed = kSeed;
  options.arena_bytes = PlanTraining(*model, kBatch, kSequence).arena_bytes;
  const auto trainer = Trainer::Create(*model, *device, options).value();
  ASSERT_TRUE(trainer->EnterWorld({}, {}).ok());
  const ParameterSpec& first = model->layout().parameters()[0];
  ASSERT_EQ(first.init, InitKind::kNormal);
  std::vector<float> initial(static_cast<size_t>(model->layout().chunks()[0].elements)), drawn(initial.size());
  trainer->state().ReadWeights(0, initial.data());

  KeyRecorder recorder(model->layout());
  NoStore store;
  const auto runner = PassRunner::Create(
      recorder, *device, {.max_rows = kBatch * kSequence, .max_passes = 1, .arena_bytes = 1024, .seed = kSeed});
  ASSERT_TRUE(runner.ok()) << runner.status();
  ASSERT_TRUE((*runner)->ForwardBackward(MicrobatchOf(1, 0), 1, store).ok());
  const auto draw = [&](const kernels::RandomKey& key) {
    (*runner)->stream().ops().FillNormal(drawn.data(), static_cast<int64_t>(drawn.size()), 0, first.init_std, key);
    return drawn;
  };
  EXPECT_EQ(draw({.seed = kSeed}), initial) << "else what follows says nothing";
  EXPECT_NE(draw(recorder.keys.back()), initial);
}

// Results wait on the device, as many as there is room for; those beyond are fetched in between.
TEST(PassRunner, AStepThatWasAbandonedLeavesNoResults) {
  const ParameterLayout layout = TransformerLayout(TinyModel());
  const auto device = MakeCpuDevice(1);
  KeyRecorder model(layout);
  NoStore store;
  const auto runner = PassRunner::Create(
      model, *device, {.max_rows = kBatch * kSequence, .max_passes = 2, .arena_bytes = 1024, .seed = 1});
  ASSERT_TRUE(runner.ok()) << runner.status();
  (*runner)->BeginStep();
  for (uint32_t i = 0; i < 3; ++i) ASSERT_TRUE((*runner)->ForwardBackward(MicrobatchOf(1, i), 1, store).ok());
  (*runner)->BeginStep();
  for (uint32_t i = 4; i < 7; ++i) ASSERT_TRUE((*runner)->ForwardBackward(MicrobatchOf(2, i), 1, store).ok());
  const auto results = (*runner)->TakeStatistics();
  ASSERT_TRUE(results.ok()) << results.status();
  std::vector<uint64_t> expected;  // loss, counted, passes, index
  for (const double index : {4.0, 5.0, 6.0}) {
    for (const double value : {double{kBatch * kSequence}, std::bit_cast<double>(int64_t{kBatch * kSequence}),
                               std::bit_cast<double>(int64_t{1}), 0.0, index}) {
      expected.push_back(std::bit_cast<uint64_t>(value));
    }
  }
  EXPECT_EQ(*results, expected);
}

// The same tokens and weights: only the masks differ.
TEST(PassRunner, DropoutDiffersByStepByMicrobatchAndBySeed) {
  const auto device = MakeCpuDevice(1);
  const auto model = MakeTransformer(TinyModel(), {.compute_dtype = DType::kF32}, *device).value();
  const auto loss = [&](uint64_t seed, uint32_t step, uint32_t index) {
    TrainerOptions options;
    options.batch = {.sequence_length = kSequence, .microbatch_size = kBatch, .microbatches = 1};
    options.total_steps = 10;
    options.seed = seed;
    options.arena_bytes = PlanTraining(*model, kBatch, kSequence).arena_bytes;
    options.initial_weights = [](int64_t first, absl::Span<float> out) {
      for (size_t i = 0; i < out.size(); ++i) {
        out[i] = static_cast<float>((first + static_cast<int64_t>(i)) * 37 % 101 - 50) * 0.01f;
      }
      return absl::OkStatus();
    };
    const auto trainer = Trainer::Create(*model, *device, options).value();
    EXPECT_TRUE(trainer->EnterWorld({}, {}).ok());
    const auto result = trainer->Prepare(
        {1, {1}}, [&](int64_t) -> absl::StatusOr<Microbatch> { return MicrobatchOf(step, index); }, {});
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? result->loss : 0;
  };
  const std::set<float> losses{loss(1, 1, 0), loss(1, 2, 0), loss(1, 1, 1), loss(2, 1, 0),
                               loss(uint64_t{1} << 40, 1, 0)};
  EXPECT_EQ(losses.size(), 5u);
  EXPECT_EQ(loss(1, 2, 0), loss(1, 2, 0));
}

}  // namespace
}  // namespace holdfast
