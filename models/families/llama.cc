// Llama 1 to 3.3 (Touvron et al. 2023, Grattafiori et al. 2024): LlamaForCausalLM.

#include "models/families/families.h"
#include "models/families/llama_config.h"

namespace holdfast {
namespace {

class Llama final : public LlamaLike {
 public:
  const char* name() const override { return "llama"; }

  const Family* with_experts() const override { return &MixtralFamily(); }

  Windows windows() const override { return Windows::kNone; }

  std::string Inexpressible(const ModelConfig& c) const override {
    return FirstKey({{LlamaLike::Inexpressible(c)},
                     {"num_experts", c.num_experts > 0},
                     {"qkv_bias", c.qkv_bias && !c.bias},
                     {"qk_norm", c.qk_norm},
                     {"clip_qkv", c.clip_qkv > 0}});
  }

  // LlamaConfig of 5.24 checks both, whatever head_dim is; those of other families check neither.
  std::string RefusedBecause(const ModelConfig& c) const override {
    if (c.hidden_size % c.num_heads != 0) return "model.hidden_size is not a multiple of model.num_heads";
    return c.init_std > 1 ? "model.init_std is above 1" : "";
  }

  ModelConfig ReadConfig(ConfigFields& in) const override {
    ModelConfig c = ReadShared(in, "LlamaForCausalLM", "LlamaModel", {});
    in.Ignore({"pretraining_tp"});  // cuts products into parts with the same sum
    // Of files that were not made of a LlamaConfig; max_position_embeddings is what transformers reads. Rotary angles
    // turn pairs of halves, not of neighbours.
    in.Ignore({"max_sequence_length", "is_llama_config"});
    in.Only("rope_interleaved", {false});
    const bool attention = in.Bool("attention_bias", false), mlp = in.Bool("mlp_bias", false);
    c.bias = attention && mlp;
    c.attention_bias = attention && !mlp;
    c.mlp_bias = mlp && !attention;
    // Of descendants that say they are Llamas: here every query sees all keys before it.
    in.Ignore({"max_window_layers"});
    in.Only("use_sliding_window", {false});
    if (in.Bool("use_sliding_window", true)) in.Only("sliding_window", {0});
    in.Ignore({"sliding_window"});
    ReadLayerTypes(in, c.num_layers, {"full_attention"});
    return c;
  }

  nlohmann::ordered_json WriteConfig(const ModelConfig& c) const override {
    nlohmann::ordered_json object = WriteShared(c, "LlamaForCausalLM");
    object["attention_bias"] = c.HasAttentionOutBias();
    object["mlp_bias"] = c.HasMlpBias();
    return object;
  }
};

}  // namespace

const Family& LlamaFamily() {
  static const Llama family;
  return family;
}

}  // namespace holdfast
