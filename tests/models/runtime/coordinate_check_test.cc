// Proves that what is seen of a pass is what the pass computes, that a model's sizes grow together, that slopes are
// those of power laws, and that the check tells parametrizations apart: with muP what changes does not depend on the
// width, with CompleteP not on the depth, dense or with experts, with every optimizer; standard fails visibly.

#include "models/runtime/coordinate_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "models/observing_device.h"
#include "models/runtime/make_model.h"
#include "models/runtime/trainer_options.h"
#include "tests/models/runtime/tiny_run.h"

namespace holdfast {
namespace {

using testing::HasSubstr;

class CoordinateCheckTest : public TinyRun {
 protected:
  /// Of all activations over models of these sizes.
  Changes SlopesOf(std::vector<std::string> overrides, bool width, const std::vector<int64_t>& sizes) {
    overrides.insert(overrides.begin(), {"optimizer.lr=0.002", "model.num_layers=2", "model.hidden_size=64",
                                         "model.num_heads=4", "model.num_kv_heads=2", "model.intermediate_size=128",
                                         "model.max_sequence_length=64", "batch.sequence_length=64"});
    const Config config = ConfigOf(std::move(overrides));
    std::array<std::vector<double>, kActivations.size()> values;
    for (const int64_t size : sizes) {
      Config resized = config;
      resized.model = Resized(config.model, width ? size : 64, width ? 2 : size).value();
      const auto changes = MeasureChanges(resized, 10, 4);
      EXPECT_TRUE(changes.ok()) << changes.status();
      for (size_t a = 0; a < values.size(); ++a) values[a].push_back(changes.ok() ? (*changes)[a] : 1);
    }
    Changes slopes{};
    for (size_t a = 0; a < slopes.size(); ++a) slopes[a] = LogSlope(sizes, values[a]);
    return slopes;
  }
};

const std::vector<int64_t> kWidths = {64, 128, 256}, kDepths = {4, 8, 16};
constexpr size_t kAttentionOfAllLayers = 1;

// Begun as a model of the base's width is best, so that what initial values do by chance is the same in all widths.
const std::vector<std::string> kBegin = {"model.init_std=0.125", "model.zero_init_head=true"};

TEST_F(CoordinateCheckTest, WithMupTheWidthDecidesNothing) {
  EXPECT_GT(SlopesOf(kBegin, true, kWidths)[kAttentionOfAllLayers], 0.5);
  const std::vector<std::vector<std::string>> cases = {
      {},
      {"model.num_experts=4", "model.experts_per_token=2", "model.expert_intermediate_size=64",
       "model.shared_expert_intermediate_size=64"},
      {"optimizer.name=lion", "optimizer.lr=0.001"},
      // Its update is as large in all directions that tokens span, so they have to be few beside the width.
      {"optimizer.name=muon", "optimizer.lr=0.005", "batch.microbatch_size=1", "batch.sequence_length=32"}};
  for (const std::vector<std::string>& overrides : cases) {
    std::vector<std::string> mup = kBegin;
    mup.insert(mup.end(), {"model.parametrization=mup", "model.base_hidden_size=64"});
    mup.insert(mup.end(), overrides.begin(), overrides.end());
    for (const double slope : SlopesOf(mup, true, kWidths)) {
      EXPECT_LT(std::abs(slope), 0.05) << (overrides.empty() ? "dense, AdamW" : overrides[0]);
    }
  }
}

TEST_F(CoordinateCheckTest, WithCompletePTheDepthDecidesNothing) {
  EXPECT_GT(SlopesOf({}, false, kDepths)[kAttentionOfAllLayers], 0.5);
  for (const double slope :
       SlopesOf({"model.parametrization=completep", "model.base_hidden_size=64", "model.base_num_layers=4"}, false,
                kDepths)) {
    EXPECT_LT(std::abs(slope), 0.08);
  }
}

TEST_F(CoordinateCheckTest, WhatIsSeenIsWhatIsComputed) {
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"model.qk_norm=true"},
        {"model.norm_position=after"},
        {"model.norm_position=both"},
        {"model.num_experts=3", "model.experts_per_token=2", "model.expert_intermediate_size=16"}}) {
    Config config = ConfigOf(more);
    config.model.num_layers = 3;
    config.train.compute_dtype = ComputeDType::kF32;
    const auto inner = MakeCpuDevice(1);
    ObservingDevice device(*inner);
    const auto model = MakeModel(config, device).value();
    const auto trainer = Trainer::Create(*model, device, MakeTrainerOptions(config, *model).value()).value();
    ASSERT_TRUE(trainer->EnterWorld({}, {}).ok());
    Microbatch tokens{.batch = 2, .sequence = 16, .inputs = std::vector<int32_t>(32, 5), .targets = {}};
    tokens.targets = tokens.inputs;
    std::vector<Observed> order;
    std::vector<float> sum, stream, logits;
    device.Observe([&](Observed what, absl::Span<const float> values) {
      order.push_back(what);
      if (what == Observed::kLogits) return logits.assign(values.begin(), values.end());
      ASSERT_EQ(values.size(), 32u * 32);
      if (what == Observed::kEmbedding) return sum.assign(values.begin(), values.end());
      if (what == Observed::kStream) {
        stream.assign(values.begin(), values.end());
        for (size_t i = 0; i < sum.size(); ++i) ASSERT_NEAR(sum[i], stream[i], 1e-6);
        return;
      }
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
    });
    const auto source = [&](int64_t) -> absl::StatusOr<CpuBatch> { return CpuBatch(tokens); };
    const double loss = trainer->Evaluate(1, source, {}).value();
    std::vector<Observed> expected = {Observed::kEmbedding};
    for (int layer = 0; layer < 3; ++layer) {
      expected.insert(expected.end(), {Observed::kAttention, Observed::kStream, Observed::kMlp, Observed::kStream});
    }
    expected.push_back(Observed::kLogits);
    EXPECT_EQ(order, expected);
    ASSERT_EQ(logits.size(), 32u * 256);
    double by_logits = 0;
    for (size_t row = 0; row < 32; ++row) {
      double all = 0;
      for (size_t v = 0; v < 256; ++v) all += std::exp(logits[row * 256 + v]);
      by_logits += (std::log(all) - logits[row * 256 + 5]) / 32;
    }
    EXPECT_NEAR(by_logits, loss, 1e-5);
    device.Observe(nullptr);
    EXPECT_EQ(trainer->Evaluate(1, source, {}).value(), loss);
    EXPECT_EQ(order, expected);
  }
}

TEST_F(CoordinateCheckTest, SizesGrowTogether) {
  ModelConfig model = ConfigOf({"model.num_experts=4", "model.expert_intermediate_size=24"}).model;
  const ModelConfig grown = Resized(model, 96, 5).value();
  EXPECT_EQ(grown.num_layers, 5);
  EXPECT_EQ(grown.hidden_size, 96);
  EXPECT_EQ(grown.head_dim, 16);
  EXPECT_EQ(grown.num_heads, 6);
  EXPECT_EQ(grown.num_kv_heads, 3);
  EXPECT_EQ(grown.intermediate_size, 192);
  EXPECT_EQ(grown.expert_intermediate_size, 72);
  EXPECT_EQ(grown.num_experts, 4);
  EXPECT_EQ(Resized(model, 48, 1).status().message(),
            "hidden_size 48: model.num_kv_heads 1 of hidden_size 32 would become 1.5; widths that are multiples of 32 "
            "keep it whole");
  model.first_expert_layer = 3;
  EXPECT_THAT(Resized(model, 64, 2).status().message(), HasSubstr("first_expert_layer 3"));
}

TEST(LogSlope, IsThatOfAPowerLaw) {
  std::vector<double> values;
  for (const double x : {64.0, 128.0, 512.0}) values.push_back(3 * std::pow(x, -0.75));
  EXPECT_NEAR(LogSlope({64, 128, 512}, values), -0.75, 1e-12);
  EXPECT_NEAR(LogSlope({2, 4, 8, 16}, {1, 2, 2, 1}), 0, 1e-12);
}

TEST_F(CoordinateCheckTest, WhatDoesNotChangeIsAnError) {
  EXPECT_THAT(MeasureChanges(ConfigOf({"optimizer.lr=0"}), 1, 1).status().message(),
              HasSubstr("hidden_size 32, num_layers 1: embedding has changed by 0 in 1 step; optimizer.lr is 0"));
}

}  // namespace
}  // namespace holdfast
