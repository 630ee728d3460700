// Phi-3, Phi-3.5 and Phi-4 (Abdin et al. 2024, arXiv 2404.14219): Phi3ForCausalLM, Llama whose files have query, key
// and value in one tensor, and gate and up. A part of each head may be turned.

#include "models/families/families.h"
#include "models/families/llama_config.h"

namespace holdfast {
namespace {

class Phi3 final : public LlamaLike {
 public:
  const char* name() const override { return "phi3"; }

  Windows windows() const override { return Windows::kAllLayers; }

  std::string Inexpressible(const ModelConfig& c) const override {
    const bool is_scaled = c.rope_scaling != RopeScaling::kNone;
    return FirstKey({{NoLlama(c)},
                     {"rope_scaling", is_scaled && c.rope_scaling != RopeScaling::kLongRope},
                     {"num_experts", c.num_experts > 0},
                     {"bias", c.bias},
                     {"attention_bias", c.attention_bias},
                     {"mlp_bias", c.mlp_bias},
                     {"qkv_bias", c.qkv_bias},
                     {"qk_norm", c.qk_norm},
                     {"clip_qkv", c.clip_qkv > 0}});
  }

  // Phi3Config of 5.24 counts frequencies so.
  std::string RefusedBecause(const ModelConfig& c) const override {
    const bool other_heads = c.rope_scaling == RopeScaling::kLongRope && c.head_dim != c.hidden_size / c.num_heads;
    return other_heads ? "model.rope_scaling is longrope, and model.head_dim not model.hidden_size / model.num_heads"
                       : "";
  }

  ModelConfig ReadConfig(ConfigFields& in) const override {
    ModelConfig c = ReadShared(
        in, "Phi3ForCausalLM", "Phi3Model",
        {.max_position_embeddings = 4096, .rms_norm_eps = 1e-5, .partial_rotary_factor = 1, .longrope = true});
    c.sliding_window = in.Whole("sliding_window", 0);
    // Dropout belongs to a run. The published files name the code that transformers took before it had this model.
    in.Ignore({"resid_pdrop", "embd_pdrop", "auto_map"});
    for (const char* key : {"attention_bias", "mlp_bias", "lm_head_bias"}) in.Only(key, {false});  // of that code
    for (const char* key : {"full_attn_mod", "interpolate_factor"}) in.Only(key, {1});
    return c;
  }

  nlohmann::ordered_json WriteConfig(const ModelConfig& c) const override {
    nlohmann::ordered_json object = WriteShared(c, "Phi3ForCausalLM");
    WriteTurnedPart(c, &object);
    object["resid_pdrop"] = c.dropout;
    object["embd_pdrop"] = c.dropout;
    object["sliding_window"] = c.sliding_window > 0 ? nlohmann::ordered_json(c.sliding_window) : nullptr;
    return object;
  }

  TensorNames Names(const ModelConfig& c) const override {
    TensorNames names = LlamaLike::Names(c);
    for (TensorRule& rule : names.rules) {
      if (rule.ours == "blocks.#.attention.qkv") rule.theirs = {{"layers.#.self_attn.qkv_proj"}};
      if (rule.ours == "blocks.#.mlp.gate_up") rule.theirs = {{"layers.#.mlp.gate_up_proj"}};
    }
    return names;
  }
};

}  // namespace

const Family& Phi3Family() {
  static const Phi3 family;
  return family;
}

}  // namespace holdfast
