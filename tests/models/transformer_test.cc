// Proves forward and backward of every family and mixture against an independent double-precision model: losses and
// logits directly, gradients of every parameter by central differences. And proves what results must not depend on:
// threads, recomputation, evaluation instead of training.
#include "models/transformer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "models/experts.h"
#include "tests/models/reference_model.h"
#include "tests/models/test_models.h"

namespace holdfast {
namespace {

constexpr float kLossScale = 0.125f;
const TransformerOptions kF32{.compute_dtype = DType::kF32};
const TransformerOptions kF32Recompute{.compute_dtype = DType::kF32, .recompute_blocks = true};
const TransformerOptions kBf16{.compute_dtype = DType::kBF16};
const TransformerOptions kBf16Recompute{.compute_dtype = DType::kBF16, .recompute_blocks = true};

class TransformerTest : public ::testing::TestWithParam<NamedConfig> {
 protected:
  const ModelConfig& config() const { return GetParam().config; }

  const ParameterLayout layout_ = TransformerLayout(GetParam().config);
  const std::vector<float> weights_ = RandomWeights(layout_, 7);
  const std::vector<double> exact_weights_{weights_.begin(), weights_.end()};
  const Tokens tokens_ = RandomTokens(GetParam().config.vocab_size, 3, 9, 11);
  const Tokens packed_ = InDocuments(tokens_);
};

/// The model as it is evaluated.
ModelConfig Still(ModelConfig config) {
  config.dropout = config.expert_capacity = config.router_jitter = 0;
  return config;
}

double Sum(const std::vector<double>& values) {
  double sum = 0;
  for (double v : values) sum += v;
  return sum;
}

TEST_P(TransformerTest, ParametersKnowTheMatricesThatTheyAreMadeOf) {
  const int64_t key_width = config().num_kv_heads * config().head_dim;
  for (const ParameterSpec& p : layout_.parameters()) {
    std::vector<int64_t> fused;
    if (absl::EndsWith(p.name, ".qkv.weight")) fused = {config().num_heads * config().head_dim, key_width, key_width};
    if (absl::EndsWith(p.name, ".gate_up.weight")) fused = {p.shape[0] / 2, p.shape[0] / 2};
    EXPECT_EQ(p.fused, fused) << p.name;
  }
}

TEST_P(TransformerTest, LossesMatchReference) {
  for (const Tokens& tokens : {tokens_, packed_}) {
    TestModel model(config(), kF32, 2, weights_);
    const std::vector<float> losses = model.Train(tokens, kLossScale);
    const std::vector<double> expected = ReferenceModel(config(), layout_).Losses(exact_weights_, tokens);
    for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 3e-5) << "token " << i;
  }
}

TEST_P(TransformerTest, ADocumentHasTheLossesThatItHasAlone) {
  TestModel model(config(), kF32, 2, weights_);
  const std::vector<float> together = model.Evaluate(packed_);
  for (int64_t row = 0; row < packed_.batch * packed_.sequence;) {
    const int64_t length = packed_.ends[row] - packed_.begins[row];
    const auto slice = [&](const std::vector<int32_t>& all) {
      return std::vector<int32_t>(all.begin() + row, all.begin() + row + length);
    };
    const Tokens alone{
        .batch = 1, .sequence = length, .inputs = slice(packed_.inputs), .targets = slice(packed_.targets)};
    const std::vector<float> losses = model.Evaluate(alone);
    for (int64_t i = 0; i < length; ++i) EXPECT_NEAR(together[row + i], losses[i], 1e-5) << "token " << row + i;
    row += length;
  }
}

TEST_P(TransformerTest, ADocumentChangesNoBitOfItsNeighbours) {
  const int64_t row = 2 * packed_.sequence + 1;  // the first of the second of three documents
  const int64_t end = 2 * packed_.sequence + packed_.ends[row];
  Tokens changed = packed_;
  changed.inputs[row] = (changed.inputs[row] + 1) % static_cast<int32_t>(config().vocab_size);
  for (const TransformerOptions& options : {kF32, kBf16}) {
    TestModel model(Still(config()), options, 2, weights_);
    const std::vector<float> before = model.Evaluate(packed_), after = model.Evaluate(changed);
    EXPECT_NE(before[row + 1], after[row + 1]);  // the first one does not count
    for (int64_t i = 0; i < static_cast<int64_t>(before.size()); ++i) {
      if (i >= row && i < end) continue;
      EXPECT_EQ(before[i], after[i]) << "token " << i;
    }
  }
}

// Some elements of every parameter one by one, then all at once along a random direction, which no element escapes.
TEST_P(TransformerTest, GradientsMatchCentralDifferences) {
  TestModel model(config(), kF32, 2, weights_);
  model.Train(packed_, kLossScale);
  const std::vector<float>& gradients = model.store().gradients();
  ReferenceModel reference(config(), layout_);
  reference.Losses(exact_weights_, packed_);  // chooses the experts
  const auto derivative = [&](int64_t first, const std::vector<double>& direction) {
    constexpr double kStep = 1e-4;
    std::vector<double> plus = exact_weights_, minus = exact_weights_;
    for (size_t i = 0; i < direction.size(); ++i) {
      plus[first + i] += kStep * direction[i];
      minus[first + i] -= kStep * direction[i];
    }
    const auto rows = static_cast<double>(packed_.inputs.size());
    const auto loss = [&](const std::vector<double>& weights) {
      const double sum = Sum(reference.Losses(weights, packed_));
      return kLossScale * (sum + rows * reference.auxiliary());
    };
    return (loss(plus) - loss(minus)) / (2 * kStep);
  };
  std::mt19937_64 rng(5);
  for (const ParameterSpec& p : layout_.parameters()) {
    const int64_t n = p.shape.elements();
    double norm = 0;
    for (int64_t i = 0; i < n; ++i) norm += std::pow(gradients[p.offset + i], 2);
    norm = std::sqrt(norm);
    if (p.balance.has_value()) {
      EXPECT_EQ(norm, 0) << p.name;
      continue;
    }
    ASSERT_GT(norm, 0) << p.name;
    for (int sample = 0; sample < 6; ++sample) {
      const int64_t i = rng() % n;
      EXPECT_NEAR(gradients[p.offset + i], derivative(p.offset + i, {1.0}), 1e-5 * norm + 1e-6)
          << p.name << " element " << i;
    }
    std::vector<double> direction(n);
    double expected = 0;
    for (int64_t i = 0; i < n; ++i) {
      direction[i] = rng() % 2 == 0 ? 0.5 : -0.5;
      expected += direction[i] * gradients[p.offset + i];
    }
    EXPECT_NEAR(expected, derivative(p.offset, direction), 3e-5 * norm + 1e-5) << p.name;
  }
}

struct Result {
  std::vector<float> losses, gradients;
  bool operator==(const Result&) const = default;
};

Result TrainOnce(const ModelConfig& config, const TransformerOptions& options, int threads,
                 const std::vector<float>& weights, const Tokens& tokens) {
  TestModel model(config, options, threads, weights);
  std::vector<float> losses = model.Train(tokens, kLossScale);
  return {std::move(losses), model.store().gradients()};
}

TEST_P(TransformerTest, RecomputationChangesNoBit) {
  EXPECT_TRUE(TrainOnce(config(), kF32, 2, weights_, tokens_) ==
              TrainOnce(config(), kF32Recompute, 2, weights_, tokens_));
  EXPECT_TRUE(TrainOnce(config(), kBf16, 2, weights_, tokens_) ==
              TrainOnce(config(), kBf16Recompute, 2, weights_, tokens_));
}

TEST_P(TransformerTest, ThreadsChangeNoBit) {
  for (const TransformerOptions& options : {kF32, kBf16}) {
    const Result one = TrainOnce(config(), options, 1, weights_, tokens_);
    for (int threads : {2, 3, 5}) EXPECT_TRUE(one == TrainOnce(config(), options, threads, weights_, tokens_));
  }
}

TEST_P(TransformerTest, EvaluationGivesTheLossesOfTrainingWithoutDropout) {
  for (const TransformerOptions& options : {kF32, kBf16}) {
    TestModel trained(Still(config()), options, 2, weights_), evaluated(config(), options, 2, weights_);
    EXPECT_EQ(trained.Train(tokens_, kLossScale), evaluated.Evaluate(tokens_));
  }
}

TEST_P(TransformerTest, LastLogitsMatchReference) {
  TestModel model(config(), kF32, 2, weights_);
  const std::vector<float> logits = model.LastLogits(tokens_, config().vocab_size);
  const ReferenceModel::Rows expected = ReferenceModel(Still(config()), layout_).Logits(exact_weights_, tokens_);
  for (int64_t b = 0; b < tokens_.batch; ++b) {
    for (int64_t v = 0; v < config().vocab_size; ++v) {
      EXPECT_NEAR(logits[b * config().vocab_size + v], expected[(b + 1) * tokens_.sequence - 1][v], 5e-5);
    }
  }
}

TEST_P(TransformerTest, LogitsOfAllRowsAreThoseOfTheLastOfEachPrefix) {
  TestModel model(config(), kBf16, 2, weights_);
  const std::vector<float> all = model.EvaluateLogits(tokens_);
  const int64_t vocab = config().vocab_size;
  ASSERT_EQ(all.size(), static_cast<size_t>(tokens_.batch * tokens_.sequence * vocab));
  for (int64_t row = 0; row < tokens_.batch * tokens_.sequence; ++row) {
    const auto begin = tokens_.inputs.begin() + row / tokens_.sequence * tokens_.sequence;
    const int64_t length = row % tokens_.sequence + 1;
    const Tokens prefix{.batch = 1, .sequence = length, .inputs = {begin, begin + length}, .targets = {}};
    const auto first = all.begin() + row * vocab;
    EXPECT_EQ(std::vector<float>(first, first + vocab), model.LastLogits(prefix, vocab)) << "row " << row;
  }
}

TEST_P(TransformerTest, Bf16IsNearReference) {
  TestModel model(config(), kBf16, 2, weights_);
  const std::vector<float> losses = model.Train(tokens_, kLossScale);
  const double expected = Sum(ReferenceModel(config(), layout_).Losses(exact_weights_, tokens_));
  EXPECT_NEAR(Sum({losses.begin(), losses.end()}), expected, 0.02 * expected);
  const Result exact = TrainOnce(config(), kF32, 2, weights_, tokens_);
  double difference = 0, norm = 0;
  for (size_t i = 0; i < exact.gradients.size(); ++i) {
    difference += std::pow(model.store().gradients()[i] - exact.gradients[i], 2);
    norm += std::pow(exact.gradients[i], 2);
  }
  // 2^-9 a rounding, through two layers of large weights; norms at the end of branches round once more.
  EXPECT_LT(std::sqrt(difference / norm), config().norm_position != NormPosition::kBefore ? 0.1 : 0.08);
}

INSTANTIATE_TEST_SUITE_P(Models, TransformerTest, ::testing::ValuesIn(TinyModels()),
                         [](const auto& tested) { return tested.param.name; });

// The head works in blocks of head_rows = 512 rows: here one whole block and a rest.
TEST(TransformerHeadTest, ManyRowsMatchReference) {
  ModelConfig config = TinyGpt2();
  config.max_sequence_length = 40;
  config.num_layers = 1;
  const ParameterLayout layout = TransformerLayout(config);
  const std::vector<float> weights = RandomWeights(layout, 3);
  const Tokens tokens = RandomTokens(config.vocab_size, 15, 40, 4);
  TestModel model(config, kF32, 2, weights);
  const std::vector<float> losses = model.Train(tokens, kLossScale);
  ReferenceModel reference(config, layout);
  const std::vector<double> exact(weights.begin(), weights.end());
  const std::vector<double> expected = reference.Losses(exact, tokens);
  for (size_t i = 0; i < losses.size(); ++i) ASSERT_NEAR(losses[i], expected[i], 3e-5) << "token " << i;
  for (int64_t i : {0, 100, 200, 300, 455}) {  // token table: embedding and head
    std::vector<double> plus = exact, minus = exact;
    plus[i] += 1e-4;
    minus[i] -= 1e-4;
    const double slope = (Sum(reference.Losses(plus, tokens)) - Sum(reference.Losses(minus, tokens))) / 2e-4;
    EXPECT_NEAR(model.store().gradients()[i], kLossScale * slope, 1e-4 * std::abs(slope) + 1e-3) << i;
  }
}

// Gradients that no token touches must be written too: unused token rows, positions beyond the sequence.
TEST(TransformerHeadTest, UnusedRowsHaveZeroGradient) {
  const ModelConfig config = [] {
    ModelConfig c = TinyGpt2();
    c.tie_embeddings = false;
    return c;
  }();
  const ParameterLayout layout = TransformerLayout(config);
  Tokens tokens = RandomTokens(config.vocab_size, 2, 5, 4);
  for (int32_t& token : tokens.inputs) token = 1 + token % (config.vocab_size - 1);
  TestModel model(config, kF32, 1, RandomWeights(layout, 3));
  model.Train(tokens, kLossScale);
  const ParameterSpec& positions = layout.parameters()[layout.Find("embedding.positions.weight")];
  for (int64_t i = 0; i < config.hidden_size; ++i) EXPECT_EQ(model.store().gradients()[i], 0.0f);
  for (int64_t i = 5 * config.hidden_size; i < positions.shape.elements(); ++i) {
    EXPECT_EQ(model.store().gradients()[positions.offset + i], 0.0f);
  }
}

// What routers add to the loss of a microbatch counts by the share of its rows that are learned.
TEST(TransformerExpertsTest, AuxiliaryLossesCountByWhatIsLearned) {
  ModelConfig config = TinyMixture();
  config.router_balance_loss = 0.5;
  config.router_z_loss = 0.1;
  const ParameterLayout layout = TransformerLayout(config);
  const std::vector<float> weights = RandomWeights(layout, 3);
  const Tokens tokens = RandomTokens(config.vocab_size, 3, 9, 11);
  std::vector<std::vector<float>> gradients;
  for (const float counted : {0.0f, 0.5f, 1.0f}) {
    TestModel model(config, kF32, 1, weights);
    model.SetCounted(counted);
    model.Train(tokens, kLossScale);
    gradients.push_back(model.store().gradients());
  }
  double half_way = 0, whole = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    half_way = std::max(half_way, std::abs(gradients[1][i] - 0.5 * (gradients[0][i] + gradients[2][i])));
    whole = std::max(whole, std::abs(double{gradients[2][i]} - gradients[0][i]));
  }
  EXPECT_LT(half_way, 1e-5 * whole);
}

// Below the lowest layer that is trained there is no backward pass, and routers there choose experts all the same.
TEST(TransformerExpertsTest, WhatIsFrozenSaysItsLoadsToo) {
  ModelConfig config = TinyMixture();  // experts in blocks 0 and 2
  config.expert_capacity = 0.75;
  config.router_balance_loss = 0.3;
  const std::vector<float> weights = RandomWeights(TransformerLayout(config), 3);
  const Tokens tokens = RandomTokens(config.vocab_size, 3, 9, 11);
  const auto statistics = [&](const TransformerOptions& options) {
    TestModel model(config, options, 1, weights);
    std::vector<uint64_t> said(static_cast<size_t>(model.model().statistics().size()));
    Arena arena = Arena::Create(model.device(), PlanTraining(model.model(), 3, 9).arena_bytes).value();
    PassContext context = model.Context(arena, kLossScale);
    context.statistics = said.data();
    std::vector<float> losses(tokens.inputs.size());
    EXPECT_TRUE(model.model().ForwardBackward(tokens.view(), context, losses.data()).ok());
    return said;
  };
  const std::vector<uint64_t> all = statistics(kF32);
  const auto load = RouterStatistics(config).offset(3);
  EXPECT_EQ(std::accumulate(all.begin() + load, all.begin() + load + 5, uint64_t{0}), 3u * 9 * 2) << "two a token";
  for (const bool recompute : {false, true}) {
    for (const char* trained : {"blocks.1.", "blocks.2.", "head."}) {
      TransformerOptions part = recompute ? kF32Recompute : kF32;
      part.frozen = [&](const ParameterSpec& spec) { return !absl::StartsWith(spec.name, trained); };
      EXPECT_EQ(statistics(part), all) << trained;
    }
  }
}

// A router that cannot tell its experts apart: every token goes to the first of them, which then is the dense layer.
TEST(TransformerExpertsTest, TiesGoToTheFirstExpertWhateverItsLoad) {
  ModelConfig dense = TinyLlama(), mixture = TinyLlama();
  mixture.num_experts = 7;
  mixture.experts_per_token = 1;
  mixture.expert_intermediate_size = dense.intermediate_size;
  const ParameterLayout dense_layout = TransformerLayout(dense), layout = TransformerLayout(mixture);
  const std::vector<float> dense_weights = RandomWeights(dense_layout, 3);
  std::vector<float> weights = RandomWeights(layout, 4);
  const auto of_dense = [&](const ParameterSpec& p) {  // the same parameter, or -1
    return dense_layout.Find(absl::StrReplaceAll(p.name, {{".experts.0.", ".mlp."}}));
  };
  for (const ParameterSpec& p : layout.parameters()) {
    const auto to = weights.begin() + p.offset;
    if (absl::StrContains(p.name, "router")) std::fill_n(to, p.shape.elements(), 0.0f);
    if (of_dense(p) < 0) continue;
    std::copy_n(dense_weights.begin() + dense_layout.parameters()[of_dense(p)].offset, p.shape.elements(), to);
  }
  const Tokens tokens = RandomTokens(dense.vocab_size, 3, 9, 11);
  for (const TransformerOptions& options : {kF32, kBf16Recompute}) {
    const Result expected = TrainOnce(dense, options, 2, dense_weights, tokens);
    const Result result = TrainOnce(mixture, options, 2, weights, tokens);
    EXPECT_EQ(result.losses, expected.losses);
    for (const ParameterSpec& p : layout.parameters()) {
      const int same = of_dense(p);
      if (absl::StrContains(p.name, "router")) continue;
      for (int64_t i = 0; i < p.shape.elements(); ++i) {
        const float wanted = same < 0 ? 0 : expected.gradients[dense_layout.parameters()[same].offset + i];
        ASSERT_EQ(result.gradients[p.offset + i], wanted) << p.name << " element " << i;
      }
    }
  }
}

TEST(TransformerStoreTest, UsesUnitsInOrder) {
  const ModelConfig tied = TinyGpt2(), untied = TinyLlama();
  TestModel gpt2(tied, kF32, 1, RandomWeights(TransformerLayout(tied), 3));
  gpt2.Train(RandomTokens(tied.vocab_size, 1, 4, 4), kLossScale);
  EXPECT_THAT(gpt2.store().calls(),
              ::testing::ElementsAre("acquire 0", "release 0", "acquire 1", "release 1", "acquire 2", "release 2",
                                     "acquire 3", "acquire 0", "begin 3", "begin 0", "end 3", "release 0", "release 3",
                                     "acquire 2", "begin 2", "end 2", "release 2",  //
                                     "acquire 1", "begin 1", "end 1", "release 1",  //
                                     "end 0"));
  TestModel llama(untied, kF32, 1, RandomWeights(TransformerLayout(untied), 3));
  llama.Train(RandomTokens(untied.vocab_size, 1, 4, 4), kLossScale);
  EXPECT_THAT(llama.store().calls(),
              ::testing::ElementsAre("acquire 0", "release 0", "acquire 1", "release 1", "acquire 2", "release 2",
                                     "acquire 3", "begin 3", "end 3", "release 3",  //
                                     "acquire 2", "begin 2", "end 2", "release 2",  //
                                     "acquire 1", "begin 1", "end 1", "release 1",  //
                                     "begin 0", "end 0"));
}

TEST(TransformerStoreTest, PassesErrorsOnAndLeavesNothingHeld) {
  const ModelConfig config = TinyGpt2();
  const std::vector<float> weights = RandomWeights(TransformerLayout(config), 3);
  const Tokens tokens = RandomTokens(config.vocab_size, 2, 5, 4);
  std::vector<float> losses(10);
  for (const TransformerOptions& options : {kF32, kF32Recompute}) {
    for (int call = 1; call <= 15; ++call) {  // 7 acquires, 4 begins, 4 ends
      TestModel model(config, options, 1, weights);
      model.store().FailAtCall(call);
      Arena arena = Arena::Create(model.device(), PlanTraining(model.model(), 2, 5).arena_bytes).value();
      const absl::Status status =
          model.model().ForwardBackward(tokens.view(), model.Context(arena, kLossScale), losses.data());
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << "call " << call;
      EXPECT_EQ(model.store().held(), 0) << "call " << call;
      EXPECT_EQ(arena.mark(), 0u) << "call " << call;
    }
  }
}

TEST(TransformerConfigTest, RefusesWhatItCannotRun) {
  const auto device = MakeCpuDevice(1);
  ModelConfig unresolved = TinyGpt2(), odd_head = TinyGpt2(), groups = TinyGpt2();
  unresolved.head_dim = 0;
  odd_head.head_dim = 12;
  groups.num_kv_heads = 2;
  for (const ModelConfig& config : {unresolved, odd_head, groups}) {
    EXPECT_EQ(MakeTransformer(config, kF32, *device).status().code(), absl::StatusCode::kInvalidArgument);
  }
  TestModel model(TinyGpt2(), kF32, 1, RandomWeights(TransformerLayout(TinyGpt2()), 3));
  Arena arena = Arena::Counting();
  const Tokens too_long = RandomTokens(19, 1, 12, 1);
  float losses[12];
  EXPECT_EQ(model.model().ForwardBackward(too_long.view(), model.Context(arena, 1), losses).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(TransformerLayoutTest, NamesUnitsDecayAndInitialisation) {
  const ParameterLayout layout = TransformerLayout(TinyGpt2());
  std::vector<std::string> names, units;
  for (const ParameterSpec& p : layout.parameters()) names.push_back(p.name);
  for (const Unit& u : layout.units()) units.push_back(u.name);
  EXPECT_THAT(units, ::testing::ElementsAre("embedding", "blocks.0", "blocks.1", "head"));
  EXPECT_EQ(names.size(), 2u + 2 * 12 + 2);
  for (const char* name : {"embedding.tokens.weight", "embedding.positions.weight", "blocks.0.norm1.weight",
                           "blocks.1.attention.qkv.bias", "blocks.1.mlp.up.weight", "final_norm.bias"}) {
    EXPECT_GE(layout.Find(name), 0) << name;
  }
  for (const ParameterSpec& p : layout.parameters()) {
    EXPECT_EQ(p.decay, p.shape.rank() == 2) << p.name;
    EXPECT_EQ(p.hidden, p.shape.rank() == 2 && p.name.starts_with("blocks.")) << p.name;
  }
  const auto& out = layout.parameters()[layout.Find("blocks.0.attention.out.weight")];
  EXPECT_FLOAT_EQ(out.init_std, 0.02f / 2);  // 2 layers: 0.02 / sqrt(4)
  EXPECT_FLOAT_EQ(layout.parameters()[layout.Find("blocks.0.mlp.up.weight")].init_std, 0.02f);
  ModelConfig after = TinyGpt2();
  after.norm_position = NormPosition::kAfter;  // norms decide how large branches are
  const ParameterLayout same = TransformerLayout(after);
  ASSERT_EQ(same.parameters().size(), names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(same.parameters()[i].name, names[i]);
    if (same.parameters()[i].is_matrix()) {
      EXPECT_FLOAT_EQ(same.parameters()[i].init_std, 0.02f) << names[i];
    }
  }
  ModelConfig both = TinyGpt2();
  both.norm_position = NormPosition::kBoth;
  const ParameterLayout more = TransformerLayout(both);
  EXPECT_EQ(more.parameters().size(), names.size() + 2 * 4);
  for (const std::string& name : names) EXPECT_GE(more.Find(name), 0) << name;
  for (const char* name : {"blocks.0.norm1_after.weight", "blocks.0.norm1_after.bias", "blocks.1.norm2_after.weight"}) {
    const int p = more.Find(name);
    ASSERT_GE(p, 0) << name;
    EXPECT_EQ(more.parameters()[p].shape, Shape{24}) << name;
    EXPECT_FALSE(more.parameters()[p].decay) << name;
  }
  EXPECT_FLOAT_EQ(more.parameters()[more.Find("blocks.0.mlp.down.weight")].init_std, 0.02f);
  ModelConfig with_sinks = TinyGpt2();
  with_sinks.attention_sinks = true;
  const ParameterLayout sinks = TransformerLayout(with_sinks);
  EXPECT_EQ(sinks.parameters().size(), names.size() + 2);
  const ParameterSpec& of_block = sinks.parameters()[sinks.Find("blocks.1.attention.sinks")];
  EXPECT_EQ(of_block.shape, Shape{3});
  EXPECT_EQ(of_block.init, InitKind::kZeros);
  EXPECT_FALSE(of_block.decay);
  const ParameterLayout oss = TransformerLayout(TinyGptOss(), {.rank = 2, .experts = true});
  std::vector<std::string> of_expert;
  for (const ParameterSpec& p : oss.parameters()) {
    if (p.name.starts_with("blocks.1.experts.3.")) of_expert.push_back(p.name.substr(19));
    if (p.name.ends_with(".bias")) {
      EXPECT_FALSE(p.decay || p.hidden) << p.name;
      EXPECT_EQ(p.init, InitKind::kZeros) << p.name;
      EXPECT_EQ(p.ReadType(DType::kBF16), DType::kF32) << p.name;
    }
  }
  EXPECT_THAT(of_expert, ::testing::ElementsAre("gate_up.weight", "down.weight", "gate_up.bias", "down.bias",
                                                "gate_up.lora_a", "gate_up.lora_b", "down.lora_a", "down.lora_b"));
  EXPECT_EQ(oss.parameters()[oss.Find("blocks.1.experts.router.bias")].shape, Shape{4});
  EXPECT_GE(TransformerLayout(TinyLlama()).Find("blocks.0.mlp.gate_up.weight"), 0);
  EXPECT_GE(TransformerLayout(TinyLlama()).Find("head.weight"), 0);
}

}  // namespace
}  // namespace holdfast
