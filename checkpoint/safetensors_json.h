#pragma once
// The JSON of safetensors files: text to values without meaning yet. Parsing is event by event with a fixed grammar, so
// depth is bounded by it, duplicate names are seen (a JSON library's document would keep the last), and memory is that
// of the result.

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "checkpoint/safetensors_header.h"

namespace holdfast {

/// Fields as they stand in the text: `dtype` is not set, sizes and positions are not checked.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsJson(absl::string_view json);

/// The "weight_map" (tensor name -> file name) of a model.safetensors.index.json.
absl::StatusOr<std::map<std::string, std::string>> ParseWeightMap(absl::string_view json);

/// The text of a model.safetensors.index.json; `total_bytes` of all tensors.
absl::StatusOr<std::string> FormatWeightIndex(const std::map<std::string, std::string>& weight_map,
                                              uint64_t total_bytes);

/// A JSON string or object of strings; InvalidArgument if a string is not UTF-8.
absl::StatusOr<std::string> FormatString(const std::string& text);
absl::StatusOr<std::string> FormatStringMap(const std::map<std::string, std::string>& map);

}  // namespace holdfast
