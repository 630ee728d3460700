// Proves a linear layer with adapters, forward and backward, against double precision: several adapters in one pair of
// matrices, some columns without any, with dropout and without, and with the input's gradient in the input's memory.
// And adapters of whole mixtures of experts (experts, routers, shared experts), by central differences of the reference
// model with merged weights; frozen weights and recomputation change no bit of their gradients.

#include "models/adapter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "framework/tensor/device.h"
#include "models/linear.h"
#include "tests/kernels/kernel_test_util.h"
#include "tests/models/reference_model.h"
#include "tests/models/test_models.h"

namespace holdfast {
namespace {

constexpr int64_t kLines = 11, kWidthIn = 24, kWidthOut = 30, kAdapterRank = 3;
constexpr float kAdapterScale = 1.5f;
constexpr uint32_t kAdapterSite = uint32_t{1} << 24;  // of the first adapter, see adapter.cc
const std::vector<Adapter::Segment> kAdapted = {{0, 12}, {20, 6}};

using Floats = std::vector<float>;

class LinearWithAdapters : public ::testing::TestWithParam<float> {
 protected:
  LinearWithAdapters()
      : builder_({.rank = kAdapterRank, .scale = kAdapterScale, .dropout = GetParam()}),
        device_(MakeCpuDevice(2)),
        stream_(device_->CreateStream().value()),
        arena_(Arena::Create(*device_, size_t{1} << 20).value()) {
    builder_.BeginUnit("unit");
  }

  Floats Random(int64_t n) {
    Floats values(static_cast<size_t>(n));
    for (float& value : values) value = std::normal_distribution<float>()(random_);
    return values;
  }
  static Tensor Of(Floats& values, int64_t rows) {
    return {values.data(), DType::kF32, {rows, static_cast<int64_t>(values.size()) / rows}};
  }
  float Kept(int64_t row, int64_t col) const {
    return kernels::DropoutFactor({.rate = GetParam(), .key = Key()}, row * kWidthIn + col);
  }
  static kernels::RandomKey Key() { return {.seed = 5, .step = 3, .microbatch = 2, .site = kAdapterSite}; }
  Pass MakePass() {
    return {.ops = &stream_->ops(),
            .arena = &arena_,
            .batch = 1,
            .sequence = kLines,
            .random = {.seed = 5, .step = 3, .microbatch = 2},
            .training = true};
  }

  std::mt19937 random_{7};
  ParameterBuilder builder_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  Arena arena_;
};

double Gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

void ExpectNear(const Floats& actual, const std::vector<double>& expected, const char* what) {
  for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(actual[i], expected[i], 2e-4) << what << " " << i;
}

TEST_P(LinearWithAdapters, EqualsDoublePrecision) {
  const Linear linear(builder_, "layer",
                      {.in = kWidthIn, .out = kWidthOut, .bias = true, .init_std = 1, .adapted = kAdapted});
  const int64_t columns = 12 + 6, narrow = 2 * kAdapterRank;
  Floats x = Random(kLines * kWidthIn), d_y = Random(kLines * kWidthOut), w = Random(kWidthOut * kWidthIn),
         bias = Random(kWidthOut), a = Random(narrow * kWidthIn), b = Random(columns * kAdapterRank),
         y(kLines * kWidthOut);
  Floats d_a(a.size()), d_b(b.size()), d_bias(bias.size());
  Tensor vector = Of(bias, 1), d_vector = Of(d_bias, 1);
  vector.shape = d_vector.shape = {kWidthOut};
  const std::vector<Tensor> weights = {Of(w, kWidthOut), vector, Of(a, narrow), Of(b, columns)};
  const std::vector<Tensor> gradients = {Tensor(), d_vector, Of(d_a, narrow), Of(d_b, columns)};  // W is frozen

  // t = scale x' A^T;  y = x W^T + bias + t B^T;  d_t = scale d_y B;  d_x = d_y W + mask (d_t A)
  std::vector<double> dropped(x.size()), t(kLines * narrow), expected_y(y.size()), d_t(t.size()),
      expected_d_a(a.size()), expected_d_b(b.size()), expected_d_x(x.size());
  for (int64_t r = 0; r < kLines; ++r) {
    for (int64_t i = 0; i < kWidthIn; ++i) dropped[r * kWidthIn + i] = double{x[r * kWidthIn + i]} * double{Kept(r, i)};
    for (int64_t k = 0; k < narrow; ++k) {
      for (int64_t i = 0; i < kWidthIn; ++i)
        t[r * narrow + k] += double{kAdapterScale} * dropped[r * kWidthIn + i] * double{a[k * kWidthIn + i]};
    }
    for (int64_t o = 0; o < kWidthOut; ++o) {
      expected_y[r * kWidthOut + o] = double{bias[o]};
      for (int64_t i = 0; i < kWidthIn; ++i) {
        expected_y[r * kWidthOut + o] += double{x[r * kWidthIn + i]} * double{w[o * kWidthIn + i]};
        expected_d_x[r * kWidthIn + i] += double{d_y[r * kWidthOut + o]} * double{w[o * kWidthIn + i]};
      }
    }
    int64_t row = 0;
    for (size_t s = 0; s < kAdapted.size(); ++s) {
      for (int64_t o = kAdapted[s].first; o < kAdapted[s].first + kAdapted[s].count; ++o, ++row) {
        for (int64_t k = 0; k < kAdapterRank; ++k) {
          const size_t at = r * narrow + s * kAdapterRank + k;
          expected_y[r * kWidthOut + o] += t[at] * double{b[row * kAdapterRank + k]};
          expected_d_b[row * kAdapterRank + k] += double{d_y[r * kWidthOut + o]} * t[at];
          d_t[at] += double{kAdapterScale} * double{d_y[r * kWidthOut + o]} * double{b[row * kAdapterRank + k]};
        }
      }
    }
    for (int64_t k = 0; k < narrow; ++k) {
      for (int64_t i = 0; i < kWidthIn; ++i) {
        expected_d_a[k * kWidthIn + i] += d_t[r * narrow + k] * dropped[r * kWidthIn + i];
        expected_d_x[r * kWidthIn + i] += double{Kept(r, i)} * d_t[r * narrow + k] * double{a[k * kWidthIn + i]};
      }
    }
  }

  const Pass pass = MakePass();
  linear.Forward(pass, weights, Of(x, kLines).matrix(), Of(y, kLines).matrix());
  ExpectNear(y, expected_y, "y");
  Floats part(kLines * 10);  // columns 20 to 29: the second segment and some without
  linear.ForwardColumns(pass, weights, Of(x, kLines).matrix(), 20, Of(part, kLines).matrix());
  for (int64_t r = 0; r < kLines; ++r) {
    for (int64_t c = 0; c < 10; ++c) EXPECT_EQ(part[r * 10 + c], y[r * kWidthOut + 20 + c]);
  }
  Floats cut(kLines * 20);  // columns 5 to 24: of both segments a part
  linear.ForwardColumns(pass, weights, Of(x, kLines).matrix(), 5, Of(cut, kLines).matrix());
  for (int64_t r = 0; r < kLines; ++r) {
    for (int64_t c = 0; c < 20; ++c) EXPECT_EQ(cut[r * 20 + c], y[r * kWidthOut + 5 + c]) << r << " " << c;
  }
  Floats kept_x = x, before = Random(kLines * kWidthIn);
  linear.Backward(pass, weights, gradients, Of(x, kLines).matrix(), Of(d_y, kLines).matrix(), Of(x, kLines).matrix());
  ExpectNear(d_a, expected_d_a, "d_a");
  ExpectNear(d_b, expected_d_b, "d_b");
  ExpectNear(x, expected_d_x, "d_x");

  // As if x were gelu(before).
  linear.BackwardGelu(pass, weights, gradients, Of(kept_x, kLines).matrix(), Of(before, kLines).matrix(),
                      Of(d_y, kLines).matrix(), Of(kept_x, kLines).matrix());
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < before.size(); ++i) {
    expected_d_x[i] *= (Gelu(double{before[i]} + kStep) - Gelu(double{before[i]} - kStep)) / (2 * kStep);
  }
  ExpectNear(kept_x, expected_d_x, "d_before");
}

INSTANTIATE_TEST_SUITE_P(Dropout, LinearWithAdapters, ::testing::Values(0.0f, 0.3f));

const LoraOptions kEverywhere{.rank = kAdapterRank,
                              .scale = kAdapterScale,
                              .output = true,
                              .gate = true,
                              .up = true,
                              .down = true,
                              .experts = true,
                              .router = true,
                              .shared_expert = true,
                              .shared_expert_gate = true};

class MixtureWithAdapters : public ::testing::TestWithParam<NamedConfig> {
 protected:
  /// Gate and up as one layer, as files of our own form have them, in the model that no family's files can say.
  static LoraOptions Everywhere() {
    LoraOptions lora = kEverywhere;
    lora.one_gate_up = GetParam().config.norm_position == NormPosition::kAfter;
    return lora;
  }
  const ModelConfig& config() const { return GetParam().config; }

  /// The weights of the model without adapters, with what these add: row r of a weight is the sum over k of B[r, k] and
  /// row k of its part of A. Parts are equally high here.
  std::vector<double> Merged(const std::vector<double>& weights) const {
    std::vector<double> merged(static_cast<size_t>(base_.elements()));
    for (const ParameterSpec& spec : base_.parameters()) {
      const ParameterSpec& with = At(spec.name);
      std::copy_n(weights.begin() + with.offset, spec.shape.elements(), merged.begin() + spec.offset);
      const std::string module = spec.name.substr(0, spec.name.rfind('.'));
      if (layout_.Find(module + ".lora_a") < 0 || !spec.is_matrix()) continue;
      const ParameterSpec &a = At(module + ".lora_a"), &b = At(module + ".lora_b");
      const int64_t cols = spec.shape.cols(), part = spec.shape.rows() / (a.shape.rows() / kAdapterRank);
      for (int64_t r = 0; r < spec.shape.rows(); ++r) {
        for (int64_t k = 0; k < kAdapterRank; ++k) {
          const double factor = double{kAdapterScale} * weights[b.offset + r * kAdapterRank + k];
          const int64_t row_of_a = a.offset + (r / part * kAdapterRank + k) * cols;
          for (int64_t c = 0; c < cols; ++c) merged[spec.offset + r * cols + c] += factor * weights[row_of_a + c];
        }
      }
    }
    return merged;
  }
  const ParameterSpec& At(const std::string& name) const { return layout_.parameters()[layout_.Find(name)]; }

  const ParameterLayout base_ = TransformerLayout(GetParam().config);
  const ParameterLayout layout_ = TransformerLayout(GetParam().config, Everywhere());
  const std::vector<float> weights_ = RandomWeights(layout_, 7);
  const Tokens tokens_ = InDocuments(RandomTokens(GetParam().config.vocab_size, 3, 9, 11));
};

TEST_P(MixtureWithAdapters, GradientsMatchCentralDifferences) {
  TestModel model(config(), {.compute_dtype = DType::kF32, .lora = Everywhere()}, 2, weights_);
  const std::vector<float> losses = model.Train(tokens_, 1);
  const std::vector<float>& gradients = model.store().gradients();
  const std::vector<double> exact(weights_.begin(), weights_.end());
  ReferenceModel reference(config(), base_);
  const std::vector<double> expected_losses = reference.Losses(Merged(exact), tokens_);  // chooses the experts
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected_losses[i], 1e-4) << "token " << i;
  std::mt19937_64 rng(5);
  for (const ParameterSpec& p : layout_.parameters()) {
    std::vector<double> direction(static_cast<size_t>(p.shape.elements())), plus = exact, minus = exact;
    double actual = 0, norm = 0;
    constexpr double kStep = 1e-4;
    for (size_t i = 0; i < direction.size(); ++i) {
      const double d = rng() % 2 == 0 ? 0.5 : -0.5, g = gradients[p.offset + i];
      plus[p.offset + i] += kStep * d;
      minus[p.offset + i] -= kStep * d;
      actual += d * g;
      norm += g * g;
    }
    const auto loss = [&](const std::vector<double>& weights) {
      double sum = 0;
      for (const double value : reference.Losses(Merged(weights), tokens_)) sum += value;
      return sum + static_cast<double>(tokens_.inputs.size()) * reference.auxiliary();
    };
    ASSERT_GT(norm, 0) << p.name;
    EXPECT_NEAR(actual, (loss(plus) - loss(minus)) / (2 * kStep), 1e-4 * std::sqrt(norm)) << p.name;
  }
}

TEST_P(MixtureWithAdapters, NeitherFrozenWeightsNorRecomputationChangeABit) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    TestModel all(config(), {.compute_dtype = dtype, .lora = Everywhere()}, 2, weights_);
    TestModel part(config(),
                   {.compute_dtype = dtype,
                    .recompute_blocks = true,
                    .lora = Everywhere(),
                    .frozen = [](const ParameterSpec& spec) { return !spec.adapter; }},
                   3, weights_);
    EXPECT_EQ(all.Train(tokens_, 1), part.Train(tokens_, 1));
    for (const ParameterSpec& p : layout_.parameters()) {
      if (!p.adapter) continue;
      for (int64_t i = p.offset; i < p.offset + p.shape.elements(); ++i) {
        ASSERT_EQ(all.store().gradients()[i], part.store().gradients()[i]) << p.name << " element " << i - p.offset;
      }
    }
  }
}

std::vector<NamedConfig> Mixtures() {
  ModelConfig jitter = TinyQwen2Moe(), capacity = TinyQwen2Moe(), after = TinyQwen2Moe(), both = TinyQwen2Moe();
  ModelConfig oss = TinyGptOss();
  oss.shared_expert_intermediate_size = 20;
  oss.shared_expert_gate = true;
  jitter.router_jitter = 0.4;
  jitter.router_balance_loss = 0.3;
  jitter.router_z_loss = 0.1;
  capacity.expert_capacity = 0.75;
  after.norm_position = NormPosition::kAfter;
  both.norm_position = NormPosition::kBoth;
  return {{"Mixtral", TinyMixtral()},     {"Qwen2Moe", TinyQwen2Moe()}, {"Qwen2MoeJitter", jitter},
          {"Qwen2MoeCapacity", capacity}, {"Qwen3Moe", TinyQwen3Moe()}, {"Olmoe", TinyOlmoe()},
          {"Qwen2MoeNormsAfter", after},  {"Qwen2MoeNormsBoth", both},  {"GptOss", oss}};
}

INSTANTIATE_TEST_SUITE_P(Families, MixtureWithAdapters, ::testing::ValuesIn(Mixtures()),
                         [](const auto& model) { return model.param.name; });

}  // namespace
}  // namespace holdfast
