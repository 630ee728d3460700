// OLMoE (Muennighoff et al. 2024): OlmoeForCausalLM, Llama with experts in every layer and norms of query and key over
// all heads.

#include "models/families/families.h"
#include "models/families/mixture_config.h"

namespace holdfast {
namespace {

class Olmoe final : public MixtureLike {
 public:
  const char* name() const override { return "olmoe"; }

  ModelConfig preset() const override {
    ModelConfig c = LlamaLike::preset();
    c.qk_norm = c.qk_norm_joint = true;
    c.num_experts = 64;
    c.experts_per_token = 8;
    c.router_normalize = false;
    return c;
  }

  Windows windows() const override { return Windows::kNone; }

  std::string Inexpressible(const ModelConfig& c) const override {
    return FirstKey({{MixtureLike::Inexpressible(c)},
                     {"bias", c.bias},
                     {"qkv_bias", c.qkv_bias},
                     {"qk_norm_joint", !c.qk_norm_joint},
                     {"head_dim", c.num_heads * c.head_dim != c.hidden_size},
                     {FirstDenseLayerKey(c)},
                     {"shared_expert_intermediate_size", c.shared_expert_intermediate_size > 0}});
  }

  ModelConfig ReadConfig(ConfigFields& in) const override {
    ModelConfig c =
        ReadShared(in, "OlmoeForCausalLM", "OlmoeModel", {.max_position_embeddings = 4096, .rms_norm_eps = 1e-5});
    if (c.num_heads * c.head_dim != c.hidden_size) in.Invalid("hidden_size", "is not num_attention_heads * head_dim");
    ReadExperts(in, {.num_experts = 64, .num_experts_per_tok = 8}, &c);
    c.router_normalize = in.Bool("norm_topk_prob", false);
    c.attention_bias = in.Bool("attention_bias", false);
    c.clip_qkv = in.Positive("clip_qkv", 0);  // null: none
    return c;
  }

  nlohmann::ordered_json WriteConfig(const ModelConfig& c) const override {
    nlohmann::ordered_json object = WriteShared(c, "OlmoeForCausalLM");
    object["intermediate_size"] = c.expert_intermediate_size;
    WriteExperts(c, &object);
    object["norm_topk_prob"] = c.router_normalize;
    object["attention_bias"] = c.attention_bias;
    object["clip_qkv"] = c.clip_qkv > 0 ? nlohmann::ordered_json(c.clip_qkv) : nullptr;
    return object;
  }
};

}  // namespace

const Family& OlmoeFamily() {
  static const Olmoe family;
  return family;
}

}  // namespace holdfast
