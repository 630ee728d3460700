#pragma once
// The list of families. A new one is declared here and listed in families.cc.

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "framework/config/load.h"
#include "models/families/family.h"

namespace holdfast {

const Family& Gpt2Family();
const Family& LlamaFamily();
const Family& MistralFamily();
const Family& Phi3Family();
const Family& Qwen2Family();
const Family& Qwen3Family();
const Family& MixtralFamily();
const Family& Qwen2MoeFamily();
const Family& Qwen3MoeFamily();
const Family& OlmoeFamily();
const Family& Olmo2Family();
const Family& Olmo3Family();
const Family& Glm4MoeFamily();
const Family& Gemma3Family();
const Family& GptOssFamily();

absl::Span<const Family* const> Families();

/// Null if there is none of that name.
const Family* FindFamily(std::string_view name);
/// The same of a model_type.
const Family* FindFamilyOfType(std::string_view model_type);

/// The family whose files say all of `config`: its own, or null where that cannot.
const Family* ExactFamily(const ModelConfig& config);

/// What LoadConfig needs of families.
absl::Span<const FamilyPreset> FamilyPresets();

/// Of the family of `config`.
double ModelFlopsPerToken(const ModelConfig& config, int64_t sequence);

}  // namespace holdfast
