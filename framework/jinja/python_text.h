#pragma once
// Values as text: Python's str() and repr(), and json.dumps as transformers' tojson calls it.

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "framework/jinja/budget.h"
#include "framework/jinja/value.h"

namespace holdfast::jinja {

/// repr() of a float: the shortest digits that read back to the same.
std::string FormatFloat(double value);

/// str(), charged to the budget; an error for what has no text that is the same in every process (functions,
/// generators).
absl::StatusOr<std::string> ToText(const Value& value, Budget& budget);

struct JsonStyle {
  bool ensure_ascii = false, sort_keys = false;
  std::optional<std::string> indent = {};  // none: one line
  std::string item_separator = ", ", key_separator = ": ";
};

absl::StatusOr<std::string> ToJson(const Value& value, const JsonStyle& style, Budget& budget);

}  // namespace holdfast::jinja
