#pragma once
// The JSON header of a safetensors file, both ways. Pure: text in, entries out.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "checkpoint/safetensors.h"

namespace holdfast {

/// Longest header that any implementation accepts.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;

struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
};

/// Checks everything the format promises: known fields only, each once, sizes that follow from shape and dtype, and
/// tensors that cover [0, data_bytes) without holes or overlaps. DataLoss if they reach beyond data_bytes, else
/// InvalidArgument; messages name the tensor.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json, uint64_t data_bytes);

/// Length, JSON and padding: all that stands before the data, which begins at a multiple of 8.
absl::StatusOr<std::string> FormatSafetensorsHeader(const std::vector<SafetensorsWriter::Entry>& entries,
                                                    const std::map<std::string, std::string>& metadata);

/// Number of elements, or InvalidArgument for a negative dimension or a product beyond 2^62.
absl::StatusOr<int64_t> CheckedElements(absl::Span<const int64_t> shape);

/// `name` for messages: quoted, control characters escaped, cut to a readable length.
std::string Quoted(absl::string_view name);

}  // namespace holdfast
