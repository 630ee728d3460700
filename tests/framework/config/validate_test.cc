// Proves each check across keys by a config that breaks only it, that its blame falls on the right place, and that a
// key with an error of its own causes no second one.

#include "framework/config/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/limits.h"
#include "framework/config/load.h"
#include "framework/config/model_size.h"
#include "models/families/families.h"

namespace holdfast {
namespace {

std::string ErrorsOf(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return std::string(ParseConfig(text, "c.yaml", overrides, {.families = FamilyPresets()}).status().message());
}

constexpr char kGood[] =
    "model:\n"
    "  vocab_size: 256\n"
    "  hidden_size: 64\n"
    "  num_heads: 4\n"
    "data: {train: a.bin}\n"
    "train:\n"
    "  steps: 100\n"
    "schedule:\n"
    "  warmup_steps: 10\n";

TEST(ValidateTest, GoodIsGood) { EXPECT_EQ(ErrorsOf(kGood), ""); }

TEST(ValidateTest, MicrobatchesTakeTurnsOnlyWhereTokensMayTravel) {
  const std::string overlap = "parallel.overlap_microbatches=true", experts = "model.family=mixtral";
  EXPECT_EQ(ErrorsOf(kGood, {overlap, experts}), "");
  EXPECT_EQ(ErrorsOf(kGood, {overlap, experts, "parallel.experts=move"}), "");
  const std::string none = "there are no tokens that travel to experts";
  EXPECT_THAT(ErrorsOf(kGood, {overlap}), testing::HasSubstr(none));
  EXPECT_THAT(ErrorsOf(kGood, {overlap, experts, "parallel.experts=gather"}), testing::HasSubstr(none));
}

TEST(ValidateTest, OnlyGlooEncrypts) {
  const std::string encrypt = "parallel.encrypt=true";
  EXPECT_EQ(ErrorsOf(kGood, {encrypt}), "");
  EXPECT_THAT(ErrorsOf(kGood, {encrypt, "parallel.transport=mpi"}),
              testing::HasSubstr("transport mpi encrypts nothing; set parallel.transport to gloo"));
  EXPECT_THAT(ErrorsOf(kGood, {encrypt, "parallel.transport=nccl", "train.device=cuda"}),
              testing::HasSubstr("transport nccl encrypts nothing"));
}

TEST(ValidateTest, AHeadOfItsOwnMayBeginWithZeros) {
  const std::string zeros = "model.zero_init_head=true";
  EXPECT_EQ(ErrorsOf(kGood, {zeros, "model.tie_embeddings=false"}), "");
  EXPECT_THAT(ErrorsOf(kGood, {zeros, "model.tie_embeddings=true"}),
              testing::HasSubstr("the head is the table of embeddings, which cannot begin with zeros"));
}

TEST(ValidateTest, Parametrization) {
  const std::string mup = "model.parametrization=mup", completep = "model.parametrization=completep";
  const std::string width = "model.base_hidden_size=32", depth = "model.base_num_layers=4";
  EXPECT_EQ(ErrorsOf(kGood, {mup, width}), "");
  EXPECT_EQ(ErrorsOf(kGood, {completep, width, depth}), "");
  EXPECT_THAT(ErrorsOf(kGood, {"model.parametrization=mupp"}), testing::HasSubstr("did you mean 'mup'?"));
  for (const std::string after : {"model.norm_position=after", "model.norm_position=both"}) {
    EXPECT_EQ(ErrorsOf(kGood, {mup, width, after}), "");
    EXPECT_EQ(ErrorsOf(kGood, {completep, width, depth, after}),
              "--set " + after +
                  ": a norm at the end of a branch undoes what parametrization completep multiplies the branch by; set "
                  "model.norm_position to before or model.parametrization to mup");
  }
  const std::string scaled = "model.scale_embeddings=true";
  EXPECT_EQ(ErrorsOf(kGood, {scaled}), "");
  EXPECT_EQ(ErrorsOf(kGood, {mup, width, scaled}),
            "--set " + scaled +
                ": embeddings that are multiplied by sqrt(hidden_size) grow with the width, which parametrization mup "
                "does not make up for; set model.scale_embeddings to false or model.parametrization to standard");
  const std::string needs = " of the model that learning rate and init_std are for";
  EXPECT_EQ(ErrorsOf(kGood, {mup}), "--set " + mup + ": parametrization mup needs the base_hidden_size" + needs);
  EXPECT_EQ(ErrorsOf(kGood, {completep, width}),
            "--set " + completep + ": parametrization completep needs the base_num_layers" + needs);
  EXPECT_EQ(ErrorsOf(kGood, {mup, width, depth}),
            "--set " + depth +
                ": nothing follows from it with parametrization mup; leave it out or set model.parametrization");
  for (const std::string& key : {width, depth, std::string("model.base_head_dim=8")}) {
    EXPECT_EQ(ErrorsOf(kGood, {key}), "--set " + key +
                                          ": nothing follows from it with parametrization standard; leave it out or "
                                          "set model.parametrization");
  }
  EXPECT_EQ(ErrorsOf(kGood, {mup, width, "model.base_head_dim=16"}), "") << "the head_dim that it has";
  const std::string head = "model.base_head_dim=8";
  EXPECT_EQ(ErrorsOf(kGood, {mup, width, head, "model.qk_norm=true"}), "");
  const std::string heads =
      "heads of 16 where the base model has 8 take a norm of query and key, and no limit behind it; set model.qk_norm "
      "to true and model.clip_qkv to 0, or keep head_dim and have more heads";
  EXPECT_EQ(ErrorsOf(kGood, {mup, width, head}), "--set " + head + ": " + heads);
  EXPECT_THAT(ErrorsOf(kGood, {mup, width, head, "model.qk_norm=true", "model.clip_qkv=1"}), testing::HasSubstr(heads));
  EXPECT_THAT(ErrorsOf(kGood, {mup, width, "lora.rank=2", "train.init_from=somewhere"}),
              testing::HasSubstr("parametrization mup has no rules for adapters; leave one of them out"));
}

TEST(ValidateTest, Yarn) {
  const std::string rope = "model.position=rope", yarn = "model.rope_scaling=yarn";
  EXPECT_EQ(ErrorsOf(kGood, {rope, yarn, "model.rope_beta_slow=32"}), "");
  EXPECT_EQ(ErrorsOf(kGood, {rope, yarn, "model.rope_beta_slow=64"}),
            "--set model.rope_beta_slow=64: rope_beta_slow 64 must not be more than rope_beta_fast 32");
  EXPECT_EQ(ErrorsOf(kGood, {rope, yarn, "model.rope_theta=1"}),
            "--set model.rope_theta=1: with base 1 all frequencies are one, of which yarn cannot scale some; make it "
            "more than 1");
  EXPECT_EQ(ErrorsOf(kGood, {rope, "model.rope_scaling=linear", "model.rope_theta=1"}), "");
  EXPECT_EQ(ErrorsOf(kGood, {yarn}),
            "--set model.rope_scaling=yarn: there are no rotary angles to scale; leave it out or set model.position to "
            "rope");
}

TEST(ValidateTest, LayersWithAWindow) {
  const std::string window = "model.sliding_window=16";
  EXPECT_EQ(ErrorsOf(kGood, {window, "model.first_window_layer=12", "model.full_attention_step=2"}), "");
  EXPECT_EQ(ErrorsOf(kGood, {window, "model.full_attention_step=13"}), "") << "a step beyond the last layer";
  EXPECT_EQ(ErrorsOf(kGood, {window, "model.first_window_layer=13"}),
            "--set model.first_window_layer=13: first_window_layer 13 is beyond the last of num_layers 12");
  EXPECT_EQ(ErrorsOf(kGood, {window, "model.full_attention_step=1"}),
            "--set model.full_attention_step=1: with 1 no layer has the window; set it to 0 or to 2 or more, or "
            "model.sliding_window to 0");
  ModelConfig model = {.num_layers = 6, .sliding_window = 5};
  const auto windows = [&](int64_t first, int64_t step) {
    model.first_window_layer = first;
    model.full_attention_step = step;
    std::vector<int64_t> of_layers;
    for (int64_t layer = 1; layer <= model.num_layers; ++layer) of_layers.push_back(model.WindowOf(layer));
    return of_layers;
  };
  EXPECT_THAT(windows(1, 0), testing::ElementsAre(5, 5, 5, 5, 5, 5));
  EXPECT_THAT(windows(4, 0), testing::ElementsAre(0, 0, 0, 5, 5, 5));
  EXPECT_THAT(windows(1, 4), testing::ElementsAre(5, 5, 5, 0, 5, 5));
  EXPECT_THAT(windows(2, 2), testing::ElementsAre(0, 5, 0, 5, 0, 5));
  EXPECT_THAT(windows(3, 3), testing::ElementsAre(0, 0, 5, 5, 0, 5));
}

TEST(ValidateTest, TheSameWindowsInOtherKeysAreNoDifference) {
  ModelConfig ours = {.num_layers = 6}, theirs = ours;
  theirs.first_window_layer = 3;
  theirs.full_attention_step = 2;
  ours.position = theirs.position = PositionKind::kRope;
  ours.rope_scaling = theirs.rope_scaling = RopeScaling::kLinear;
  theirs.rope_scaling_layers = RopeScalingLayers::kFullAttention;
  EXPECT_TRUE(ArithmeticDifferences(ours, theirs).empty()) << "without a window";
  ours.sliding_window = theirs.sliding_window = 5;
  ASSERT_EQ(ArithmeticDifferences(ours, theirs).size(), 3u);
  ours.rope_scaling_layers = theirs.rope_scaling_layers;
  ours.first_window_layer = theirs.first_window_layer;
  theirs.full_attention_step = 5;  // the seventh layer
  EXPECT_TRUE(ArithmeticDifferences(ours, theirs).empty());
  theirs.full_attention_step = 4;  // the sixth
  ASSERT_EQ(ArithmeticDifferences(ours, theirs).size(), 1u);
  EXPECT_EQ(ArithmeticDifferences(ours, theirs)[0].key, "full_attention_step");
}

TEST(ValidateTest, TheBaseOfLayersWithAWindow) {
  const std::string rope = "model.position=rope", window = "model.sliding_window=16";
  EXPECT_EQ(ErrorsOf(kGood, {rope, window, "model.window_rope_theta=1e4"}), "");
  EXPECT_EQ(ErrorsOf(kGood, {rope, window, "model.window_rope_theta=0.5"}),
            "--set model.window_rope_theta=0.5: must be 0 or at least 1, got 0.5");
  EXPECT_THAT(ErrorsOf(kGood, {rope, window, "model.rope_scaling=yarn", "model.window_rope_theta=1"}),
              testing::HasSubstr("--set model.window_rope_theta=1: with base 1 all frequencies are one"));
  EXPECT_EQ(ErrorsOf(kGood, {rope, window, "model.full_attention_step=2", "model.rope_scaling=yarn",
                             "model.rope_scaling_layers=full_attention", "model.window_rope_theta=1"}),
            "");
  ModelConfig ours = {.num_layers = 6, .position = PositionKind::kRope}, theirs = ours;
  theirs.window_rope_theta = 100;
  EXPECT_TRUE(ArithmeticDifferences(ours, theirs).empty()) << "without a window";
  ours.sliding_window = theirs.sliding_window = 5;
  ASSERT_EQ(ArithmeticDifferences(ours, theirs).size(), 1u);
  EXPECT_EQ(ArithmeticDifferences(ours, theirs)[0].key, "window_rope_theta");
  theirs.window_rope_theta = ours.rope_theta;
  EXPECT_TRUE(ArithmeticDifferences(ours, theirs).empty()) << "the same base";
}

TEST(ValidateTest, LongRope) {
  const std::string rope = "model.position=rope", longrope = "model.rope_scaling=longrope";
  const std::string numbers = "=[1, 1, 1, 1.5, 2, 2.5, 3, 4.25]";  // of heads of 16
  const std::string short_factors = "model.rope_short_factors" + numbers;
  const std::string long_factors = "model.rope_long_factors" + numbers;
  EXPECT_EQ(ErrorsOf(kGood, {rope, short_factors, long_factors, longrope}), "");
  const auto takes = [](int frequencies, const std::string& key, int has) {
    return absl::StrCat("rope_scaling longrope takes a number for each of the ", frequencies,
                        " rotary frequencies of a head, ", key, " has ", has);
  };
  EXPECT_EQ(ErrorsOf(kGood, {rope, short_factors, longrope}),
            "--set " + longrope + ": " + takes(8, "rope_long_factors", 0));
  EXPECT_EQ(ErrorsOf(kGood, {rope, long_factors, longrope, "model.rope_short_factors=[1, 2]"}),
            "--set model.rope_short_factors=[1, 2]: " + takes(8, "rope_short_factors", 2));
  EXPECT_EQ(ErrorsOf(kGood, {rope, short_factors, long_factors, longrope, "model.rope_dim=8"}),
            "--set model.rope_dim=8: " + takes(4, "rope_short_factors", 8) +
                "\n--set model.rope_dim=8: " + takes(4, "rope_long_factors", 8));
  EXPECT_EQ(ErrorsOf(kGood, {rope, short_factors, long_factors, longrope, "model.rope_original_length=1"}),
            "--set model.rope_original_length=1: longrope divides by its logarithm, which is 0; make it more than 1");
  EXPECT_EQ(ErrorsOf(kGood, {rope, short_factors}), "--set " + short_factors +
                                                        ": model.rope_short_factors is not used: only rope_scaling "
                                                        "longrope has it; leave it out or set model.rope_scaling");
  EXPECT_EQ(ErrorsOf(kGood, {rope, short_factors, long_factors, longrope, "model.rope_attention_factor=1.25"}), "");
  EXPECT_THAT(ErrorsOf(kGood, {rope, short_factors, long_factors, longrope, "model.rope_low_freq_factor=2"}),
              testing::HasSubstr("only rope_scaling llama3 has it"));
  // Of a model from elsewhere.
  ModelConfig model =
      ParseConfig(kGood, "c.yaml", {rope, short_factors, long_factors, longrope}, {.families = FamilyPresets()})->model;
  EXPECT_TRUE(CheckModel(model).ok()) << CheckModel(model);
  model.rope_long_factors[3] = NAN;
  EXPECT_THAT(std::string(CheckModel(model).message()),
              testing::HasSubstr("model.rope_long_factors: must hold numbers between 1e-06 and 1e+06, got nan"));
}

TEST(ValidateTest, ExpertsHaveBiasesByTheirOwnKeyAndAttentionMay) {
  EXPECT_EQ(ErrorsOf(kGood, {"model.family=mixtral", "model.attention_bias=true", "model.expert_bias=true"}), "");
  EXPECT_EQ(ErrorsOf(kGood, {"model.family=mixtral", "model.mlp_bias=true"}),
            "--set model.mlp_bias=true: experts are SwiGLU layers, which have biases by model.expert_bias; set "
            "model.activation to swiglu, model.bias and model.mlp_bias to false, or leave num_experts out");
  EXPECT_EQ(ErrorsOf(kGood, {"model.family=mixtral", "model.activation=geglu"}),
            "--set model.activation=geglu: experts are SwiGLU layers, which have biases by model.expert_bias; set "
            "model.activation to swiglu, model.bias and model.mlp_bias to false, or leave num_experts out");
  EXPECT_EQ(ErrorsOf(kGood, {"model.family=llama", "model.activation=geglu"}), "");
}

TEST(ValidateTest, SinksAndWhatExpertsComputeAreDifferences) {
  const ModelConfig ours{.num_experts = 8};
  ModelConfig theirs = ours;
  theirs.attention_sinks = theirs.expert_bias = true;
  theirs.swiglu_limit = 7;
  std::vector<std::string> keys;
  for (const ModelDifference& difference : ArithmeticDifferences(ours, theirs)) keys.push_back(difference.key);
  EXPECT_THAT(keys, testing::ElementsAre("attention_sinks", "expert_bias", "swiglu_limit"));
  EXPECT_THAT(ErrorsOf(kGood, {"model.family=mixtral", "model.swiglu_limit=-1"}),
              testing::HasSubstr("--set model.swiglu_limit=-1: "));
}

TEST(ValidateTest, TheSameBiasesInOtherKeysAreNoDifference) {
  ModelConfig all, apart;
  apart.bias = false;
  apart.attention_bias = apart.mlp_bias = true;
  EXPECT_TRUE(ArithmeticDifferences(all, apart).empty());
  apart.qkv_bias = true;
  EXPECT_TRUE(ArithmeticDifferences(apart, all).empty());
  apart.mlp_bias = false;
  std::vector<std::string> keys;
  for (const ModelDifference& difference : ArithmeticDifferences(all, apart)) keys.push_back(difference.key);
  EXPECT_THAT(keys, testing::ElementsAre("bias", "attention_bias"));
}

TEST(ValidateTest, AllLinearLayersOfAMixtureHaveNoDropout) {
  const std::vector<std::string> adapters = {"train.init_from=somewhere", "lora.rank=2", "lora.targets=all-linear",
                                             "lora.dropout=0.1"};
  EXPECT_EQ(ErrorsOf(kGood, adapters), "");
  std::vector<std::string> mixture = adapters;
  mixture.insert(mixture.begin(), "model.family=mixtral");
  EXPECT_EQ(ErrorsOf(kGood, mixture),
            "--set lora.dropout=0.1: adapters of experts and routers have no dropout, nor have PEFT's; set it to 0");
}

TEST(ValidateTest, Heads) {
  EXPECT_EQ(
      ErrorsOf(kGood, {"model.num_heads=5"}),
      "--set model.num_heads=5: hidden_size 64 is not a multiple of num_heads 5; change one of them or set head_dim");
  EXPECT_EQ(ErrorsOf(kGood, {"model.num_heads=5", "model.head_dim=16"}), "");
  EXPECT_EQ(ErrorsOf(kGood, {"model.num_kv_heads=3"}),
            "--set model.num_kv_heads=3: num_heads 4 is not a multiple of num_kv_heads 3");
  EXPECT_EQ(ErrorsOf(kGood, {"model.head_dim=12"}),
            "--set model.head_dim=12: head_dim must be a multiple of 8 from 8 to 256, got 12");
  EXPECT_EQ(
      ErrorsOf(kGood, {"model.num_heads=16"}),
      "--set model.num_heads=16: head_dim must be a multiple of 8 from 8 to 256, got 4 (hidden_size 64 / num_heads "
      "16)");
  EXPECT_EQ(ErrorsOf(kGood, {"model.hidden_size=2048"}),
            "--set model.hidden_size=2048: head_dim must be a multiple of 8 from 8 to 256, got 512 (hidden_size 2048 / "
            "num_heads 4)");
}

TEST(ValidateTest, ThePartOfAHeadThatIsTurned) {
  EXPECT_EQ(ErrorsOf(kGood, {"model.position=rope", "model.rope_dim=6"}), "");
  EXPECT_EQ(ErrorsOf(kGood, {"model.position=rope", "model.rope_dim=7"}),
            "--set model.rope_dim=7: rope_dim must be even and at most head_dim 16, got 7");
  EXPECT_EQ(ErrorsOf(kGood, {"model.position=rope", "model.rope_dim=18"}),
            "--set model.rope_dim=18: rope_dim must be even and at most head_dim 16, got 18");
  ModelConfig whole = {.num_heads = 4, .head_dim = 16, .position = PositionKind::kRope, .rope_dim = 16}, half = whole;
  half.rope_dim = 8;
  for (ModelConfig* model : {&whole, &half}) ResolveDerived(model);
  EXPECT_EQ(whole.rope_dim, 0) << "all of it";
  EXPECT_EQ(whole.TurnedDim(), 16);
  EXPECT_EQ(half.TurnedDim(), 8);
  ASSERT_EQ(ArithmeticDifferences(whole, half).size(), 1u);
  EXPECT_EQ(ArithmeticDifferences(whole, half)[0].key, "rope_dim");
}

TEST(ValidateTest, WhatANormHasOnAGpu) {
  const std::vector<std::string> wide = {"train.device=cuda", "model.num_heads=64", "model.head_dim=128"};
  const auto errors = [&](std::vector<std::string> more) {
    more.insert(more.begin(), wide.begin(), wide.end());
    return ErrorsOf(kGood, more);
  };
  EXPECT_EQ(errors({"model.hidden_size=8192", "model.qk_norm=true", "model.qk_norm_joint=true"}), "");
  EXPECT_EQ(errors({"model.hidden_size=8200"}),
            "--set model.hidden_size=8200: on a GPU a norm has 8192 values at most, not 8200; set it lower, or "
            "train.device to cpu");
  EXPECT_EQ(ErrorsOf(kGood, {"model.hidden_size=16384", "model.head_dim=64"}), "") << "on a CPU";
  EXPECT_EQ(
      ErrorsOf(kGood, {"train.device=cuda", "model.num_heads=64", "model.head_dim=136", "model.qk_norm=true",
                       "model.qk_norm_joint=true"}),
      "--set model.qk_norm_joint=true: on a GPU a norm has 8192 values at most, not the 8704 of all heads; set it "
      "to false, or train.device to cpu");
}

// Each size is within its range, and the layout of such a model took all memory before anybody said a word.
TEST(ValidateTest, AModelOfTooManyParameters) {
  const auto errors = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"model.num_heads=128"});
    return ErrorsOf(kGood, more);
  };
  EXPECT_EQ(errors({"model.num_layers=1024", "model.hidden_size=16384"}), "") << "3.3 * 10^12";
  EXPECT_EQ(errors({"model.num_layers=2048", "model.hidden_size=16384"}),
            "--set model.hidden_size=16384: a model of about 6.6e+12 parameters; at most 4e+12 (most of them are in "
            "the MLPs: num_layers 2048, intermediate_size 65536, hidden_size 16384)");
  EXPECT_EQ(errors({"model.hidden_size=16384", "model.intermediate_size=1048576", "model.num_layers=200"}),
            "--set model.num_layers=200: a model of about 7.09e+12 parameters; at most 4e+12 (most of them are in "
            "the MLPs: num_layers 200, intermediate_size 1048576, hidden_size 16384)");
  EXPECT_THAT(ErrorsOf(kGood, {"model.family=mixtral", "model.num_experts=4096", "model.hidden_size=8192",
                               "model.num_heads=64", "model.num_layers=64"}),
              testing::HasSubstr("most of them are in the experts: num_layers 64, num_experts 4096, "
                                 "expert_intermediate_size 32768, hidden_size 8192)"));
  EXPECT_EQ(errors({"model.num_layers=2048", "model.hidden_size=16392"}),
            "--set model.hidden_size=16392: hidden_size 16392 is not a multiple of num_heads 128; change one of them "
            "or set head_dim")
      << "one error for one mistake";
}

TEST(ValidateTest, ParametersAreCountedWithoutOverflow) {
  ModelConfig model;
  model.vocab_size = model.hidden_size = int64_t{1} << 40;
  EXPECT_EQ(MatrixElements(model), INT64_MAX);
  model = {};
  model.vocab_size = 256;
  model.num_layers = 4096;
  model.hidden_size = 131072;
  model.num_heads = model.num_kv_heads = 1024;
  model.head_dim = 128;
  model.intermediate_size = 1 << 20;
  // Of a model from elsewhere.
  EXPECT_THAT(std::string(CheckModel(model).message()),
              testing::HasSubstr("model.num_layers: a model of about 1.41e+15 parameters; at most 4e+12"));
}

TEST(ValidateTest, Experts) {
  const auto errors = [](std::vector<std::string> more) {
    more.insert(more.end(), {"model.family=mixtral", "model.vocab_size=256"});
    return ErrorsOf(kGood, more);
  };
  EXPECT_EQ(errors({}), "");
  EXPECT_EQ(errors({"model.experts_per_token=9"}),
            "--set model.experts_per_token=9: experts_per_token 9 is more than num_experts 8");
  EXPECT_EQ(errors({"model.num_layers=4096", "model.num_experts=257"}),
            "--set model.num_experts=257: 4096 layers of 257 experts; at most 1048576 experts in all");
  EXPECT_EQ(errors({"model.num_experts=64", "model.experts_per_token=64", "batch.microbatch_size=65536"}),
            "--set batch.microbatch_size=65536: a microbatch in which 67108864 tokens choose 64 experts each; at most "
            "2^31 - 1 choices in all");
  EXPECT_EQ(errors({"model.router_groups=3"}),
            "--set model.router_groups=3: num_experts 8 is not a multiple of router_groups 3");
  EXPECT_EQ(errors({"model.router_groups=8", "model.router_groups_chosen=1"}),
            "--set model.router_groups_chosen=1: 1 of 8 groups of 1 experts cannot be chosen, or have fewer than "
            "experts_per_token 2");
  EXPECT_EQ(errors({"model.first_expert_layer=13"}),
            "--set model.first_expert_layer=13: first_expert_layer 13 is beyond the last of num_layers 12");
  const std::string no_shared =
      ": shared_expert_gate is true (as family qwen2_moe presets it), but there is no shared expert; set "
      "model.shared_expert_intermediate_size, or model.shared_expert_gate to false";
  EXPECT_EQ(errors({"model.shared_expert_gate=true"}), "--set model.shared_expert_gate=true" + no_shared);
  EXPECT_EQ(ErrorsOf(kGood, {"model.family=qwen2_moe"}), "c.yaml: model.shared_expert_gate" + no_shared);
  EXPECT_EQ(ErrorsOf(kGood, {"model.family=qwen2_moe", "model.shared_expert_gate=false"}), "");
  EXPECT_EQ(errors({"model.shared_expert_intermediate_size=8", "model.num_experts=0"}),
            "--set model.num_experts=0: a shared expert stands beside others; leave it out or set "
            "model.num_experts");
  // As DeepSeek V3 chooses.
  EXPECT_EQ(errors({"model.router_score=sigmoid", "model.router_bias=true", "model.router_bias_rate=0",
                    "model.router_groups=4", "model.router_groups_chosen=2", "model.router_scale=2.5"}),
            "");
  EXPECT_EQ(errors({"model.qk_norm_joint=true"}),
            "--set model.qk_norm_joint=true: there is no norm of query and key; leave it out or set model.qk_norm to "
            "true");
}

// Each by itself, at its default, and with what makes it used.
TEST(ValidateTest, KeysThatNothingReads) {
  struct Case {
    std::string reason, decider;
    std::vector<std::string> unused;  // what sets it so, where kGood does not
    std::string used;
    std::vector<std::pair<std::string, std::string>> keys;  // another value, the default
  };
  const std::vector<Case> cases = {
      {"there are no experts",
       "model.num_experts",
       {},
       "model.family=mixtral",
       {{"model.expert_intermediate_size=8", "0"},
        {"model.expert_bias=true", "false"},
        {"model.swiglu_limit=7", "0"},
        {"model.first_expert_layer=2", "1"},
        {"model.expert_layer_step=2", "1"},
        {"model.expert_capacity=1.25", "0"},
        {"parallel.experts=gather", "auto"}}},
      {"there is no router",
       "model.num_experts",
       {},
       "model.family=mixtral",
       {{"model.router_score=sigmoid", "softmax"},
        {"model.router_scale=2.5", "1"},
        {"model.router_groups=4", "1"},
        {"model.router_jitter=0.01", "0"},
        {"model.router_balance=pooled", "per_layer"},
        {"model.router_balance_loss=0.01", "0"},
        {"model.router_z_loss=0.001", "0"},
        {"model.router_bias=true", "false"}}},
      {"routers have no bias",
       "model.router_bias",
       {"model.family=mixtral"},
       "model.router_bias=true",
       {{"model.router_bias_rate=0.01", "0.001"}}},
      {"all linear layers have biases",
       "model.bias",
       {},
       "model.bias=false",
       {{"model.attention_bias=true", "false"}, {"model.mlp_bias=true", "false"}}},
      {"no layer has a window",
       "model.sliding_window",
       {"model.position=rope"},
       "model.sliding_window=16",
       {{"model.first_window_layer=2", "1"},
        {"model.full_attention_step=4", "0"},
        {"model.window_rope_theta=100", "0"}}},
      {"positions are not rotary",
       "model.position",
       {},
       "model.position=rope",
       {{"model.rope_theta=5e5", "10000"}, {"model.rope_dim=8", "0"}}},
      {"rotary angles are not scaled",
       "model.rope_scaling",
       {"model.position=rope"},
       "model.rope_scaling=llama3",
       {{"model.rope_factor=32", "8"},
        {"model.rope_low_freq_factor=2", "1"},
        {"model.rope_high_freq_factor=8", "4"},
        {"model.rope_original_length=4096", "8192"}}},
      {"rotary angles are not scaled",
       "model.rope_scaling",
       {"model.position=rope", "model.sliding_window=16", "model.full_attention_step=4"},
       "model.rope_scaling=llama3",
       {{"model.rope_scaling_layers=full_attention", "all"}}},
      {"rope_scaling_layers is full_attention, and every layer has the window",
       "model.full_attention_step",
       {"model.family=olmo3", "model.sliding_window=16"},
       "model.full_attention_step=12",
       {{"model.rope_scaling=yarn", "none"}}},
      {"only rope_scaling llama3 has it",
       "model.rope_scaling",
       {"model.position=rope", "model.rope_scaling=yarn"},
       "model.rope_scaling=llama3",
       {{"model.rope_low_freq_factor=2", "1"}, {"model.rope_high_freq_factor=8", "4"}}},
      {"only rope_scaling llama3, yarn and longrope have it",
       "model.rope_scaling",
       {"model.position=rope", "model.rope_scaling=linear"},
       "model.rope_scaling=yarn",
       {{"model.rope_original_length=4096", "8192"}}},
      {"only rope_scaling yarn has it",
       "model.rope_scaling",
       {"model.position=rope"},
       "model.rope_scaling=yarn",
       {{"model.rope_beta_fast=16", "32"}, {"model.rope_beta_slow=2", "1"}, {"model.rope_truncate=false", "true"}}},
      {"only rope_scaling yarn and longrope have it",
       "model.rope_scaling",
       {"model.position=rope"},
       "model.rope_scaling=yarn",
       {{"model.rope_attention_factor=0.5", "0"}}},
      {"gradients are added in a tree, which has no such blocks",
       "batch.gradient_sum",
       {},
       "batch.gradient_sum=chains",
       {{"batch.gradient_sum_block=1", "4"}}},
      {"the run does not end early",
       "train.early_stop_patience",
       {"data.validation=v.bin", "train.validate_every_steps=5", "checkpoint.keep_best=1"},
       "train.early_stop_patience=2",
       {{"train.early_stop_min_delta=0.1", "0"}}},
      {"there are no adapters",
       "lora.rank",
       {"train.init_from=somewhere"},
       "lora.rank=8",
       {{"lora.alpha=32", "16"},
        {"lora.rslora=true", "false"},
        {"lora.dropout=0.1", "0"},
        {"lora.targets=[attention, mlp]", "attention"},
        {"lora.init_from=adapters", ""}}},
      {"no adapters are read",
       "lora.init_from",
       {"train.init_from=somewhere", "lora.rank=8"},
       "lora.init_from=adapters",
       {{"lora.init_digest=0123456789abcdef", ""}}},
      {"only optimizer muon has it", "optimizer.name", {}, "optimizer.name=muon", {{"optimizer.momentum=0.9", "0.95"}}},
      {"only optimizers adamw and muon have it",
       "optimizer.name",
       {"optimizer.name=lion"},
       "optimizer.name=muon",
       {{"optimizer.eps=1e-6", "1e-8"}}},
      {"a constant learning rate does not decay",
       "schedule.name",
       {"schedule.name=constant"},
       "schedule.name=wsd",
       {{"schedule.decay_steps=10", "0"}, {"schedule.min_lr_ratio=0.5", "0.1"}}},
      {"each worker holds the whole model",
       "parallel.sharding",
       {"parallel.sharding=no_shard"},
       "parallel.sharding=full_shard",
       {{"parallel.replicas=2", "1"}}},
      {"each worker holds the whole model",
       "parallel.sharding",
       {"parallel.sharding=no_shard", "model.family=mixtral"},
       "parallel.sharding=full_shard",
       {{"parallel.overlap_microbatches=true", "false"}}},
      {"nothing is compressed",
       "checkpoint.compression",
       {"checkpoint.compression=none"},
       "checkpoint.compression=zstd",
       {{"checkpoint.compression_level=9", "1"}}},
      {"no checkpoint has a validation loss",
       "data.validation",
       {},
       "data.validation=v.bin",
       {{"checkpoint.keep_best=1", "0"}}}};
  for (const Case& c : cases) {
    for (const auto& [set, usual] : c.keys) {
      std::vector<std::string> settings = c.unused;
      settings.push_back(set);
      const std::string key = set.substr(0, set.find('='));
      EXPECT_EQ(ErrorsOf(kGood, settings), absl::StrCat("--set ", set, ": ", key, " is not used: ", c.reason,
                                                        "; leave it out or set ", c.decider));
      settings.push_back(c.used);
      EXPECT_EQ(ErrorsOf(kGood, settings), "") << set;
      settings = c.unused;
      settings.push_back(set.substr(0, set.find('=') + 1) + usual);
      EXPECT_EQ(ErrorsOf(kGood, settings), "");
    }
  }
  EXPECT_EQ(ErrorsOf(kGood, {"model.router_groups=4", "model.router_groups_chosen=2"}),
            "--set model.router_groups=4: model.router_groups is not used: there is no router; leave it out or set "
            "model.num_experts\n"
            "--set model.router_groups_chosen=2: model.router_groups_chosen is not used: there is no router; leave it "
            "out or set model.num_experts");
  // Blamed is what was given last, which may be right.
  const std::string adapters = std::string(kGood) + "lora: {rank: 8, targets: [attention, mlp]}\n";
  const std::string begin = "train.init_from=somewhere";
  EXPECT_EQ(ErrorsOf(adapters, {begin}), "");
  EXPECT_EQ(ErrorsOf(adapters, {begin, "lora.rank=0"}),
            "--set lora.rank=0: lora.targets is not used: there are no adapters; leave it out or set lora.rank");
}

// Earlier builds accepted them, and a checkpoint cannot be edited.
TEST(ValidateTest, AConfigThatARunHasKeptMayHaveThem) {
  const std::string text = std::string(kGood) + "lora: {alpha: 32}\noptimizer: {momentum: 0.5}\n";
  EXPECT_NE(ErrorsOf(text), "");
  const absl::StatusOr<Config> stored = ParseStoredConfig(text, "c.yaml", FamilyPresets());
  ASSERT_TRUE(stored.ok()) << stored.status().message();
  EXPECT_EQ(stored->lora.alpha, 32);
  EXPECT_FALSE(ParseStoredConfig(text + "elastic: {min_workers: 2}\n", "c.yaml", FamilyPresets()).ok());
}

TEST(ValidateTest, APresetSetsWhatNothingReads) {
  EXPECT_EQ(ErrorsOf(kGood, {"model.family=olmoe", "model.num_experts=0"}), "");
  EXPECT_EQ(ErrorsOf(kGood, {"model.family=glm4_moe", "model.num_experts=0"}), "");
  EXPECT_EQ(ErrorsOf(kGood, {"model.family=olmo3"}), "");
  EXPECT_EQ(ErrorsOf(kGood, {"model.family=olmo3", "model.rope_scaling=yarn"}), "");
  const std::string full = "model.rope_scaling_layers=full_attention";
  EXPECT_EQ(ErrorsOf(kGood, {"model.family=olmo3", full}), "") << "as in a config that was printed";
}

TEST(ValidateTest, WithoutAWindowAllLayersAreScaled) {
  const std::vector<std::string> scaled = {"model.position=rope", "model.rope_scaling=yarn",
                                           "model.rope_scaling_layers=full_attention"};
  EXPECT_EQ(ErrorsOf(kGood, scaled), "--set " + scaled[2] +
                                         ": model.rope_scaling_layers is not used: no layer has a window; leave it out "
                                         "or set model.sliding_window");
  std::vector<std::string> some = scaled;
  some.insert(some.end(), {"model.sliding_window=16", "model.full_attention_step=4"});
  EXPECT_EQ(ErrorsOf(kGood, some), "");
}

TEST(ValidateTest, FactorsOfLearningRates) {
  for (const std::string item : {"a.*", "=0.1", "a=", "a=fast", "a=nan", "a=-1", "a=0.1x", "a=0x1", "a=1001", "a= 1"}) {
    EXPECT_EQ(ErrorsOf(kGood, {"optimizer.lr_factors=['" + item + "']"}),
              "--set optimizer.lr_factors=['" + item + "']: expected PATTERN=FACTOR, the factor from 0 to 1000, got '" +
                  item + "'");
    EXPECT_FALSE(ParseLrFactor(item).has_value());
  }
  EXPECT_EQ(ErrorsOf(kGood, {"optimizer.lr_factors=['a=b.*=1e-1', 'x=0', 'y=1000']", "optimizer.layer_decay=0.9"}), "");
  EXPECT_EQ(ParseLrFactor("a=b.*=1e-1")->pattern, "a=b.*");
  EXPECT_EQ(ParseLrFactor("a=b.*=1e-1")->factor, 0.1);
  EXPECT_NE(ErrorsOf(kGood, {"optimizer.layer_decay=0"}), "");
  EXPECT_NE(ErrorsOf(kGood, {"optimizer.layer_decay=1.1"}), "");
}

TEST(ValidateTest, GemmTable) {
  const std::string no_gpu = ": a table of matrix products is for GPUs; leave it out or set train.device to cuda";
  EXPECT_EQ(ErrorsOf(kGood, {"train.gemm_table=a.gemm"}), "--set train.gemm_table=a.gemm" + no_gpu);
  EXPECT_EQ(ErrorsOf(kGood, {"train.gemm_table=a.gemm", "train.device=cuda"}), "");
  EXPECT_EQ(ErrorsOf(kGood, {"train.gemm_table_digest=0123456789abcdef"}),
            "--set train.gemm_table_digest=0123456789abcdef: there is no file that it is the digest of; set "
            "train.gemm_table or leave it out");
}

TEST(ValidateTest, GemmTableInTheFile) {
  const std::string text =
      "model: {vocab_size: 256, hidden_size: 64, num_heads: 4}\ndata: {train: a.bin}\ntrain:\n"
      "  steps: 100\n  gemm_table: a.gemm\n";
  EXPECT_EQ(ErrorsOf(text),
            "c.yaml:5: train.gemm_table: a table of matrix products is for GPUs; leave it out or set "
            "train.device to cuda");
}

TEST(ValidateTest, Transport) {
  const std::string text = "transport nccl is for GPUs only; set train.device to cuda, or transport to gloo";
  EXPECT_EQ(ErrorsOf(kGood, {"parallel.transport=nccl"}), "--set parallel.transport=nccl: " + text);
  EXPECT_EQ(ErrorsOf(std::string(kGood) + "parallel:\n  transport: nccl\n"), "c.yaml:11: parallel.transport: " + text);
  EXPECT_EQ(ErrorsOf(kGood, {"parallel.transport=nccl", "train.device=cuda"}), "");
  EXPECT_EQ(ErrorsOf(kGood, {"parallel.transport=mpi"}), "");
}

TEST(ValidateTest, Elastic) {
  EXPECT_EQ(ErrorsOf(kGood, {"elastic.heartbeat_timeout_ms=100"}),
            "--set elastic.heartbeat_timeout_ms=100: elastic.heartbeat_interval_ms 200 must be less than "
            "elastic.heartbeat_timeout_ms 100");
  EXPECT_EQ(ErrorsOf(kGood, {"elastic.workers=4", "elastic.max_workers=3"}),
            "--set elastic.max_workers=3: max_workers 3 is less than workers 4");
  EXPECT_EQ(ErrorsOf(kGood, {"elastic.min_workers=2"}),
            "--set elastic.min_workers=2: min_workers 2 is more than workers 1");
  EXPECT_EQ(ErrorsOf(kGood, {"elastic.workers=4", "elastic.min_workers=2", "elastic.max_workers=8"}), "");
  EXPECT_EQ(ErrorsOf(kGood, {absl::StrCat("elastic.max_workers=", kMaxWorkers)}), "");  // as many as a run can have
  EXPECT_NE(ErrorsOf(kGood, {absl::StrCat("elastic.max_workers=", kMaxWorkers + 1)}), "");
}

TEST(ValidateTest, CheckpointTimes) {
  EXPECT_EQ(ErrorsOf(kGood, {"checkpoint.every_steps=10", "checkpoint.every_seconds=60"}),
            "--set checkpoint.every_seconds=60: every_seconds 60 and every_steps 10 are both set; set one of them");
  EXPECT_EQ(ErrorsOf(kGood, {"checkpoint.every=never", "checkpoint.every_steps=10"}),
            "--set checkpoint.every_steps=10: every is never, but every_steps is set (10); leave one of them out");
  EXPECT_EQ(ErrorsOf(kGood, {"checkpoint.every=never", "checkpoint.every_seconds=60"}),
            "--set checkpoint.every_seconds=60: every is never, but every_seconds is set (60); leave one of them out");
  EXPECT_EQ(ErrorsOf(kGood, {"checkpoint.every=never"}), "");
  EXPECT_EQ(ErrorsOf(kGood, {"checkpoint.every=auto", "checkpoint.every_steps=1"}), "");
  EXPECT_EQ(ErrorsOf(kGood, {"checkpoint.every_seconds=1"}), "");
}

TEST(ValidateTest, CheckpointPlace) {
  for (const std::string place : {"gs://bucket/x", "s3://", "s3:///prefix", "://x"}) {
    EXPECT_EQ(ErrorsOf(kGood, {"checkpoint.directory=" + place}),
              "--set checkpoint.directory=" + place + ": expected a path or s3://bucket/prefix, got '" + place + "'");
  }
  for (const std::string place : {"s3://bucket", "s3://bucket/a/b", "/mnt/c", "c", "c/x://y"}) {
    EXPECT_EQ(ErrorsOf(kGood, {"checkpoint.directory=" + place}), "");
  }
  EXPECT_EQ(ErrorsOf(kGood, {"checkpoint.s3_endpoint=127.0.0.1:9000"}),
            "--set checkpoint.s3_endpoint=127.0.0.1:9000: expected http://HOST[:PORT] or https://HOST[:PORT], got "
            "'127.0.0.1:9000'");
  EXPECT_EQ(ErrorsOf(kGood, {"checkpoint.s3_endpoint=http://127.0.0.1:9000"}), "");
}

TEST(ValidateTest, DataPlaces) {
  for (const std::string key : {"data.train", "data.validation"}) {
    for (const std::string place : {"gs://bucket/x", "s3://", "s3://bucket", "s3://bucket/", "s3:///name", "://x"}) {
      EXPECT_EQ(ErrorsOf(kGood, {key + "=" + place}),
                "--set " + key + "=" + place + ": expected a path or s3://bucket/name, got '" + place + "'");
    }
    for (const std::string place : {"s3://bucket/a.bin", "s3://bucket/a/b.bin", "/mnt/c.bin", "c", "c/x://y"}) {
      EXPECT_EQ(ErrorsOf(kGood, {key + "=" + place}), "");
    }
  }
  EXPECT_EQ(ErrorsOf(kGood, {"data.s3_endpoint=127.0.0.1:9000"}),
            "--set data.s3_endpoint=127.0.0.1:9000: expected http://HOST[:PORT] or https://HOST[:PORT], got "
            "'127.0.0.1:9000'");
  EXPECT_EQ(ErrorsOf(kGood, {"data.s3_endpoint=http://127.0.0.1:9000"}), "");
}

TEST(ValidateTest, CheckpointRanges) {
  EXPECT_EQ(ErrorsOf(kGood, {"checkpoint.keep_last=0", "checkpoint.compression_level=20", "checkpoint.staging_mib=7",
                             "checkpoint.threads=0", "checkpoint.max_gib=-1", "checkpoint.s3_retry_seconds=-1",
                             "checkpoint.s3_addressing=dns"}),
            "--set checkpoint.keep_last=0: must be between 1 and 1099511627776, got '0'\n"
            "--set checkpoint.compression_level=20: must be between 1 and 19, got '20'\n"
            "--set checkpoint.staging_mib=7: must be between 8 and 16777216, got '7'\n"
            "--set checkpoint.threads=0: must be between 1 and 4096, got '0'\n"
            "--set checkpoint.max_gib=-1: must be between 0 and 1e+09, got '-1'\n"
            "--set checkpoint.s3_retry_seconds=-1: must be between 0 and 31622400, got '-1'\n"
            "--set checkpoint.s3_addressing=dns: expected one of auto, path, host, got 'dns'");
}

TEST(ValidateTest, Batch) {
  EXPECT_EQ(ErrorsOf(kGood, {"batch.sequence_length=1025"}),
            "--set batch.sequence_length=1025: sequence_length 1025 is longer than model.max_sequence_length 1024");
  EXPECT_EQ(
      ErrorsOf(kGood,
               {"batch.sequence_length=1048576", "model.max_sequence_length=1048576", "batch.microbatch_size=512"}),
      "--set batch.microbatch_size=512: a microbatch of 536870912 tokens; at most 268435456 (use more microbatches "
      "of fewer sequences)");
  EXPECT_EQ(ErrorsOf(kGood, {"batch.microbatch_size=65536", "batch.microbatches=65536", "train.steps=1099511627776"}),
            "--set train.steps=1099511627776: the tokens of the whole run (steps * microbatches * microbatch_size * "
            "sequence_length) exceed 2^63");
}

// What depends on the steps is checked once they are known (models/runtime/epochs.h).
TEST(ValidateTest, StepsOrEpochs) {
  const std::string neither = "one of train.steps and train.epochs must be more than 0";
  EXPECT_EQ(ErrorsOf(kGood, {"train.steps=0"}), "--set train.steps=0: " + neither);
  EXPECT_THAT(ErrorsOf(kGood, {"train.steps=0", "train.epochs=0"}), testing::HasSubstr(neither));
  EXPECT_EQ(ErrorsOf(kGood, {"train.steps=0", "train.epochs=0.01"}), "");
  EXPECT_EQ(ErrorsOf(kGood, {"train.steps=0", "train.epochs=2", "schedule.name=wsd"}), "");
  EXPECT_THAT(ErrorsOf(kGood, {"train.steps=0", "train.epochs=2", "schedule.total_steps=9"}),
              testing::HasSubstr("warmup_steps 10 is more than total_steps 9"));
  EXPECT_EQ(ErrorsOf(kGood, {"train.epochs=-1"}), "--set train.epochs=-1: must be between 0 and 1e+06, got '-1'");
}

TEST(ValidateTest, Schedule) {
  EXPECT_EQ(ErrorsOf(kGood, {"train.steps=9"}), "--set train.steps=9: warmup_steps 10 is more than train.steps 9");
  EXPECT_EQ(ErrorsOf(kGood, {"train.steps=9", "schedule.total_steps=100"}), "") << "the beginning of a longer run";
  EXPECT_EQ(ErrorsOf(kGood, {"schedule.total_steps=99"}),
            "--set schedule.total_steps=99: total_steps 99 is less than train.steps 100: nothing says which learning "
            "rate comes after it");
  EXPECT_EQ(ErrorsOf(kGood, {"train.steps=10"}), "");
  EXPECT_EQ(ErrorsOf(kGood, {"schedule.name=wsd", "schedule.decay_steps=91"}),
            "--set schedule.decay_steps=91: warmup_steps 10 and the final decay of 91 do not fit into train.steps 100");
  EXPECT_EQ(ErrorsOf(kGood, {"schedule.name=wsd", "schedule.decay_steps=90"}), "");
  EXPECT_EQ(ErrorsOf(kGood, {"schedule.name=cosine", "schedule.decay_steps=91"}), "");
  EXPECT_EQ(ErrorsOf(kGood, {"schedule.name=wsd", "schedule.warmup_steps=81"}),
            "--set schedule.warmup_steps=81: warmup_steps 81 and the final decay of 20 (20% of steps) do not fit into "
            "train.steps 100");
}

TEST(ValidateTest, NothingToValidateOn) {
  EXPECT_EQ(ErrorsOf(kGood, {"train.validate_every_steps=5"}),
            "--set train.validate_every_steps=5: there is nothing to validate on; set data.validation, or "
            "validate_every_steps to 0");
  EXPECT_EQ(ErrorsOf(kGood, {"train.validate_every_steps=5", "data.validation=v.bin"}), "");
  EXPECT_EQ(ErrorsOf(kGood, {"train.early_stop_patience=2", "data.validation=v.bin", "checkpoint.keep_best=1"}),
            "--set train.early_stop_patience=2: a run ends early by the losses of its validations; set "
            "train.validate_every_steps");
  const std::vector<std::string> early = {"train.early_stop_patience=2", "train.validate_every_steps=5",
                                          "data.validation=v.bin"};
  EXPECT_EQ(ErrorsOf(kGood, early),
            "--set train.early_stop_patience=2: the state with the lowest loss would be deleted before the run ends; "
            "set checkpoint.keep_best: 1");
  std::vector<std::string> kept = early;
  kept.emplace_back("checkpoint.every=never");
  EXPECT_EQ(ErrorsOf(kGood, kept), "");
}

TEST(ValidateTest, AllTogetherWithTheLinesOfTheFile) {
  const std::string text =
      "schedule:\n"                 // 1
      "  warmup_steps: 200\n"       // 2
      "model:\n"                    // 3
      "  vocab_size: 256\n"         // 4
      "  num_heads: 7\n"            // 5
      "  num_kv_heads: 2\n"         // 6
      "train:\n"                    // 7
      "  steps: 100\n"              // 8
      "data: {train: a.bin}\n"      // 9
      "batch:\n"                    // 10
      "  sequence_length: 4096\n";  // 11
  EXPECT_EQ(ErrorsOf(text),
            "c.yaml:2: schedule.warmup_steps: warmup_steps 200 is more than train.steps 100\n"
            "c.yaml:5: model.num_heads: hidden_size 768 is not a multiple of num_heads 7; change one of them or set "
            "head_dim\n"
            "c.yaml:6: model.num_kv_heads: num_heads 7 is not a multiple of num_kv_heads 2\n"
            "c.yaml:11: batch.sequence_length: sequence_length 4096 is longer than model.max_sequence_length 1024");
}

TEST(ValidateTest, MoreWorkersThanMicrobatchesAreWarnedOf) {
  Config config;
  config.batch.microbatches = 2;
  config.elastic.workers = 2;
  EXPECT_EQ(IdleWorkersWarning(config), "");
  config.elastic.workers = 3;
  EXPECT_EQ(IdleWorkersWarning(config), "1 of 3 workers has nothing to compute: batch.microbatches is 2");
  config.elastic.workers = 4;
  EXPECT_EQ(IdleWorkersWarning(config), "2 of 4 workers have nothing to compute: batch.microbatches is 2");
}

// The default of model.max_sequence_length is 1024.
TEST(ValidateTest, PositionsThatAreNeverTrainedAreWarnedOf) {
  Config config;
  config.batch.sequence_length = 64;
  EXPECT_EQ(UntrainedPositionsWarning(config),
            "positions 65 to 1024 (model.max_sequence_length) are never trained, as batch.sequence_length is 64: the "
            "saved model takes longer texts than it has learned");
  Config rope = config, tuned = config;
  rope.model.position = PositionKind::kRope;
  tuned.train.init_from = "a_model";
  config.model.max_sequence_length = 64;
  for (const Config& fine : {rope, tuned, config}) EXPECT_EQ(UntrainedPositionsWarning(fine), "");
}

TEST(ValidateTest, LongFactorsForShortSequencesAreWarnedOf) {
  Config config;
  config.model.position = PositionKind::kRope;
  config.model.rope_scaling = RopeScaling::kLongRope;
  config.model.rope_original_length = 4096;
  config.model.max_sequence_length = 8192;
  config.batch.sequence_length = 4096;
  EXPECT_EQ(LongFactorsWarning(config),
            "the run trains with model.rope_long_factors, as model.max_sequence_length is 8192; for sequences of "
            "batch.sequence_length 4096 transformers takes model.rope_short_factors: to train with those, set "
            "model.max_sequence_length to 4096 (model.rope_original_length)");
  Config longer = config, shorter = config, yarn = config;
  longer.batch.sequence_length = 4097;
  shorter.model.max_sequence_length = 4096;
  yarn.model.rope_scaling = RopeScaling::kYarn;
  for (const Config& fine : {longer, shorter, yarn}) EXPECT_EQ(LongFactorsWarning(fine), "");
}

TEST(ValidateTest, NoErrorThatFollowsFromAnother) {
  EXPECT_EQ(ErrorsOf(kGood, {"model.num_heads=x", "model.num_kv_heads=5", "train.steps=zero"}),
            "--set model.num_heads=x: expected an integer, got 'x'\n"
            "--set train.steps=zero: expected an integer, got 'zero'");
}

}  // namespace
}  // namespace holdfast
