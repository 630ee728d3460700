#include "models/families/families.h"

#include <array>
#include <vector>

#include "framework/base/status.h"
#include "models/plan.h"

namespace holdfast {
namespace {

/// Empty, or the key by which another layer has the window than files of a family can say.
std::string WindowKey(Windows windows, const ModelConfig& c) {
  if (c.sliding_window == 0 || windows == Windows::kSomeLayers) return "";
  if (windows == Windows::kNone) return "sliding_window";
  return FirstKey({{"first_window_layer", c.first_window_layer > 1},
                   {"full_attention_step", c.full_attention_step > 0 && c.full_attention_step <= c.num_layers}});
}

/// Empty, or the key that only files of gpt-oss can say.
std::string GptOssKey(bool says, const ModelConfig& c) {
  if (says) return "";
  return FirstKey(
      {{"attention_sinks", c.attention_sinks}, {"expert_bias", c.expert_bias}, {"swiglu_limit", c.swiglu_limit > 0}});
}

}  // namespace

std::string Family::InexpressibleKey(const ModelConfig& config) const {
  return FirstKey(
      {{Inexpressible(config)}, {WindowKey(windows(), config)}, {GptOssKey(says_sinks_and_expert_biases(), config)}});
}

double Family::FlopsPerToken(const ModelConfig& config, int64_t sequence) const {
  return FlopsPerTokenOf(config, sequence);
}

absl::Span<const Family* const> Families() {
  static const std::array<const Family*, 15> families = {
      &Gpt2Family(),    &LlamaFamily(),   &MistralFamily(),  &Phi3Family(),     &Qwen2Family(),
      &Qwen3Family(),   &MixtralFamily(), &Qwen2MoeFamily(), &Qwen3MoeFamily(), &OlmoeFamily(),
      &Glm4MoeFamily(), &Olmo2Family(),   &Olmo3Family(),    &Gemma3Family(),   &GptOssFamily()};
  return families;
}

const Family* FindFamily(std::string_view name) {
  for (const Family* family : Families()) {
    if (name == family->name()) return family;
  }
  return nullptr;
}

const Family* FindFamilyOfType(std::string_view model_type) {
  for (const Family* family : Families()) {
    if (model_type == family->model_type()) return family;
  }
  return nullptr;
}

const Family* ExactFamily(const ModelConfig& config) {
  const Family* family = FindFamily(config.family);
  return family != nullptr && family->InexpressibleKey(config).empty() ? family : nullptr;
}

absl::Span<const FamilyPreset> FamilyPresets() {
  static const auto* const presets = [] {
    auto* made = new std::vector<FamilyPreset>();  // never destroyed, as threads may outlive main
    for (const Family* family : Families()) made->push_back({family->name(), family->preset()});
    return made;
  }();
  return *presets;
}

double ModelFlopsPerToken(const ModelConfig& config, int64_t sequence) {
  const Family* family = FindFamily(config.family);
  HOLDFAST_CHECK(family != nullptr);  // LoadConfig takes no other
  return family->FlopsPerToken(config, sequence);
}

}  // namespace holdfast
