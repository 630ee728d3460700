#pragma once
// Tiny models of odd sizes, their weights and tokens, and one call that runs a pass over them.

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "models/plan.h"
#include "models/transformer.h"
#include "tests/models/test_store.h"

namespace holdfast {

inline ModelConfig TinyGpt2() {
  return {.vocab_size = 19,
          .max_sequence_length = 11,
          .num_layers = 2,
          .hidden_size = 24,
          .num_heads = 3,
          .num_kv_heads = 3,
          .head_dim = 8,
          .intermediate_size = 40};
}

inline ModelConfig TinyLlama() {
  return {.family = "llama",
          .vocab_size = 23,
          .max_sequence_length = 11,
          .num_layers = 2,
          .hidden_size = 20,
          .num_heads = 4,
          .num_kv_heads = 2,
          .head_dim = 8,
          .intermediate_size = 28,
          .position = PositionKind::kRope,
          .norm = NormType::kRmsNorm,
          .activation = ActivationKind::kSwiglu,
          .bias = false,
          .tie_embeddings = false,
          .rope_theta = 100.0};
}

/// Llama as of 3.1: of its four frequencies one stays, one is mixed, two are divided.
inline ModelConfig TinyLlama31() {
  ModelConfig c = TinyLlama();
  c.rope_scaling = RopeScaling::kLlama3;
  c.rope_factor = 4;
  c.rope_low_freq_factor = 0.5;
  c.rope_high_freq_factor = 2;
  c.rope_original_length = 20;
  return c;
}

/// Biases in attention alone.
inline ModelConfig TinyLlamaLinear() {
  ModelConfig c = TinyLlama();
  c.attention_bias = true;
  c.rope_scaling = RopeScaling::kLinear;
  c.rope_factor = 2.5;
  return c;
}

/// Biases in the MLPs alone; of its four frequencies one stays, one is mixed, two are divided.
inline ModelConfig TinyLlamaYarn() {
  ModelConfig c = TinyLlama();
  c.mlp_bias = true;
  c.rope_scaling = RopeScaling::kYarn;
  c.rope_factor = 2;
  c.rope_original_length = 20;
  return c;
}

inline ModelConfig TinyMistral() {
  ModelConfig c = TinyLlama();
  c.family = "mistral";
  c.sliding_window = 3;
  return c;
}

inline ModelConfig TinyLlamaGeglu() {
  ModelConfig c = TinyLlama();
  c.activation = ActivationKind::kGeglu;
  return c;
}

/// The second and the fourth of four layers have a window.
inline ModelConfig TinyQwen3SomeWindows() {
  ModelConfig c = TinyLlama();
  c.family = "qwen3";
  c.qk_norm = true;
  c.num_layers = 4;
  c.sliding_window = 3;
  c.first_window_layer = c.full_attention_step = 2;
  return c;
}

/// The first and the last of three layers have a window and angles of another base; all are scaled.
inline ModelConfig TinyLlamaWindowTheta() {
  ModelConfig c = TinyLlamaYarn();
  c.num_layers = 3;
  c.sliding_window = 4;
  c.full_attention_step = 2;
  c.window_rope_theta = 12.5;
  return c;
}

inline ModelConfig TinyPhi3() {
  ModelConfig c = TinyMistral();
  c.family = "phi3";
  return c;
}

/// Three of a head's four pairs are turned, by angles for sequences of more than the original length.
inline ModelConfig TinyPhi4Mini() {
  ModelConfig c = TinyLlama();
  c.family = "phi3";
  c.tie_embeddings = true;
  c.rope_dim = 6;
  c.rope_scaling = RopeScaling::kLongRope;
  c.rope_original_length = 9;
  c.rope_factor = 11.0 / 9;
  c.rope_short_factors = {1, 1.25, 1.5};
  c.rope_long_factors = {1.1, 2, 4.5};
  return c;
}

/// All that can be said of LongRoPE, of a model of the original length.
inline ModelConfig TinyPhi3Short() {
  ModelConfig c = TinyPhi4Mini();
  c.rope_original_length = c.max_sequence_length;
  c.rope_factor = 3;
  c.rope_attention_factor = 0.9;
  return c;
}

inline ModelConfig TinyQwen2() {
  ModelConfig c = TinyLlama();
  c.family = "qwen2";
  c.qkv_bias = true;
  c.tie_embeddings = true;
  return c;
}

inline ModelConfig TinyQwen3() {
  ModelConfig c = TinyLlama();
  c.family = "qwen3";
  c.qk_norm = true;
  return c;
}

/// Of its four frequencies one stays, two are mixed, one is divided.
inline ModelConfig TinyQwen3Yarn() {
  ModelConfig c = TinyQwen3();
  c.attention_bias = true;
  c.rope_scaling = RopeScaling::kYarn;
  c.rope_factor = 3;
  c.rope_original_length = 20;
  c.rope_beta_fast = 2;
  c.rope_beta_slow = 0.3;
  c.rope_truncate = false;
  c.rope_attention_factor = 0.9;
  return c;
}

/// The second of three layers is dense.
inline ModelConfig TinyMixture() {
  ModelConfig c = TinyLlama();
  c.num_layers = 3;
  c.num_experts = 5;
  c.experts_per_token = 2;
  c.expert_intermediate_size = 12;
  c.expert_layer_step = 2;
  return c;
}

/// Experts in every layer, and nothing else that MixtureLike families cannot say.
inline ModelConfig TinyMixtral() {
  ModelConfig c = TinyLlama();
  c.family = "mixtral";
  c.num_experts = 5;
  c.intermediate_size = c.expert_intermediate_size = 12;
  return c;
}

inline ModelConfig TinyQwen2Moe() {
  ModelConfig c = TinyMixture();
  c.family = "qwen2_moe";
  c.qkv_bias = true;
  c.router_normalize = false;
  c.shared_expert_intermediate_size = 20;
  c.shared_expert_gate = true;
  return c;
}

inline ModelConfig TinyQwen3Moe() {
  ModelConfig c = TinyMixture();
  c.family = "qwen3_moe";
  c.qk_norm = true;
  c.first_expert_layer = 2;
  c.expert_layer_step = 1;
  return c;
}

inline ModelConfig TinyOlmoe() {
  ModelConfig c = TinyMixtral();
  c.family = "olmoe";
  c.hidden_size = c.num_heads * c.head_dim;
  c.qk_norm = c.qk_norm_joint = true;
  c.router_normalize = false;
  c.num_experts = 7;
  c.experts_per_token = 3;
  return c;
}

inline ModelConfig TinyOlmo2() {
  ModelConfig c = TinyLlama();
  c.family = "olmo2";
  c.norm_position = NormPosition::kAfter;
  c.qk_norm = c.qk_norm_joint = true;
  return c;
}

/// The first and the last of three layers have a window; angles are scaled in the second.
inline ModelConfig TinyOlmo3() {
  ModelConfig c = TinyOlmo2();
  c.family = "olmo3";
  c.num_layers = 3;
  c.sliding_window = 3;
  c.full_attention_step = 2;
  c.rope_scaling = RopeScaling::kYarn;
  c.rope_scaling_layers = RopeScalingLayers::kFullAttention;
  c.rope_factor = 2;
  c.rope_original_length = 20;
  return c;
}

/// The first and the last of three layers have a window and a base of their own; angles are scaled in the second.
inline ModelConfig TinyGemma3() {
  ModelConfig c = TinyLlama();
  c.family = "gemma3";
  c.norm_position = NormPosition::kBoth;
  c.activation = ActivationKind::kGeglu;
  c.qk_norm = true;
  c.tie_embeddings = c.scale_embeddings = true;
  c.num_layers = 3;
  c.sliding_window = 3;
  c.full_attention_step = 2;
  c.window_rope_theta = 12.5;
  c.rope_scaling = RopeScaling::kLinear;
  c.rope_scaling_layers = RopeScalingLayers::kFullAttention;
  c.rope_factor = 2.5;
  return c;
}

/// Half of each head is turned, the first of three layers is dense, experts are chosen from two of three groups.
inline ModelConfig TinyGlm4Moe() {
  ModelConfig c = TinyQwen3Moe();
  c.family = "glm4_moe";
  c.qkv_bias = true;
  c.rope_dim = 4;
  c.num_experts = 6;
  c.router_score = RouterScoreKind::kSigmoid;
  c.router_scale = 2.5;
  c.router_groups = 3;
  c.router_groups_chosen = 2;
  c.router_bias = true;
  c.shared_expert_intermediate_size = 2 * c.expert_intermediate_size;
  return c;
}

/// The first of two layers has a window; of the four frequencies one stays, two are mixed, one is divided.
inline ModelConfig TinyGptOss() {
  ModelConfig c = TinyMixtral();
  c.family = "gpt_oss";
  c.num_experts = 4;
  c.attention_bias = c.attention_sinks = c.expert_bias = true;
  c.swiglu_limit = 1;  // which a third of gates and ups are beyond
  c.sliding_window = 3;
  c.full_attention_step = 2;
  c.rope_scaling = RopeScaling::kYarn;
  c.rope_factor = 3;
  c.rope_original_length = 20;
  c.rope_beta_fast = 2;
  c.rope_beta_slow = 0.3;
  c.rope_truncate = false;
  return c;
}

struct NamedConfig {
  std::string name;
  ModelConfig config;
};

/// All families and the mixtures that a config can ask for.
inline std::vector<NamedConfig> TinyModels() {
  ModelConfig untied = TinyGpt2(), dropout = TinyGpt2(), unbiased = TinyGpt2(), tied = TinyLlama();
  ModelConfig llama_dropout = TinyLlama(), mixed = TinyLlama(), gpt2_window = TinyGpt2(), qwen_window = TinyQwen3();
  untied.tie_embeddings = false;
  dropout.dropout = 0.3;
  unbiased.bias = false;
  tied.tie_embeddings = true;
  tied.bias = true;
  tied.num_kv_heads = 1;
  llama_dropout.dropout = 0.2;
  mixed.position = PositionKind::kLearned;
  mixed.norm = NormType::kLayerNorm;
  gpt2_window.qk_norm = true;
  gpt2_window.sliding_window = 4;
  gpt2_window.dropout = 0.2;
  qwen_window.sliding_window = 5;
  ModelConfig llama_after = TinyLlama(), gpt2_after = TinyGpt2(), mixture_after = TinyMixture();
  ModelConfig gpt2_both = TinyGpt2(), gpt2_scaled = TinyGpt2(), llama_scaled = TinyLlama();
  gpt2_scaled.dropout = 0.2;
  gpt2_scaled.scale_embeddings = llama_scaled.scale_embeddings = true;
  mixture_after.shared_expert_intermediate_size = 20;
  mixture_after.experts_per_token =
      mixture_after.num_experts;  // or all tokens, much alike in the stream, leave one out
  for (ModelConfig* after : {&llama_after, &gpt2_after, &mixture_after}) after->norm_position = NormPosition::kAfter;
  llama_after.dropout = gpt2_both.dropout = 0.2;
  ModelConfig mixture_both = mixture_after;
  for (ModelConfig* both : {&gpt2_both, &mixture_both}) both->norm_position = NormPosition::kBoth;
  ModelConfig mixture_dropout = TinyMixture(), sigmoid = TinyMixture();
  mixture_dropout.dropout = 0.2;
  mixture_dropout.router_normalize = false;
  sigmoid.router_score = RouterScoreKind::kSigmoid;
  sigmoid.router_scale = 2.5;
  sigmoid.tie_embeddings = true;
  sigmoid.router_balance_loss = 0.4;
  sigmoid.router_z_loss = 0.05;
  sigmoid.router_bias = true;
  ModelConfig gpt2_sinks = TinyGpt2(), mistral_sinks = TinyMistral();
  gpt2_sinks.dropout = 0.2;
  gpt2_sinks.attention_sinks = mistral_sinks.attention_sinks = true;
  ModelConfig clip = TinyOlmoe(), gpt2_clip = TinyGpt2(), biased_mixture = TinyQwen3Moe();
  biased_mixture.attention_bias = true;
  clip.clip_qkv = 1;
  gpt2_clip.clip_qkv = 1;
  ModelConfig losses = TinyMixture();
  losses.router_balance_loss = 0.5;
  losses.router_z_loss = 0.1;
  ModelConfig pooled = losses;
  pooled.router_balance = RouterBalanceKind::kPooled;
  ModelConfig shared = TinyMixture(), capacity = TinyMixture(), small = TinyQwen2Moe();
  shared.shared_expert_intermediate_size = 20;
  capacity.expert_capacity = 0.75;
  capacity.router_balance_loss = 0.3;
  small.expert_capacity = 0.25;
  ModelConfig biased_experts = TinyMixture(), limited = TinyMixture(), oss_full = TinyGptOss();
  biased_experts.expert_bias = true;
  limited.swiglu_limit = 1;
  oss_full.num_layers = 3;
  oss_full.num_experts = 5;
  oss_full.router_bias = true;  // beside the other one
  oss_full.shared_expert_intermediate_size = 20;
  oss_full.shared_expert_gate = true;
  oss_full.expert_layer_step = 2;
  oss_full.expert_capacity = 0.75;
  oss_full.router_jitter = 0.4;
  oss_full.router_balance_loss = 0.3;
  oss_full.router_z_loss = 0.1;
  oss_full.dropout = 0.2;
  ModelConfig jitter = TinyQwen2Moe();
  jitter.router_jitter = 0.4;
  jitter.router_z_loss = 0.1;
  return {{"Gpt2", TinyGpt2()},
          {"Gpt2Untied", untied},
          {"Gpt2Dropout", dropout},
          {"Gpt2NoBias", unbiased},
          {"Llama", TinyLlama()},
          {"LlamaTiedBiased", tied},
          {"LlamaDropout", llama_dropout},
          {"Mixed", mixed},
          {"Llama31", TinyLlama31()},
          {"LlamaLinear", TinyLlamaLinear()},
          {"LlamaYarn", TinyLlamaYarn()},
          {"LlamaGeglu", TinyLlamaGeglu()},
          {"LlamaWindowTheta", TinyLlamaWindowTheta()},
          {"Mistral", TinyMistral()},
          {"Phi3", TinyPhi3()},
          {"Phi3Short", TinyPhi3Short()},
          {"Phi4Mini", TinyPhi4Mini()},
          {"Qwen2", TinyQwen2()},
          {"Qwen3", TinyQwen3()},
          {"Qwen3Yarn", TinyQwen3Yarn()},
          {"Qwen3Window", qwen_window},
          {"Qwen3SomeWindows", TinyQwen3SomeWindows()},
          {"Gpt2NormsAndWindow", gpt2_window},
          {"LlamaNormsAfter", llama_after},
          {"Gpt2NormsAfter", gpt2_after},
          {"MixtureNormsAfter", mixture_after},
          {"Gpt2NormsBoth", gpt2_both},
          {"MixtureNormsBoth", mixture_both},
          {"Gpt2ScaledEmbeddings", gpt2_scaled},
          {"LlamaScaledEmbeddings", llama_scaled},
          {"Mixture", TinyMixture()},
          {"MixtureDropout", mixture_dropout},
          {"MixtureSigmoid", sigmoid},
          {"MixtureLosses", losses},
          {"MixturePooled", pooled},
          {"MixtureShared", shared},
          {"MixtureCapacity", capacity},
          {"Qwen2MoeLittleCapacity", small},
          {"Qwen2MoeJitter", jitter},
          {"Mixtral", TinyMixtral()},
          {"Qwen2Moe", TinyQwen2Moe()},
          {"Qwen3Moe", TinyQwen3Moe()},
          {"Qwen3MoeBiased", biased_mixture},
          {"Olmoe", TinyOlmoe()},
          {"OlmoeClip", clip},
          {"Glm4Moe", TinyGlm4Moe()},
          {"MixtureBiasedExperts", biased_experts},
          {"MixtureLimited", limited},
          {"GptOss", TinyGptOss()},
          {"GptOssFull", oss_full},
          {"Olmo2", TinyOlmo2()},
          {"Olmo3", TinyOlmo3()},
          {"Gemma3", TinyGemma3()},
          {"Gpt2Clip", gpt2_clip},
          {"Gpt2Sinks", gpt2_sinks},
          {"MistralSinks", mistral_sinks}};
}

/// Weights far from their initial values, where biases are 0 and norms 1 and mistakes can hide.
inline std::vector<float> RandomWeights(const ParameterLayout& layout, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values;
  for (const ParameterSpec& p : layout.parameters()) {
    const float mean = InitialConstant(p);
    const float scale = p.is_matrix() ? 0.3f : 0.2f;
    for (int64_t i = 0; i < p.shape.elements(); ++i) {
      // Small, so that every expert is chosen, and drawn from none, so that other values are those of a model without.
      values.push_back(p.balance.has_value() ? 0.03f * static_cast<float>(i % 3 - 1) : mean + scale * normal(rng));
    }
  }
  return values;
}

struct Tokens {
  int64_t batch = 0, sequence = 0;
  std::vector<int32_t> inputs, targets;
  std::vector<int32_t> begins = {}, ends = {};  // of documents; empty: none

  TokenBatch view() const {
    TokenBatch view{.inputs = inputs.data(), .targets = targets.data(), .batch = batch, .sequence = sequence};
    if (!begins.empty()) view.documents = {begins.data(), ends.data()};
    return view;
  }
};

/// The same tokens, the first sequence one document, the next two, and so on.
inline Tokens InDocuments(Tokens tokens) {
  for (int64_t b = 0; b < tokens.batch; ++b) {
    const int64_t count = std::min(b + 1, tokens.sequence);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t begin = i * i, end = i + 1 == count ? tokens.sequence : (i + 1) * (i + 1);
      tokens.begins.insert(tokens.begins.end(), end - begin, static_cast<int32_t>(begin));
      tokens.ends.insert(tokens.ends.end(), end - begin, static_cast<int32_t>(end));
    }
  }
  return tokens;
}

/// Every seventh target is not counted.
inline Tokens RandomTokens(int64_t vocab_size, int64_t batch, int64_t sequence, uint64_t seed) {
  std::mt19937_64 rng(seed);
  Tokens tokens{.batch = batch, .sequence = sequence, .inputs = {}, .targets = {}};
  for (int64_t i = 0; i < batch * sequence; ++i) {
    tokens.inputs.push_back(static_cast<int32_t>(rng() % vocab_size));
    tokens.targets.push_back(i % 7 == 5 ? -1 : static_cast<int32_t>(rng() % vocab_size));
  }
  return tokens;
}

inline constexpr kernels::RandomKey kTestKey{.seed = 0x123456789abcdefull, .step = 3, .microbatch = 5};

/// A model on its device with weights in a TestStore.
class TestModel {
 public:
  TestModel(const ModelConfig& config, const TransformerOptions& options, int threads,
            const std::vector<float>& weights)
      : device_(MakeCpuDevice(threads)),
        stream_(device_->CreateStream().value()),
        model_(MakeTransformer(config, options, *device_).value()),
        store_(model_->layout(), weights, options.compute_dtype, stream_->ops()) {}

  LanguageModel& model() { return *model_; }
  TestStore& store() { return store_; }

  /// Losses (B * T). The arena has exactly the planned capacity, and exactly that must be used.
  std::vector<float> Train(const Tokens& tokens, float loss_scale) {
    return Run([&](auto&&... pass) { return model_->ForwardBackward(pass...); }, tokens, tokens.batch * tokens.sequence,
               loss_scale, PlanTraining(*model_, tokens.batch, tokens.sequence).arena_bytes);
  }
  std::vector<float> Evaluate(const Tokens& tokens) {
    return Run([&](auto&&... pass) { return model_->Evaluate(pass...); }, tokens, tokens.batch * tokens.sequence, 0,
               PlanEvaluation(*model_, tokens.batch, tokens.sequence).arena_bytes);
  }
  /// The logits of all rows.
  std::vector<float> EvaluateLogits(const Tokens& tokens) {
    std::vector<float> all;
    Run(
        [&](const TokenBatch& batch, const PassContext& context, float* losses) {
          return model_->EvaluateLogits(batch, context, losses, [&](kernels::ConstMatrix rows) {
            for (int64_t r = 0; r < rows.rows; ++r) {
              const float* row = static_cast<const float*>(rows.data) + r * rows.stride;
              all.insert(all.end(), row, row + rows.cols);
            }
            return absl::OkStatus();
          });
        },
        tokens, tokens.batch * tokens.sequence, 0, PlanEvaluation(*model_, tokens.batch, tokens.sequence).arena_bytes);
    return all;
  }
  std::vector<float> LastLogits(const Tokens& tokens, int64_t vocab_size) {
    return Run([&](auto&&... pass) { return model_->LastLogits(pass...); }, tokens, tokens.batch * vocab_size, 0,
               PlanLastLogits(*model_, tokens.batch, tokens.sequence).arena_bytes);
  }

  PassContext Context(Arena& arena, float loss_scale) {
    return {.ops = &stream_->ops(),
            .arena = &arena,
            .store = &store_,
            .random = kTestKey,
            .loss_scale = loss_scale,
            .counted = counted_};
  }
  /// What passes are told of PassContext::counted.
  void SetCounted(float counted) { counted_ = counted; }
  Device& device() { return *device_; }
  Stream& stream() { return *stream_; }

 private:
  template <typename Pass>
  std::vector<float> Run(Pass pass, const Tokens& tokens, int64_t outputs, float loss_scale, size_t arena_bytes) {
    Arena arena = Arena::Create(*device_, arena_bytes).value();
    std::vector<float> out(outputs, NAN);
    const absl::Status status = pass(tokens.view(), Context(arena, loss_scale), out.data());
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(arena.peak_bytes(), arena_bytes);
    EXPECT_EQ(arena.mark(), 0u);
    EXPECT_EQ(store_.held(), 0);
    return out;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<LanguageModel> model_;
  TestStore store_;
  float counted_ = 1;
};

}  // namespace holdfast
