#pragma once
// Reading JSON files of this room: what is not as it should be is an InvalidArgument that names the key.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace holdfast {

/// An object with "format" and "version" as said; `path` is used in messages.
absl::StatusOr<nlohmann::json> ReadJsonFile(const std::string& path, size_t max_bytes, const std::string& format,
                                            int version);

/// The value of a key, finite.
absl::StatusOr<double> NumberField(const nlohmann::json& object, const std::string& key);
absl::StatusOr<std::string> TextField(const nlohmann::json& object, const std::string& key);
/// 16 hexadecimal digits.
absl::StatusOr<uint64_t> DigestField(const nlohmann::json& object, const std::string& key);
std::string HexText(uint64_t digest);
/// A list of so many finite numbers.
absl::StatusOr<std::vector<double>> NumbersField(const nlohmann::json& object, const std::string& key, size_t count);

}  // namespace holdfast
