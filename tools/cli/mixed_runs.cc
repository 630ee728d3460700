#include "tools/cli/mixed_runs.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/join_first.h"
#include "framework/config/config_table.h"
#include "framework/config/decides.h"
#include "framework/config/field_text.h"
#include "framework/config/printable.h"

namespace holdfast {
namespace {

constexpr size_t kMixedKeysShown = 6, kMixedValuesShown = 4, kMixedValueBytes = 60;

/// But for those of the section `batch`, all of which a law knows as tokens of a step, or as noise.
constexpr std::array<std::string_view, 22> kKeysOfLaws = {
    "run.seed",
    "model.max_sequence_length",
    "model.num_layers",
    "model.hidden_size",
    "model.num_heads",
    "model.num_kv_heads",
    "model.head_dim",
    "model.intermediate_size",
    "model.num_experts",
    "model.experts_per_token",
    "model.expert_intermediate_size",
    "model.first_expert_layer",
    "model.expert_layer_step",
    "model.shared_expert_intermediate_size",
    "train.steps",
    "train.device",
    "train.arithmetic",
    "train.gemm_table_digest",
    "optimizer.lr",
    "schedule.warmup_steps",
    "schedule.decay_steps",
    "schedule.total_steps",
};

bool IsKeyOfLaws(const std::string& key) {
  return key.starts_with("batch.") || std::find(kKeysOfLaws.begin(), kKeysOfLaws.end(), key) != kKeysOfLaws.end();
}

/// On one line.
std::string MixedValueText(const Field& field) {
  const auto* list = std::get_if<ListValue>(&field.value);
  return list == nullptr ? PrintValue(field) : absl::StrCat("[", absl::StrJoin(*list->value, ", "), "]");
}

}  // namespace

std::string MixedKeys(absl::Span<const Config> configs) {
  std::vector<std::pair<std::string, std::vector<std::string>>> seen;  // keys with their values, in the config's order
  for (Config config : configs) {
    size_t at = 0;
    for (const Section& section : ConfigTable(&config)) {
      for (const Field& field : section.fields) {
        const std::string key = absl::StrCat(section.name, ".", field.key);
        if (field.decides != Decides::kBits || IsKeyOfLaws(key)) continue;
        if (at == seen.size()) seen.emplace_back(key, std::vector<std::string>());
        std::vector<std::string>& values = seen[at++].second;
        const std::string value = MixedValueText(field);
        if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
      }
    }
  }
  std::vector<std::string> mixed;
  for (auto& [key, values] : seen) {
    if (values.size() < 2) continue;
    for (std::string& value : values) value = Printable(value, kMixedValueBytes);
    mixed.push_back(absl::StrCat(key, " (", JoinFirst(values, kMixedValuesShown), ")"));
  }
  return JoinFirst(mixed, kMixedKeysShown);
}

}  // namespace holdfast
