// Mixtral (Jiang et al. 2024): MixtralForCausalLM, Mistral with experts in every layer.

#include "models/families/families.h"
#include "models/families/mixture_config.h"

namespace holdfast {
namespace {

class Mixtral final : public MixtureLike {
 public:
  const char* name() const override { return "mixtral"; }

  ModelConfig preset() const override {
    ModelConfig c = LlamaLike::preset();
    c.num_experts = 8;
    c.experts_per_token = 2;
    return c;
  }

  Windows windows() const override { return Windows::kAllLayers; }

  std::string Inexpressible(const ModelConfig& c) const override {
    return FirstKey({{MixtureLike::Inexpressible(c)},
                     {"bias", c.bias},
                     {"attention_bias", c.attention_bias},
                     {"qkv_bias", c.qkv_bias},
                     {"qk_norm", c.qk_norm},
                     {FirstDenseLayerKey(c)},
                     {"router_normalize", !c.router_normalize},
                     {"shared_expert_intermediate_size", c.shared_expert_intermediate_size > 0},
                     {"clip_qkv", c.clip_qkv > 0}});
  }

  ModelConfig ReadConfig(ConfigFields& in) const override {
    ModelConfig c = ReadShared(
        in, "MixtralForCausalLM", "MixtralModel",
        {.max_position_embeddings = 4096 * 32, .num_key_value_heads = 8, .rms_norm_eps = 1e-5, .rope_theta = 1e6});
    ReadExperts(in, {.num_experts = 8, .num_experts_per_tok = 2}, &c);
    c.router_jitter = in.NotNegative("router_jitter_noise", 0);
    c.sliding_window = in.Whole("sliding_window", 0);
    return c;
  }

  nlohmann::ordered_json WriteConfig(const ModelConfig& c) const override {
    nlohmann::ordered_json object = WriteShared(c, "MixtralForCausalLM");
    object["intermediate_size"] = c.expert_intermediate_size;
    WriteExperts(c, &object);
    object["router_jitter_noise"] = c.router_jitter;
    object["sliding_window"] = c.sliding_window > 0 ? nlohmann::ordered_json(c.sliding_window) : nullptr;
    return object;
  }

  TensorNames Names(const ModelConfig& c) const override {
    TensorNames names = NamesBesidesExperts(c);
    const std::string block = "layers.#.block_sparse_moe.", stacked = "layers.#.mlp.experts.";
    const int64_t width = c.expert_intermediate_size;
    names.rules.insert(names.rules.end(),
                       {{.ours = "blocks.#.experts.router", .theirs = {{block + "gate", 0, "layers.#.mlp.gate"}}},
                        {.ours = "blocks.#.experts.#.gate_up",
                         .theirs = {{block + "experts.#.w1", width}, {block + "experts.#.w3", width}},
                         .stacked = stacked + "gate_up_proj",
                         .stack = c.num_experts},
                        {.ours = "blocks.#.experts.#.down",
                         .theirs = {{block + "experts.#.w2"}},
                         .stacked = stacked + "down_proj",
                         .stack = c.num_experts}});
    return names;
  }
};

}  // namespace

const Family& MixtralFamily() {
  static const Mixtral family;
  return family;
}

}  // namespace holdfast
