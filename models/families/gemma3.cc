// Gemma 3 (Gemma Team 2025, arXiv 2503.19786), of text alone: Gemma3ForCausalLM. Norms stand before and at the end of
// branches, MLPs have GELU gates, embeddings are multiplied by sqrt(hidden_size). Most layers have a window and a base
// of rotary angles of their own. Of norms' factors files hold the factor less 1.

#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "models/families/families.h"
#include "models/families/llama_config.h"

namespace holdfast {
namespace {

constexpr int64_t kGemma3Window = 4096, kGemma3Step = 6;
constexpr char kQueryScalar[] = "query_pre_attn_scalar";

class Gemma3 final : public LlamaLike {
 public:
  const char* name() const override { return "gemma3"; }
  const char* model_type() const override { return "gemma3_text"; }

  ModelConfig preset() const override {
    ModelConfig c = LlamaLike::preset();
    c.norm_position = NormPosition::kBoth;
    c.activation = ActivationKind::kGeglu;
    c.qk_norm = true;
    c.tie_embeddings = c.scale_embeddings = true;
    c.rope_scaling_layers = RopeScalingLayers::kFullAttention;
    return c;
  }

  Windows windows() const override { return Windows::kSomeLayers; }

  std::string Inexpressible(const ModelConfig& c) const override {
    ModelConfig of_one_base = c;
    of_one_base.window_rope_theta = 0;
    return FirstKey({{LlamaLike::Inexpressible(of_one_base)},
                     {"num_experts", c.num_experts > 0},
                     {"bias", c.bias},
                     {"mlp_bias", c.mlp_bias},
                     {"qkv_bias", c.qkv_bias},
                     {"qk_norm", !c.qk_norm},
                     {"qk_norm_joint", c.qk_norm_joint},
                     {"clip_qkv", c.clip_qkv > 0}});
  }

  // Gemma3TextConfig of 5.24 checks it, whatever head_dim is.
  std::string RefusedBecause(const ModelConfig& c) const override {
    return c.hidden_size % c.num_heads != 0 ? "model.hidden_size is not a multiple of model.num_heads" : "";
  }

  ModelConfig ReadConfig(ConfigFields& in) const override {
    ModelConfig c = ReadShared(in, "Gemma3ForCausalLM", "Gemma3TextModel",
                               {.max_position_embeddings = 131072,
                                .num_key_value_heads = 4,
                                .head_dim = 256,
                                .rope_theta = 1e6,
                                .window_rope_theta = 10000,
                                .rope_of_layer_types = true,
                                .tie_word_embeddings = true});
    c.attention_bias = in.Bool("attention_bias", false);
    ReadStepWindow(in, kGemma3Window, in.Size("sliding_window_pattern", kGemma3Step), &c);
    if (c.sliding_window == 0 || c.window_rope_theta == c.rope_theta) c.window_rope_theta = 0;
    if (in.Positive(kQueryScalar, 256) != static_cast<double>(c.head_dim)) {
      in.Unsupported(kQueryScalar, absl::StrCat(": attention divides by sqrt(head_dim), and head_dim is ", c.head_dim,
                                                in.Has(kQueryScalar) ? "" : ", which a file without it does not mean"));
    }
    for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) in.Only(key, {});
    in.Only("use_bidirectional_attention", {false});
    in.Ignore({"cache_implementation"});
    return c;
  }

  nlohmann::ordered_json WriteConfig(const ModelConfig& c) const override {
    nlohmann::ordered_json object = WriteShared(c, "Gemma3ForCausalLM");
    const double window_theta = c.window_rope_theta > 0 ? c.window_rope_theta : c.rope_theta;
    object["rope_parameters"] = {{"full_attention", object["rope_parameters"]},
                                 {"sliding_attention", {{"rope_theta", window_theta}, {"rope_type", "default"}}}};
    object["rope_local_base_freq"] = window_theta;  // where transformers before 5 look
    object["attention_bias"] = c.attention_bias;
    object[kQueryScalar] = c.head_dim;
    object["sliding_window"] = c.sliding_window > 0 ? c.sliding_window : kGemma3Window;  // it has to have one
    object["layer_types"] = LayerTypes(c);
    // Where transformers looks that knows no layer_types.
    const int64_t step = c.full_attention_step > 0 ? c.full_attention_step : c.num_layers + 1;
    if (c.sliding_window == 0 || c.first_window_layer == 1) {
      object["sliding_window_pattern"] = c.sliding_window > 0 ? step : 1;
    }
    return object;
  }

  TensorNames Names(const ModelConfig& c) const override {
    TensorNames names = LlamaLike::Names(c);
    names.rules.push_back({"blocks.#.norm1_after", {{"layers.#.post_attention_layernorm"}}});
    names.rules.push_back({"blocks.#.norm2_after", {{"layers.#.post_feedforward_layernorm"}}});
    for (TensorRule& rule : names.rules) {
      if (rule.ours == "blocks.#.norm2") rule.theirs = {{"layers.#.pre_feedforward_layernorm"}};
      if (absl::StrContains(rule.ours, "norm")) rule.subtracted = 1;
    }
    return names;
  }
};

}  // namespace

const Family& Gemma3Family() {
  static const Gemma3 family;
  return family;
}

}  // namespace holdfast
