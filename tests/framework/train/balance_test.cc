// Proves what counts of a step do to a router's bias: it goes up by the rate where an expert had fewer tokens than the
// mean of its layer and down where it had more, with every optimizer, untouched by gradient, clipping, weight decay and
// learning rate; its average follows it; and experts that were overloaded are chosen less.

#include <gtest/gtest.h>

#include <random>

#include "framework/train/balance_updates.h"
#include "framework/train/trainer.h"
#include "models/plan.h"
#include "models/transformer.h"
#include "tests/framework/train/tiny_model.h"

namespace holdfast {
namespace {

constexpr int64_t kVocab = 61, kSequence = 16, kBatch = 2, kMicrobatches = 3, kExperts = 5;
constexpr double kRate = 0.015625;  // a power of two, so that sums of it are exact

ParameterLayout Layout() {
  std::vector<ParameterSpec> parameters = {{.name = "matrix", .shape = {2, 3}},
                                           {.name = "first", .shape = {4}, .balance = Balance{"tokens", 0, 1}},
                                           {.name = "second", .shape = {2}, .balance = Balance{"tokens", 4, 1}}};
  return {std::move(parameters), {"unit"}};
}

TEST(BalanceUpdates, AreSignsOfTheDifferenceToTheMeanOfTheirCounts) {
  const ParameterLayout layout = Layout();
  const auto device = MakeCpuDevice(1);
  BalanceUpdates updates = BalanceUpdates::Create(layout, *device).value();
  Statistics step;
  step.Add({"tokens", std::vector<int64_t>{5, 1, 3, 3, 0, 7}});
  const absl::Span<const float* const> by_chunk = updates.With(step, {});
  ASSERT_EQ(by_chunk.size(), 3u);
  EXPECT_EQ(by_chunk[0], nullptr);
  EXPECT_EQ(std::vector<float>(by_chunk[1], by_chunk[1] + 4), (std::vector<float>{-1, 1, 0, 0}));
  EXPECT_EQ(std::vector<float>(by_chunk[2], by_chunk[2] + 2), (std::vector<float>{1, -1}));
}

TEST(BalanceUpdates, StandBesideThoseOfWholeMatrices) {
  const ParameterLayout layout = Layout();
  const auto device = MakeCpuDevice(1);
  BalanceUpdates updates = BalanceUpdates::Create(layout, *device).value();
  Statistics step;
  step.Add({"tokens", std::vector<int64_t>{1, 0, 0, 0, 0, 0}});
  const float whole = 0;
  const std::vector<const float*> others = {&whole, nullptr, nullptr};
  const absl::Span<const float* const> by_chunk = updates.With(step, others);
  EXPECT_EQ(by_chunk[0], &whole);
  EXPECT_EQ(*by_chunk[1], -1);
  EXPECT_EQ(*by_chunk[2], 0);  // no tokens at all: all are at the mean
}

ModelConfig Mixture(double rate) {
  ModelConfig m = TinyTransformer(kVocab, kSequence);
  m.activation = ActivationKind::kSwiglu;
  m.bias = false;
  m.num_layers = 2;
  m.num_experts = kExperts;
  m.experts_per_token = 2;
  m.expert_intermediate_size = 24;
  m.router_bias = true;
  m.router_bias_rate = rate;
  return m;
}

absl::StatusOr<Microbatch> MakeMicrobatch(int64_t index) {
  std::mt19937 random(static_cast<unsigned>(index));
  Microbatch m{.batch = kBatch, .sequence = kSequence, .inputs = {}, .targets = {}};
  m.index = static_cast<uint32_t>(index);
  for (int64_t i = 0; i < kBatch * kSequence; ++i) {
    m.inputs.push_back(static_cast<int32_t>(random() % kVocab));
    m.targets.push_back(static_cast<int32_t>(random() % kVocab));
  }
  return m;
}

/// A trainer in a world of one.
struct TrainedModel {
  TrainedModel(const ModelConfig& config, const OptimizerConfig& optimizer) : device(MakeCpuDevice(1)) {
    model = MakeTransformer(config, {}, *device).value();
    TrainerOptions options;
    options.batch = {.sequence_length = kSequence, .microbatch_size = kBatch, .microbatches = kMicrobatches};
    options.optimizer = optimizer;
    options.total_steps = 1000;
    options.seed = 7;
    options.arena_bytes = PlanTraining(*model, kBatch, kSequence).arena_bytes;
    trainer = Trainer::Create(*model, *device, options).value();
    EXPECT_TRUE(trainer->EnterWorld({}, {}).ok());
  }

  Statistics Step(int64_t step) {
    const absl::StatusOr<StepResult> result = trainer->Prepare({step, {kMicrobatches}}, MakeMicrobatch, {});
    EXPECT_TRUE(result.ok()) << result.status();
    trainer->Commit(*result);
    return result->statistics;
  }

  /// All planes of a vector.
  std::vector<float> PlanesOf(const std::string& name) const {
    const int parameter = model->layout().Find(name);
    for (int c = 0; c < static_cast<int>(model->layout().chunks().size()); ++c) {
      const Chunk& chunk = model->layout().chunks()[static_cast<size_t>(c)];
      if (chunk.parameter != parameter) continue;
      std::vector<float> values(trainer->state_layout().ChunkBytes(chunk) / sizeof(float));
      trainer->state().ReadChunk(c, reinterpret_cast<std::byte*>(values.data()));
      return values;
    }
    ADD_FAILURE() << "no " << name;
    return {};
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<Model> model;
  std::unique_ptr<Trainer> trainer;
};

std::string BiasName(int64_t layer) { return absl::StrCat("blocks.", layer, ".experts.router_bias"); }

TEST(RouterBias, FollowsTheCountsWithEveryOptimizer) {
  for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kLion, OptimizerKind::kMuon}) {
    for (const double ema : {0.0, 0.5}) {
      TrainedModel run(Mixture(kRate),
                       {.name = kind, .lr = 3e-3, .weight_decay = 0.5, .grad_clip_norm = 0.01, .ema_decay = ema});
      std::vector<std::vector<float>> bias(2, std::vector<float>(kExperts)), average = bias;
      for (int64_t step = 1; step <= 4; ++step) {
        const Statistics statistics = run.Step(step);
        const absl::Span<const int64_t> load = statistics.Counts("expert_load");
        for (size_t i = 0; i < load.size(); ++i) {
          const int64_t difference = kMicrobatches * kBatch * kSequence * 2 - load[i] * kExperts;
          float& value = bias[i / kExperts][i % kExperts];
          value += static_cast<float>(kRate) * static_cast<float>((difference > 0) - (difference < 0));
          average[i / kExperts][i % kExperts] = 0.5f * average[i / kExperts][i % kExperts] + 0.5f * value;
        }
        for (int64_t layer = 0; layer < 2; ++layer) {
          std::vector<float> expected = bias[static_cast<size_t>(layer)];
          const std::vector<float>& averages = average[static_cast<size_t>(layer)];
          if (ema > 0) expected.insert(expected.end(), averages.begin(), averages.end());
          EXPECT_EQ(run.PlanesOf(BiasName(layer)), expected) << "step " << step << " layer " << layer;
        }
      }
    }
  }
}

double Imbalance(const Statistics& step) {
  double sum = 0;
  for (const int64_t load : step.Counts("expert_load")) sum += static_cast<double>(load * load);
  return sum;
}

// With weights that stay, only the bias changes who is chosen.
TEST(RouterBias, TakesTokensFromExpertsThatHaveTooMany) {
  const OptimizerConfig still{.lr = 1e-30, .weight_decay = 0};
  TrainedModel balanced(Mixture(kRate / 16), still), frozen(Mixture(0), still);
  const double before = Imbalance(balanced.Step(1));
  EXPECT_EQ(Imbalance(frozen.Step(1)), before);
  for (int64_t step = 2; step <= 30; ++step) balanced.Step(step), frozen.Step(step);
  EXPECT_EQ(Imbalance(frozen.Step(31)), before);
  EXPECT_EQ(frozen.PlanesOf(BiasName(0)), std::vector<float>(kExperts));
  const double mean = kMicrobatches * kBatch * kSequence * 2.0 / kExperts;
  const double even = 2 * kExperts * mean * mean;
  EXPECT_LT(Imbalance(balanced.Step(31)) - even, (before - even) / 2);
}

}  // namespace
}  // namespace holdfast
