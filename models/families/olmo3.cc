// OLMo 3 (Ai2 2025): Olmo3ForCausalLM, OLMo 2 with a window in most layers. Rotary angles are scaled in the others
// alone.

#include <string>
#include <vector>

#include "models/families/families.h"
#include "models/families/llama_config.h"

namespace holdfast {
namespace {

constexpr int64_t kOlmo3Window = 4096;
constexpr double kOlmo3Theta = 500000;

class Olmo3 final : public LlamaLike {
 public:
  const char* name() const override { return "olmo3"; }

  ModelConfig preset() const override {
    ModelConfig c = Olmo2Family().preset();
    c.family = name();
    c.rope_scaling_layers = RopeScalingLayers::kFullAttention;
    return c;
  }

  Windows windows() const override { return Windows::kSomeLayers; }

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
    ModelConfig c = ReadShared(in, "Olmo3ForCausalLM", "Olmo3Model",
                               {.rms_norm_eps = 1e-5, .rope_theta = kOlmo3Theta, .rope_of_layer_types = true});
    c.attention_bias = in.Bool("attention_bias", false);
    ReadStepWindow(in, kOlmo3Window, 4, &c);
    // transformers 5 then has its own base in layers with a window, transformers 4 this one.
    if (c.sliding_window > 0 && c.rope_theta != kOlmo3Theta && !in.Has("rope_parameters")) {
      in.Unsupported("rope_theta", " without rope_parameters, which say the base of every kind of layer");
    }
    return c;
  }

  nlohmann::ordered_json WriteConfig(const ModelConfig& c) const override {
    nlohmann::ordered_json object = WriteShared(c, "Olmo3ForCausalLM");
    object["rope_parameters"] = {{"full_attention", object["rope_parameters"]},
                                 {"sliding_attention", {{"rope_theta", c.rope_theta}, {"rope_type", "default"}}}};
    object["attention_bias"] = c.attention_bias;
    object["sliding_window"] = c.sliding_window > 0 ? c.sliding_window : kOlmo3Window;  // it has to have one
    object["layer_types"] = LayerTypes(c);
    return object;
  }
};

}  // namespace

const Family& Olmo3Family() {
  static const Olmo3 family;
  return family;
}

}  // namespace holdfast
