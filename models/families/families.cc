#include "models/families/families.h"

#include <array>
#include <vector>

#include "framework/base/status.h"
#include "models/plan.h"

namespace holdfast {

double Family::FlopsPerToken(const ModelConfig& config, int64_t sequence) const {
  return FlopsPerTokenOf(config, sequence);
}

absl::Span<const Family* const> Families() {
  static const std::array<const Family*, 13> families = {
      &Gpt2Family(),    &LlamaFamily(),   &MistralFamily(),  &Phi3Family(),     &Qwen2Family(),
      &Qwen3Family(),   &MixtralFamily(), &Qwen2MoeFamily(), &Qwen3MoeFamily(), &OlmoeFamily(),
      &Glm4MoeFamily(), &Olmo2Family(),   &Olmo3Family()};
  return families;
}

const Family* FindFamily(std::string_view name) {
  for (const Family* family : Families()) {
    if (name == family->name()) return family;
  }
  return nullptr;
}

const Family* ExactFamily(const ModelConfig& config) {
  const Family* family = FindFamily(config.family);
  return family != nullptr && family->Inexpressible(config).empty() ? family : nullptr;
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
