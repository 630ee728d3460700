// Proves FLOP counts against formulas written by hand, of windows by counting pairs, and that recomputation costs what
// it should; the bytes that a mixture sends, and what follows from them. That arena sizes are exact is proven by every
// pass in transformer_test.cc, whose arenas have the planned capacity.
#include "models/plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "absl/strings/match.h"
#include "models/expert_bytes.h"
#include "models/experts.h"
#include "tests/models/test_models.h"

namespace holdfast {
namespace {

ModelConfig Gpt2Small() { return {.vocab_size = 50257, .num_kv_heads = 12, .head_dim = 64, .intermediate_size = 3072}; }

std::unique_ptr<LanguageModel> Make(const ModelConfig& config, bool recompute, Device& device) {
  return MakeTransformer(config, {.compute_dtype = DType::kBF16, .recompute_blocks = recompute}, device).value();
}

TEST(PlanTest, CountsGpt2Small) {
  const auto device = MakeCpuDevice(1);
  const auto model = Make(Gpt2Small(), false, *device);
  const double rows = 4 * 1024, width = 768;
  const double block = 2 * rows * width * width * (3 + 1 + 4 + 4);
  const double attention = 2.0 * 4 * 12 * 64 * (1024.0 * 1024 / 2);  // one product
  const double head = 2 * rows * width * 50257;
  const double forward = 12 * (block + 2 * attention) + head;
  EXPECT_DOUBLE_EQ(PlanEvaluation(*model, 4, 1024).flops, forward);
  EXPECT_DOUBLE_EQ(PlanTraining(*model, 4, 1024).flops, forward + 12 * (2 * block + 5 * attention) + 2 * head);
  EXPECT_DOUBLE_EQ(PlanLastLogits(*model, 4, 1024).flops, forward - head + head / 1024);
}

TEST(PlanTest, RecomputationCostsAForwardWithoutTheDownProjection) {
  const auto device = MakeCpuDevice(1);
  const double rows = 4 * 1024, width = 768;
  const double again = 2 * rows * width * width * (3 + 1 + 4) + 2 * (2.0 * 4 * 12 * 64 * (1024.0 * 1024 / 2));
  for (const NormPosition position : {NormPosition::kBefore, NormPosition::kAfter, NormPosition::kBoth}) {
    ModelConfig config = Gpt2Small();
    config.norm_position = position;
    const PassPlan kept = PlanTraining(*Make(config, false, *device), 4, 1024);
    const PassPlan recomputed = PlanTraining(*Make(config, true, *device), 4, 1024);
    EXPECT_DOUBLE_EQ(recomputed.flops, kept.flops + 12 * again);
    EXPECT_LT(recomputed.arena_bytes, kept.arena_bytes / 2);
  }
}

TEST(PlanTest, LogitsAreNeverAllThere) {
  const auto device = MakeCpuDevice(1);
  const auto model = Make(Gpt2Small(), true, *device);
  EXPECT_LT(PlanTraining(*model, 16, 1024).arena_bytes, size_t{16} * 1024 * 50257 * 4 / 2);
}

TEST(PlanTest, ModelFlopsFollowPalm) {
  // nanoGPT's number of parameters for GPT-2 124M is 123.65M without the position table.
  const double n = 124439808.0 - 1024 * 768;
  EXPECT_DOUBLE_EQ(FlopsPerTokenOf(Gpt2Small(), 512), 6 * n + 12.0 * 12 * 768 * 512);
  ModelConfig untied = Gpt2Small();
  untied.tie_embeddings = false;  // the token table is then looked up only, the head multiplies as before
  EXPECT_DOUBLE_EQ(FlopsPerTokenOf(untied, 512), FlopsPerTokenOf(Gpt2Small(), 512));
}

// Published sizes: 46.7 and 12.9 billion, of which the embedding is looked up.
TEST(PlanTest, ATokenMeetsItsExpertsOnly) {
  const ModelConfig mixtral{.family = "mixtral",
                            .vocab_size = 32000,
                            .num_layers = 32,
                            .hidden_size = 4096,
                            .num_heads = 32,
                            .num_kv_heads = 8,
                            .head_dim = 128,
                            .intermediate_size = 14336,
                            .position = PositionKind::kRope,
                            .norm = NormType::kRmsNorm,
                            .activation = ActivationKind::kSwiglu,
                            .bias = false,
                            .tie_embeddings = false,
                            .num_experts = 8,
                            .expert_intermediate_size = 14336};
  EXPECT_EQ(TransformerLayout(mixtral).elements(), 46'702'792'704);
  EXPECT_EQ(ActiveParameters(mixtral), 12'879'925'248);
  EXPECT_DOUBLE_EQ(FlopsPerTokenOf(mixtral, 64), 6 * (12'879'925'248.0 - 32000 * 4096) + 12.0 * 32 * 4096 * 64);
  ModelConfig biased = mixtral;
  biased.expert_bias = true;
  constexpr int64_t kBiases = 2 * 14336 + 4096;  // of an expert
  EXPECT_EQ(TransformerLayout(biased).elements(), 46'702'792'704 + 32 * 8 * (1 + kBiases));
  EXPECT_EQ(ActiveParameters(biased), 12'879'925'248 + 32 * (8 + 2 * kBiases));
}

TEST(PlanTest, AWindowCountsWhatIsLeftOfAttention) {
  ModelConfig config = Gpt2Small();
  const double all = FlopsPerTokenOf(config, 512), attention = 12.0 * 12 * 768 * 512;
  const double forward = PlanEvaluation(*Make(config, false, *MakeCpuDevice(1)), 1, 512).flops;
  for (const int64_t window : {1, 100, 511, 512, 600}) {
    config.sliding_window = window;
    double seen = 0;  // of the 512 x 512 pairs, with the queries that would see a key's past as its future
    for (int64_t i = 0; i < 512; ++i) {
      for (int64_t j = 0; j < 512; ++j) seen += std::abs(i - j) < window;
    }
    const double share = seen / (512 * 512);
    EXPECT_NEAR(FlopsPerTokenOf(config, 512), all - attention * (1 - share), 1e-6 * all) << window;
    const double pass = PlanEvaluation(*Make(config, false, *MakeCpuDevice(1)), 1, 512).flops;
    const double products = 12 * 2 * 2.0 * 768 * 512 * 512 / 2;  // causal
    EXPECT_NEAR(forward - pass, products * (1 - share), 0.01 * products) << window;
  }
}

TEST(PlanTest, AWindowCountsInTheLayersThatHaveIt) {
  ModelConfig config = Gpt2Small();
  const double none = FlopsPerTokenOf(config, 512);
  config.sliding_window = 100;
  const double all = FlopsPerTokenOf(config, 512);
  config.first_window_layer = 5;  // 5, 6, 7, 9, 10 and 11 of 12
  config.full_attention_step = 4;
  EXPECT_NEAR(FlopsPerTokenOf(config, 512), (none + all) / 2, 1e-6 * none);
  const auto frozen = [](const ParameterSpec& spec) { return !absl::StartsWith(spec.name, "blocks.11."); };
  const auto of_last = [&] { return FlopsPerTokenOf(config, 512, TransformerLayout(config), frozen); };
  const double some = of_last();
  config.full_attention_step = 0;  // 8 and 12, too, of which the last has a backward half
  EXPECT_NEAR(some - of_last(), (none - all) / 12 * (1.0 / 3 + 1), 1e-6 * none);
}

// By hand, and by what a pass of one token a sequence multiplies, where attention is next to nothing; but for vectors,
// which multiply no matrix.
TEST(PlanTest, WhatIsFrozenHasNoGradientOfItsOwn) {
  struct Trained {
    const char* name;
    LoraOptions lora;
    std::function<bool(const ParameterSpec&)> frozen;
    double products;  // of the matrices of a block, 12 C^2, in each of 12 blocks; of the head; of adapters
  };
  const auto starts = [](const ParameterSpec& spec, const char* with) { return absl::StartsWith(spec.name, with); };
  const double block = 12 * 768 * 768, head = 50257 * 768, adapters = 12 * 4 * (768 + 2304);
  const std::vector<Trained> cases = {
      {"all", {}, [](const ParameterSpec&) { return false; }, 12 * 3 * block + 3 * head},
      {"adapters",
       {.rank = 4, .query = true, .key = true, .value = true, .one_qkv = true},
       [](const ParameterSpec& spec) { return !spec.adapter; },
       12 * 2 * block + 2 * head + 3 * adapters},
      {"upper half",
       {},
       [&](const ParameterSpec& spec) {
         for (const char* frozen : {"embedding.", "blocks.0.", "blocks.1.", "blocks.2.", "blocks.3.", "blocks.4."}) {
           if (starts(spec, frozen)) return true;
         }
         return starts(spec, "blocks.5.");
       },
       6 * (1 + 3) * block + 2 * head},
      {"head", {}, [&](const ParameterSpec& spec) { return starts(spec, "blocks."); }, 12 * 2 * block + 3 * head},
      {"final norm", {}, [&](const ParameterSpec& spec) { return !starts(spec, "final"); }, 12 * block + 2 * head}};
  const auto device = MakeCpuDevice(1);
  for (const Trained& c : cases) {
    const ParameterLayout layout = TransformerLayout(Gpt2Small(), c.lora);
    const double flops = FlopsPerTokenOf(Gpt2Small(), 1, layout, c.frozen);
    EXPECT_NEAR(flops, 2 * c.products, 2e-3 * flops) << c.name;
    const auto model = MakeTransformer(Gpt2Small(), {.lora = c.lora, .frozen = c.frozen}, *device).value();
    EXPECT_NEAR(flops, PlanTraining(*model, 64, 1).flops / 64, 5e-3 * flops) << c.name;
  }
  for (const ModelConfig& config :
       {Gpt2Small(), TinyMixture(), TinyQwen2Moe(), TinyGptOss(), TinyMistral(), TinyQwen3SomeWindows()}) {
    const auto nothing = [](const ParameterSpec&) { return false; };
    const double flops = FlopsPerTokenOf(config, 7);
    EXPECT_NEAR(FlopsPerTokenOf(config, 7, TransformerLayout(config), nothing), flops, 1e-12 * flops);
  }
}

TEST(PlanTest, AMixtureSendsWhatItsGroupIsExpectedTo) {
  Config config;
  config.model = {.hidden_size = 64, .num_experts = 6, .experts_per_token = 2, .expert_intermediate_size = 96};
  config.batch = {.sequence_length = 100, .microbatch_size = 1};
  config.train.compute_dtype = ComputeDType::kBF16;
  const auto bytes = [&](int64_t workers, int64_t replicas) {
    config.elastic.workers = workers;
    config.parallel.replicas = replicas;
    return ExpertBytesOf(config);
  };
  // Of two workers a token's experts are both with the other one by 3 in 15, both with its own by as many.
  constexpr double kVector = 128, kSome = 12.0 / 15;
  EXPECT_NEAR(bytes(2, 1).move, 100 * (3 * kVector * kSome + 2 * kVector + 20), 1e-6);
  EXPECT_DOUBLE_EQ(bytes(2, 1).gather, 0.5 * 8 * 6 * 3 * 96 * 64);
  config.model.expert_bias = true;  // biases are fp32 always
  EXPECT_DOUBLE_EQ(bytes(2, 1).gather, 0.5 * 6 * (8 * 3 * 96 * 64 + 12 * (2 * 96 + 64)));
  EXPECT_EQ(bytes(4, 2).move, bytes(2, 1).move);  // two groups of two
  EXPECT_EQ(bytes(1, 1).move, bytes(2, 1).move);
  // Each expert with a worker of its own, of which one in six is the home.
  EXPECT_NEAR(bytes(6, 1).move, 100 * 2 * (5.0 / 6) * (5 * kVector + 20), 1e-6);
  EXPECT_NEAR(bytes(12, 1).move, 100 * 2 * (11.0 / 12) * (5 * kVector + 20), 1e-6);  // as many have none
}

// Validation refuses microbatches that take turns with parallel.experts: gather, also in the config that a run keeps.
TEST(PlanTest, WhatIsResolvedTakesTurnsOnlyWhereTokensTravel) {
  Config few;
  few.model = TinyMixture();
  few.parallel.overlap_microbatches = true;
  few.batch = {.sequence_length = 1, .microbatch_size = 1};
  Config many = few;
  many.batch = {.sequence_length = 1024, .microbatch_size = 1024};
  ResolveExpertPlacement(&few);
  ResolveExpertPlacement(&many);
  EXPECT_EQ(few.parallel.experts, ExpertPlacement::kMove);
  EXPECT_TRUE(few.parallel.overlap_microbatches);
  EXPECT_EQ(many.parallel.experts, ExpertPlacement::kGather);
  EXPECT_FALSE(many.parallel.overlap_microbatches);
}

TEST(PlanTest, DroppedChoicesAreNotCounted) {
  ModelConfig config;
  config.hidden_size = 64;
  config.num_experts = 8;
  config.experts_per_token = 2;
  config.expert_intermediate_size = 96;
  const std::vector<Figure> figures = {{.name = "expert_load", .values = {2, 2}, .is_list = true},
                                       {.name = "dropped_choices", .values = {0.25, 0.5}, .is_list = true}};
  EXPECT_DOUBLE_EQ(DroppedFlopsPerToken(config, figures), 6.0 * 0.75 * 2 * 3 * 96 * 64);
  EXPECT_EQ(DroppedFlopsPerToken(config, {}), 0);
  config.expert_bias = true;
  EXPECT_DOUBLE_EQ(DroppedFlopsPerToken(config, figures), 6.0 * 0.75 * 2 * (3 * 96 * 64 + 2 * 96 + 64));
}

}  // namespace
}  // namespace holdfast
