#include "framework/scaling/json_fields.h"

#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

absl::Status Wrong(const std::string& key, const char* expected) {
  return absl::InvalidArgumentError(absl::StrCat("'", key, "' has to be ", expected));
}

/// Null if it is not there.
const nlohmann::json& At(const nlohmann::json& object, const std::string& key) {
  static const nlohmann::json nothing;
  if (!object.is_object()) return nothing;
  const auto found = object.find(key);
  return found == object.end() ? nothing : *found;
}

}  // namespace

absl::StatusOr<nlohmann::json> ReadJsonFile(const std::string& path, size_t max_bytes, const std::string& format,
                                            int version) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, max_bytes));
  const auto wrong = [&](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
  };
  constexpr int kMaxDepth = 8;
  absl::StatusOr<nlohmann::json> parsed = ParseJson(text, kMaxDepth);
  if (!parsed.ok()) return Annotate(parsed.status(), path);
  nlohmann::json json = *std::move(parsed);
  if (!json.is_object()) return wrong("it is no JSON object");
  const nlohmann::json& found = At(json, "format");
  if (!found.is_string() || found.get<std::string>() != format) return wrong(absl::StrCat("it is no ", format));
  const nlohmann::json& number = At(json, "version");
  if (!number.is_number_integer() || number.get<int64_t>() != version) {
    return wrong(absl::StrCat("version ", version, " is expected, not ", number.dump()));
  }
  return json;
}

absl::StatusOr<double> NumberField(const nlohmann::json& object, const std::string& key) {
  const nlohmann::json& value = At(object, key);
  if (!value.is_number() || !std::isfinite(value.get<double>())) return Wrong(key, "a number");
  return value.get<double>();
}

absl::StatusOr<std::string> TextField(const nlohmann::json& object, const std::string& key) {
  const nlohmann::json& value = At(object, key);
  if (!value.is_string()) return Wrong(key, "text");
  return value.get<std::string>();
}

absl::StatusOr<uint64_t> DigestField(const nlohmann::json& object, const std::string& key) {
  const absl::StatusOr<std::string> text = TextField(object, key);
  uint64_t digest = 0;
  if (!text.ok() || text->size() != 16 || !absl::SimpleHexAtoi(*text, &digest)) {
    return Wrong(key, "16 hexadecimal digits");
  }
  return digest;
}

std::string HexText(uint64_t digest) { return absl::StrFormat("%016x", digest); }

absl::StatusOr<std::vector<double>> NumbersField(const nlohmann::json& object, const std::string& key, size_t count) {
  const nlohmann::json& list = At(object, key);
  std::vector<double> numbers;
  if (list.is_array() && list.size() == count) {
    for (const nlohmann::json& value : list) {
      if (!value.is_number() || !std::isfinite(value.get<double>())) break;
      numbers.push_back(value.get<double>());
    }
  }
  if (numbers.size() == count && list.is_array()) return numbers;
  return Wrong(key, absl::StrCat("a list of ", count, " numbers").c_str());
}

}  // namespace holdfast
