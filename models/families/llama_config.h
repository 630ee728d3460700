#pragma once
// What Llama and the families after it share: keys of config.json, tensor names, and what they cannot say.

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "models/families/family.h"

namespace holdfast {

/// What a family's class in transformers takes for keys that a file leaves out.
struct LlamaDefaults {
  int64_t max_position_embeddings = 2048;
  int64_t num_key_value_heads = 0;  // 0 = num_attention_heads
  int64_t head_dim = 0;             // 0 = hidden_size / num_attention_heads
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
  double window_rope_theta = 0;      // rope_local_base_freq; 0 = the family has no such key
  double partial_rotary_factor = 0;  // 0 = the family turns all of a head
  bool rope_of_layer_types = false;  // rope_parameters has an object for each kind of layer
  bool longrope = false;             // the family's angles are scaled by LongRoPE, not as those of others are
  bool tie_word_embeddings = false;
};

class LlamaLike : public Family {
 public:
  ModelConfig preset() const override;
  std::string Inexpressible(const ModelConfig& config) const override;
  TensorNames Names(const ModelConfig& config) const override;
  bool IsIgnorable(const ModelConfig& config, const std::string& tensor) const override;

 protected:
  /// Empty, or what of a config no file after Llama's can say.
  std::string NoLlama(const ModelConfig& config) const;
  /// Sizes, epsilon, rotary angles, tied head. Also checks that the activation is the preset's and that `architectures`
  /// holds nothing but `causal_model` and `bare_model`.
  ModelConfig ReadShared(ConfigFields& in, const char* causal_model, const char* bare_model,
                         const LlamaDefaults& defaults) const;
  /// The same keys.
  nlohmann::ordered_json WriteShared(const ModelConfig& config, const char* causal_model) const;
  /// Of a family with partial_rotary_factor.
  static void WriteTurnedPart(const ModelConfig& config, nlohmann::ordered_json* object);
};

/// layer_types, one of `known` for each layer; none if the key is missing or something else, which is then a problem.
std::optional<std::vector<std::string>> ReadLayerTypes(ConfigFields& in, int64_t num_layers,
                                                       std::initializer_list<const char*> known);

/// Gives the layers of which layer_types says "sliding_attention" the window, all others none. layer_types is
/// unsupported if no keys of a config say that (ModelConfig::WindowOf), or if there is no window to give.
void SetWindows(ConfigFields& in, const std::vector<std::string>& types, int64_t window, ModelConfig* config);
/// The windows of a family in which every layer has one but each `step`-th, where layer_types does not say which.
/// `otherwise`: the window of a file that does not say it.
void ReadStepWindow(ConfigFields& in, int64_t otherwise, int64_t step, ModelConfig* config);
/// What layer_types says of the windows of a config.
std::vector<std::string> LayerTypes(const ModelConfig& config);

/// The windows of a dense family after Qwen2, with use_sliding_window, sliding_window, max_window_layers and
/// layer_types.
void ReadQwenWindow(ConfigFields& in, ModelConfig* config);
void WriteQwenWindow(const ModelConfig& config, nlohmann::ordered_json* object);

}  // namespace holdfast
