// Qwen3, dense (Yang et al. 2025): Qwen3ForCausalLM, Llama with norms of query and key.

#include "models/families/families.h"
#include "models/families/llama_config.h"

namespace holdfast {
namespace {

class Qwen3 final : public LlamaLike {
 public:
  const char* name() const override { return "qwen3"; }

  ModelConfig preset() const override {
    ModelConfig c = LlamaLike::preset();
    c.qk_norm = true;
    return c;
  }

  const Family* with_experts() const override { return &Qwen3MoeFamily(); }

  Windows windows() const override { return Windows::kSomeLayers; }

  std::string Inexpressible(const ModelConfig& c) const override {
    return FirstKey({{LlamaLike::Inexpressible(c)},
                     {"num_experts", c.num_experts > 0},
                     {"bias", c.bias},
                     {"mlp_bias", c.mlp_bias},
                     {"qkv_bias", c.qkv_bias},
                     {"qk_norm", !c.qk_norm},
                     {"qk_norm_joint", c.qk_norm_joint},
                     {"clip_qkv", c.clip_qkv > 0}});
  }

  ModelConfig ReadConfig(ConfigFields& in) const override {
    ModelConfig c = ReadShared(in, "Qwen3ForCausalLM", "Qwen3Model",
                               {.max_position_embeddings = 32768, .num_key_value_heads = 32, .head_dim = 128});
    c.attention_bias = in.Bool("attention_bias", false);
    ReadQwenWindow(in, &c);
    return c;
  }

  nlohmann::ordered_json WriteConfig(const ModelConfig& c) const override {
    nlohmann::ordered_json object = WriteShared(c, "Qwen3ForCausalLM");
    object["attention_bias"] = c.attention_bias;
    WriteQwenWindow(c, &object);
    return object;
  }
};

}  // namespace

const Family& Qwen3Family() {
  static const Qwen3 family;
  return family;
}

}  // namespace holdfast
