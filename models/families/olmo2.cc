// OLMo 2 (OLMo Team 2024, arXiv 2501.00656): Olmo2ForCausalLM, Llama with norms at the end of branches and norms of
// query and key over all heads.

#include "models/families/families.h"
#include "models/families/llama_config.h"

namespace holdfast {
namespace {

class Olmo2 final : public LlamaLike {
 public:
  const char* name() const override { return "olmo2"; }

  ModelConfig preset() const override {
    ModelConfig c = LlamaLike::preset();
    c.norm_position = NormPosition::kAfter;
    c.qk_norm = c.qk_norm_joint = true;
    return c;
  }

  Windows windows() const override { return Windows::kNone; }

  std::string Inexpressible(const ModelConfig& c) const override {
    return FirstKey({{LlamaLike::Inexpressible(c)},
                     {"num_experts", c.num_experts > 0},
                     {"bias", c.bias},
                     {"mlp_bias", c.mlp_bias},
                     {"qkv_bias", c.qkv_bias},
                     {"qk_norm", !c.qk_norm},
                     {"qk_norm_joint", !c.qk_norm_joint},
                     {"clip_qkv", c.clip_qkv > 0}});
  }

  ModelConfig ReadConfig(ConfigFields& in) const override {
    ModelConfig c = ReadShared(in, "Olmo2ForCausalLM", "Olmo2Model", {.rms_norm_eps = 1e-5});
    c.attention_bias = in.Bool("attention_bias", false);
    return c;
  }

  nlohmann::ordered_json WriteConfig(const ModelConfig& c) const override {
    nlohmann::ordered_json object = WriteShared(c, "Olmo2ForCausalLM");
    object["attention_bias"] = c.attention_bias;
    return object;
  }
};

}  // namespace

const Family& Olmo2Family() {
  static const Olmo2 family;
  return family;
}

}  // namespace holdfast
