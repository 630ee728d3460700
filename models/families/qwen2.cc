// Qwen2 and Qwen2.5 (Yang et al. 2024): Qwen2ForCausalLM, Llama with biases on query, key and value.

#include "models/families/families.h"
#include "models/families/llama_config.h"

namespace holdfast {
namespace {

class Qwen2 final : public LlamaLike {
 public:
  const char* name() const override { return "qwen2"; }

  ModelConfig preset() const override {
    ModelConfig c = LlamaLike::preset();
    c.qkv_bias = true;
    return c;
  }

  const Family* with_experts() const override { return &Qwen2MoeFamily(); }

  Windows windows() const override { return Windows::kSomeLayers; }

  std::string Inexpressible(const ModelConfig& c) const override {
    return FirstKey({{LlamaLike::Inexpressible(c)},
                     {"num_experts", c.num_experts > 0},
                     {"bias", c.bias},
                     {"attention_bias", c.attention_bias},
                     {"mlp_bias", c.mlp_bias},
                     {"qkv_bias", !c.qkv_bias},
                     {"qk_norm", c.qk_norm},
                     {"clip_qkv", c.clip_qkv > 0}});
  }

  ModelConfig ReadConfig(ConfigFields& in) const override {
    ModelConfig c =
        ReadShared(in, "Qwen2ForCausalLM", "Qwen2Model", {.max_position_embeddings = 32768, .num_key_value_heads = 32});
    in.Only("use_mrope", {false});               // positions in three dimensions, of models that see pictures
    in.Ignore({"dual_chunk_attention_config"});  // of attention over a million tokens, which transformers has not
    ReadQwenWindow(in, &c);
    return c;
  }

  nlohmann::ordered_json WriteConfig(const ModelConfig& c) const override {
    nlohmann::ordered_json object = WriteShared(c, "Qwen2ForCausalLM");
    WriteQwenWindow(c, &object);
    return object;
  }
};

}  // namespace

const Family& Qwen2Family() {
  static const Qwen2 family;
  return family;
}

}  // namespace holdfast
