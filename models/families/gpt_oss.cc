// gpt-oss (OpenAI 2025, arXiv 2508.10925): GptOssForCausalLM. Attention has sinks and, in every second layer, a window;
// routers and experts have biases, gates of experts a limit. Files hold the experts of a layer in joined tensors, the
// published ones in MXFP4.

#include <string>

#include "absl/strings/str_cat.h"
#include "models/families/families.h"
#include "models/families/mixture_config.h"

namespace holdfast {
namespace {

constexpr int64_t kGptOssWindow = 128;
constexpr char kQuantization[] = "quantization_config";

class GptOss final : public MixtureLike {
 public:
  const char* name() const override { return "gpt_oss"; }

  ModelConfig preset() const override {
    ModelConfig c = LlamaLike::preset();
    c.attention_bias = true;
    c.attention_sinks = true;
    c.num_experts = 128;
    c.experts_per_token = 4;
    c.expert_bias = true;
    c.swiglu_limit = 7;
    return c;
  }

  Windows windows() const override { return Windows::kSomeLayers; }
  bool says_sinks_and_expert_biases() const override { return true; }

  std::string Inexpressible(const ModelConfig& c) const override {
    return FirstKey({{MixtureLike::Inexpressible(c)},
                     {"bias", c.bias},
                     {"qkv_bias", c.qkv_bias},
                     {"qk_norm", c.qk_norm},
                     {"clip_qkv", c.clip_qkv > 0},
                     {"attention_sinks", !c.attention_sinks},
                     {"expert_bias", !c.expert_bias},
                     {"swiglu_limit", c.swiglu_limit == 0},
                     {FirstDenseLayerKey(c)},
                     {"router_normalize", !c.router_normalize},
                     {"shared_expert_intermediate_size", c.shared_expert_intermediate_size > 0}});
  }

  ModelConfig ReadConfig(ConfigFields& in) const override {
    ModelConfig c = ReadShared(in, "GptOssForCausalLM", "GptOssModel",
                               {.max_position_embeddings = 131072,
                                .num_key_value_heads = 8,
                                .head_dim = 64,
                                .rms_norm_eps = 1e-5,
                                .rope_theta = 150000});
    ReadUnsaidScaling(in, &c);
    // Routers take the softmax of the logits that they chose, which are those of all, renormalised.
    ReadExperts(in, {.num_experts = 128, .num_experts_per_tok = 4}, &c);
    const int64_t chosen = in.Size("experts_per_token", c.experts_per_token);  // of published files, which have both
    if (chosen != c.experts_per_token) {
      in.Invalid("experts_per_token",
                 absl::StrCat("is ", chosen, ", but num_experts_per_tok is ", c.experts_per_token));
    }
    c.swiglu_limit = in.Positive("swiglu_limit", 7);
    in.Only("swiglu_alpha", {1.702});
    c.attention_bias = in.Bool("attention_bias", true);
    ReadStepWindow(in, kGptOssWindow, 2, &c);
    // Which tensors are in MXFP4 their names say. What else there is ConfigFields::CheckGeneric refuses.
    const bool is_object = in.Has(kQuantization) && in[kQuantization].is_object();
    if (is_object && in[kQuantization].value("quant_method", nlohmann::json()) == "mxfp4") in.Ignore({kQuantization});
    return c;
  }

  nlohmann::ordered_json WriteConfig(const ModelConfig& c) const override {
    nlohmann::ordered_json object = WriteShared(c, "GptOssForCausalLM");
    object["intermediate_size"] = c.expert_intermediate_size;
    if (c.rope_scaling == RopeScaling::kNone) object["rope_scaling"] = nullptr;  // else transformers 4 has YaRN
    WriteExperts(c, &object);
    object["swiglu_limit"] = c.swiglu_limit;
    object["attention_bias"] = c.attention_bias;
    object["sliding_window"] = c.sliding_window > 0 ? c.sliding_window : kGptOssWindow;  // it has to have one
    object["layer_types"] = LayerTypes(c);
    return object;
  }

  TensorNames Names(const ModelConfig& c) const override {
    TensorNames names = NamesBesidesExperts(c);
    const std::string mlp = "layers.#.mlp.", gate_up = mlp + "experts.gate_up_proj";
    const int64_t width = c.expert_intermediate_size;
    names.rules.insert(names.rules.end(), {{.ours = "blocks.#.attention", .theirs = {{"layers.#.self_attn"}}},
                                           {.ours = "blocks.#.experts.router", .theirs = {{mlp + "router"}}},
                                           {.ours = "blocks.#.experts.#.gate_up",
                                            .theirs = {{gate_up, width}, {gate_up, width}},
                                            .stack = c.num_experts,
                                            .joined = true},
                                           {.ours = "blocks.#.experts.#.down",
                                            .theirs = {{mlp + "experts.down_proj"}},
                                            .stack = c.num_experts,
                                            .joined = true}});
    return names;
  }

 private:
  /// Of files that say nothing of it, transformers has that of the published models; of null, version 4 has none.
  static void ReadUnsaidScaling(ConfigFields& in, ModelConfig* c) {
    if (!in.Has("rope_parameters") && !in.Has("rope_scaling")) {
      if (in.IsNull("rope_scaling")) in.Unsupported("rope_scaling", " without rope_parameters");
      c->rope_scaling = RopeScaling::kYarn;
      c->rope_factor = 32;
      c->rope_original_length = 4096;
      c->rope_truncate = false;
    }
    const int64_t length = in.Size("initial_context_length", c->rope_original_length);
    if (c->rope_scaling != RopeScaling::kYarn || length == c->rope_original_length) return;
    in.Invalid("initial_context_length",
               absl::StrCat("is ", length, ", but original_max_position_embeddings is ", c->rope_original_length));
  }
};

}  // namespace

const Family& GptOssFamily() {
  static const GptOss family;
  return family;
}

}  // namespace holdfast
