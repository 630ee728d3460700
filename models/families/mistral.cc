// Mistral (Jiang et al. 2023): MistralForCausalLM, Llama with a window.

#include "models/families/families.h"
#include "models/families/llama_config.h"

namespace holdfast {
namespace {

class Mistral final : public LlamaLike {
 public:
  const char* name() const override { return "mistral"; }

  const Family* with_experts() const override { return &MixtralFamily(); }

  Windows windows() const override { return Windows::kAllLayers; }

  std::string Inexpressible(const ModelConfig& c) const override {
    return FirstKey({{LlamaLike::Inexpressible(c)},
                     {"num_experts", c.num_experts > 0},
                     {"bias", c.bias},
                     {"attention_bias", c.attention_bias},
                     {"mlp_bias", c.mlp_bias},
                     {"qkv_bias", c.qkv_bias},
                     {"qk_norm", c.qk_norm},
                     {"clip_qkv", c.clip_qkv > 0}});
  }

  ModelConfig ReadConfig(ConfigFields& in) const override {
    ModelConfig c = ReadShared(in, "MistralForCausalLM", "MistralModel",
                               {.max_position_embeddings = 4096 * 32, .num_key_value_heads = 8});
    // A file that says nothing means 4096, null means none.
    c.sliding_window = in.Whole("sliding_window", in.IsNull("sliding_window") ? 0 : 4096);
    return c;
  }

  nlohmann::ordered_json WriteConfig(const ModelConfig& c) const override {
    nlohmann::ordered_json object = WriteShared(c, "MistralForCausalLM");
    object["sliding_window"] = c.sliding_window > 0 ? nlohmann::ordered_json(c.sliding_window) : nullptr;
    return object;
  }
};

}  // namespace

const Family& MistralFamily() {
  static const Mistral family;
  return family;
}

}  // namespace holdfast
