// Qwen1.5-MoE and Qwen2-MoE (Yang et al. 2024): Qwen2MoeForCausalLM, Qwen2 with experts and a gated shared one.

#include "models/families/families.h"
#include "models/families/mixture_config.h"

namespace holdfast {
namespace {

class Qwen2Moe final : public MixtureLike {
 public:
  const char* name() const override { return "qwen2_moe"; }

  ModelConfig preset() const override {
    ModelConfig c = LlamaLike::preset();
    c.qkv_bias = true;
    c.num_experts = 60;
    c.experts_per_token = 4;
    c.router_normalize = false;
    c.shared_expert_gate = true;
    return c;
  }

  Windows windows() const override { return Windows::kNone; }

  std::string Inexpressible(const ModelConfig& c) const override {
    return FirstKey({{MixtureLike::Inexpressible(c)},
                     {"bias", c.bias},
                     {"attention_bias", c.attention_bias},
                     {"qk_norm", c.qk_norm},
                     {"shared_expert_intermediate_size", c.shared_expert_intermediate_size == 0},
                     {"shared_expert_gate", !c.shared_expert_gate},
                     {"clip_qkv", c.clip_qkv > 0}});
  }

  ModelConfig ReadConfig(ConfigFields& in) const override {
    ModelConfig c = ReadShared(in, "Qwen2MoeForCausalLM", "Qwen2MoeModel",
                               {.max_position_embeddings = 32768, .num_key_value_heads = 16});
    ReadExperts(in, {.num_experts = 60, .num_experts_per_tok = 4, .moe_intermediate_size = 1408}, &c);
    ReadExpertLayers(in, &c);
    c.router_normalize = in.Bool("norm_topk_prob", false);
    c.shared_expert_intermediate_size = in.Size("shared_expert_intermediate_size", 5632);
    c.qkv_bias = in.Bool("qkv_bias", true);
    // Versions of transformers differ in which layers slide.
    in.Only("use_sliding_window", {false});
    in.Ignore({"sliding_window", "max_window_layers"});
    ReadLayerTypes(in, c.num_layers, {"full_attention"});
    return c;
  }

  nlohmann::ordered_json WriteConfig(const ModelConfig& c) const override {
    nlohmann::ordered_json object = WriteShared(c, "Qwen2MoeForCausalLM");
    WriteExperts(c, &object);
    WriteExpertLayers(c, &object);
    object["moe_intermediate_size"] = c.expert_intermediate_size;
    object["norm_topk_prob"] = c.router_normalize;
    object["shared_expert_intermediate_size"] = c.shared_expert_intermediate_size;
    object["qkv_bias"] = c.qkv_bias;
    object["use_sliding_window"] = false;
    return object;
  }
};

}  // namespace

const Family& Qwen2MoeFamily() {
  static const Qwen2Moe family;
  return family;
}

}  // namespace holdfast
