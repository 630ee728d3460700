// Qwen3 with experts (Yang et al. 2025): Qwen3MoeForCausalLM.

#include "models/families/families.h"
#include "models/families/mixture_config.h"

namespace holdfast {
namespace {

class Qwen3Moe final : public MixtureLike {
 public:
  const char* name() const override { return "qwen3_moe"; }

  ModelConfig preset() const override {
    ModelConfig c = LlamaLike::preset();
    c.qk_norm = true;
    c.num_experts = 128;
    c.experts_per_token = 8;
    return c;
  }

  Windows windows() const override { return Windows::kAllLayers; }

  std::string Inexpressible(const ModelConfig& c) const override {
    return FirstKey({{MixtureLike::Inexpressible(c)},
                     {"bias", c.bias},
                     {"qkv_bias", c.qkv_bias},
                     {"qk_norm", !c.qk_norm},
                     {"qk_norm_joint", c.qk_norm_joint},
                     {"shared_expert_intermediate_size", c.shared_expert_intermediate_size > 0},
                     {"clip_qkv", c.clip_qkv > 0}});
  }

  ModelConfig ReadConfig(ConfigFields& in) const override {
    ModelConfig c = ReadShared(in, "Qwen3MoeForCausalLM", "Qwen3MoeModel",
                               {.max_position_embeddings = 32768, .num_key_value_heads = 4});
    ReadExperts(in, {.num_experts = 128, .num_experts_per_tok = 8, .moe_intermediate_size = 768}, &c);
    ReadExpertLayers(in, &c);
    c.router_normalize = in.Bool("norm_topk_prob", false);
    c.attention_bias = in.Bool("attention_bias", false);
    in.Ignore({"max_window_layers"});  // all layers have the window
    // Of Qwen3-Coder; transformers reads none of them.
    in.Only("qkv_bias", {false});
    in.Only("use_qk_norm", {true});
    in.Only("shared_expert_intermediate_size", {0});
    const int64_t window = in.Whole("sliding_window", in.IsNull("sliding_window") ? 0 : 4096);
    c.sliding_window = in.Bool("use_sliding_window", false) ? window : 0;
    return c;
  }

  nlohmann::ordered_json WriteConfig(const ModelConfig& c) const override {
    nlohmann::ordered_json object = WriteShared(c, "Qwen3MoeForCausalLM");
    WriteExperts(c, &object);
    WriteExpertLayers(c, &object);
    object["moe_intermediate_size"] = c.expert_intermediate_size;
    object["norm_topk_prob"] = c.router_normalize;
    object["attention_bias"] = c.attention_bias;
    object["use_sliding_window"] = c.sliding_window > 0;
    object["sliding_window"] = c.sliding_window > 0 ? nlohmann::ordered_json(c.sliding_window) : nullptr;
    return object;
  }
};

}  // namespace

const Family& Qwen3MoeFamily() {
  static const Qwen3Moe family;
  return family;
}

}  // namespace holdfast
