#pragma once
// What the families with experts after Llama share: keys of the router, names of experts, which layers have them.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "models/families/llama_config.h"

namespace holdfast {

/// Keys of experts, with what a family's class in transformers takes for those that a file leaves out.
struct ExpertDefaults {
  int64_t num_experts = 0;
  int64_t num_experts_per_tok = 0;
  int64_t moe_intermediate_size = 0;  // 0 = intermediate_size says how wide an expert is
};

class MixtureLike : public LlamaLike {
 public:
  std::string Inexpressible(const ModelConfig& config) const override;
  TensorNames Names(const ModelConfig& config) const override { return NamesWith(config, "shared_expert"); }

 protected:
  /// As Qwen2-MoE has them and those after it. `shared`: what the shared expert is called.
  TensorNames NamesWith(const ModelConfig& config, const std::string& shared) const;
  /// Those of everything but experts.
  TensorNames NamesBesidesExperts(const ModelConfig& config) const { return LlamaLike::Names(config); }
  /// Number, width and choice of experts into `config`, which has the keys of ReadShared.
  void ReadExperts(ConfigFields& in, const ExpertDefaults& defaults, ModelConfig* config) const;
  void WriteExperts(const ModelConfig& config, nlohmann::ordered_json* object) const;
};

/// "first_expert_layer" or "expert_layer_step", if some layers have no experts.
std::string FirstDenseLayerKey(const ModelConfig& config);

/// decoder_sparse_step and mlp_only_layers: which layers have experts. Unsupported, naming a key, if they are not every
/// n-th from some layer on.
void ReadExpertLayers(ConfigFields& in, ModelConfig* config);
void WriteExpertLayers(const ModelConfig& config, nlohmann::ordered_json* object);

}  // namespace holdfast
