#pragma once
// Upper and lower case as Python's str has them, letters that become several included.

#include <string>

#include "absl/strings/string_view.h"

namespace holdfast::jinja {

enum class Case { kUpper, kLower };

/// str.upper, str.lower; at most three times as long as `text`.
std::string ToCase(absl::string_view text, Case wanted);

/// str.capitalize.
std::string Capitalize(absl::string_view text);

/// str.title.
std::string Title(absl::string_view text);

}  // namespace holdfast::jinja
