#include "framework/base/json.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

/// Exact for well-formed JSON, and up to the first error for any other.
bool NestsDeeperThan(std::string_view json, int depth_max) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string && c == '\\') {
      ++i;
    } else if (c == '"') {
      in_string = !in_string;
    } else if (!in_string && (c == '[' || c == '{')) {
      if (++depth > depth_max) return true;
    } else if (!in_string && (c == ']' || c == '}')) {
      --depth;
    }
  }
  return false;
}

}  // namespace

absl::Status CheckBeforeParsing(std::string_view json, int depth_max) {
  if (NestsDeeperThan(json, depth_max)) {
    return absl::InvalidArgumentError(absl::StrCat("JSON nested deeper than ", depth_max));
  }
  const size_t zero = json.find('\0');
  if (zero == std::string_view::npos) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("malformed JSON: byte ", zero + 1, " is zero"));
}

absl::Status JsonError(size_t position, const nlohmann::json::exception& error) {
  if (dynamic_cast<const nlohmann::json::out_of_range*>(&error) != nullptr) {
    return absl::InvalidArgumentError("JSON with a number that is too large");
  }
  absl::string_view what = error.what();
  what = what.substr(0, what.find("; last read: "));  // behind that stands the text, which may say anything
  const char* const problem = absl::StrContains(what, "UTF-8") ? "invalid UTF-8"
                              : absl::StrContains(what, "invalid string: surrogate")
                                  ? "half of a character (an escape from \\ud800 to \\udfff without its other half)"
                                  : "malformed JSON";
  return absl::InvalidArgumentError(absl::StrCat(problem, " at byte ", position));
}

const char* JsonKind(nlohmann::json::value_t type) {
  using Type = nlohmann::json::value_t;
  switch (type) {
    case Type::null:
      return "null";
    case Type::boolean:
      return "a boolean";
    case Type::number_integer:
    case Type::number_unsigned:
    case Type::number_float:
      return "a number";
    case Type::string:
      return "a string";
    case Type::array:
      return "a list";
    case Type::object:
      return "an object";
    default:
      return "no JSON";
  }
}

template <typename Json>
absl::StatusOr<Json> ParseJson(std::string_view text, int depth_max, const typename Json::parser_callback_t& look) {
  RETURN_IF_ERROR(CheckBeforeParsing(text, depth_max));
  try {
    return Json::parse(text.begin(), text.end(), look);
  } catch (const nlohmann::json::parse_error& error) {
    return JsonError(error.byte, error);
  } catch (const nlohmann::json::exception& error) {
    return JsonError(0, error);
  }
}

template absl::StatusOr<nlohmann::json> ParseJson(std::string_view text, int depth_max,
                                                  const nlohmann::json::parser_callback_t& look);
template absl::StatusOr<nlohmann::ordered_json> ParseJson(std::string_view text, int depth_max,
                                                          const nlohmann::ordered_json::parser_callback_t& look);

}  // namespace holdfast
