#include "tools/cli/mixed_runs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "framework/base/join_first.h"
#include "framework/config/config_table.h"
#include "framework/config/decides.h"
#include "framework/config/field_text.h"
#include "framework/config/printable.h"
#include "framework/metrics/progress.h"

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

constexpr char kTrainKey[] = "data.train", kValidationKey[] = "data.validation";

/// Of the files alone, in their order: the same data may lie elsewhere on another machine.
std::vector<std::string> FileNames(std::vector<std::string> paths) {
  for (std::string& path : paths) path = std::filesystem::path(path).filename().string();
  return paths;
}

/// Whether passes of so many tokens may be of the same files: what is left at the end of a file is no sequence.
bool MayBeEqual(const MixableRun& a, const MixableRun& b) {
  if (!a.data_tokens.has_value() || !b.data_tokens.has_value()) return true;
  const auto slack = static_cast<int64_t>(a.config.data.train.size()) *
                     std::max(a.config.batch.sequence_length, b.config.batch.sequence_length);
  return std::abs(*a.data_tokens - *b.data_tokens) <= static_cast<double>(slack);
}

std::string TrainingDataText(const MixableRun& run) {
  std::string files = Printable(absl::StrJoin(run.config.data.train, " "), kMixedValueBytes);
  if (!run.data_tokens.has_value()) return files;
  return absl::StrCat(files, " of ", FormatCount(*run.data_tokens), " tokens");
}

std::string ValidationDataText(const MixableRun& run) {
  const std::string files = Printable(absl::StrJoin(run.config.data.validation, " "), kMixedValueBytes);
  return files.empty() ? "none" : files;
}

/// "KEY (A, B)" if the runs are of more than one kind, else "".
std::string MixedData(const char* key, absl::Span<const MixableRun> runs, const auto& are_same, const auto& text) {
  std::vector<const MixableRun*> kinds;
  for (const MixableRun& run : runs) {
    const auto same = [&](const MixableRun* kind) { return are_same(*kind, run); };
    if (std::none_of(kinds.begin(), kinds.end(), same)) kinds.push_back(&run);
  }
  if (kinds.size() < 2) return "";
  const auto append = [&](std::string* out, const MixableRun* kind) { out->append(text(*kind)); };
  return absl::StrCat(key, " (", JoinFirst(kinds, kMixedValuesShown, append), ")");
}

/// Of those that know a digest.
std::string MixedContents(absl::Span<const MixableRun> runs) {
  std::vector<MixableRun> known;
  std::copy_if(runs.begin(), runs.end(), std::back_inserter(known),
               [](const MixableRun& run) { return !run.data_digest.empty(); });
  const auto same = [](const MixableRun& a, const MixableRun& b) { return a.data_digest == b.data_digest; };
  const auto text = [](const MixableRun& run) {
    return absl::StrCat("digest ", run.data_digest, " in ", Printable(run.name, kMixedValueBytes));
  };
  return MixedData("what the data files hold", known, same, text);
}

}  // namespace

std::string MixedKeys(absl::Span<const MixableRun> runs) {
  std::vector<std::pair<std::string, std::vector<std::string>>> seen;  // keys with their values, in the config's order
  for (const MixableRun& run : runs) {
    Config config = run.config;
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
  const auto same_training = [](const MixableRun& a, const MixableRun& b) {
    return FileNames(a.config.data.train) == FileNames(b.config.data.train) && MayBeEqual(a, b);
  };
  const auto same_validation = [](const MixableRun& a, const MixableRun& b) {
    return FileNames(a.config.data.validation) == FileNames(b.config.data.validation);
  };
  // Last come those that may be equal to any: one that came first would make runs that differ equal to it.
  std::vector<MixableRun> known_first(runs.begin(), runs.end());
  std::stable_partition(known_first.begin(), known_first.end(),
                        [](const MixableRun& run) { return run.data_tokens.has_value(); });
  std::vector<std::string> mixed = {MixedData(kTrainKey, known_first, same_training, TrainingDataText),
                                    MixedData(kValidationKey, runs, same_validation, ValidationDataText)};
  if (mixed[0].empty() && mixed[1].empty()) mixed.push_back(MixedContents(runs));  // other files hold other tokens
  for (auto& [key, values] : seen) {
    if (values.size() < 2) continue;
    for (std::string& value : values) value = Printable(value, kMixedValueBytes);
    mixed.push_back(absl::StrCat(key, " (", JoinFirst(values, kMixedValuesShown), ")"));
  }
  std::erase(mixed, "");
  return JoinFirst(mixed, kMixedKeysShown);
}

std::vector<std::string> MixableKeys(absl::Span<const search::Dimension> space) {
  std::vector<std::string> mixable;
  const auto add = [&mixable](const std::string& key) {
    const bool is_data = key == kTrainKey || key == kValidationKey;
    if (!is_data && (WhatDecides(key) != Decides::kBits || IsKeyOfLaws(key))) return;
    if (std::find(mixable.begin(), mixable.end(), key) == mixable.end()) mixable.push_back(key);
  };
  for (const search::Dimension& dimension : space) {
    if (WhatDecides(dimension.name) != Decides::kUnsaid) {
      add(dimension.name);
      continue;
    }
    for (const std::string& choice : dimension.choices) {  // "KEY=VALUE KEY=VALUE"
      for (const absl::string_view each : absl::StrSplit(choice, ' ', absl::SkipEmpty())) {
        add(std::string(each.substr(0, each.find('='))));
      }
    }
  }
  return mixable;
}

}  // namespace holdfast
