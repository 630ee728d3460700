#pragma once
// The escapes of a string in a template, as Python reads them.

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace holdfast::jinja {

/// `content` without its quotes. InvalidArgument for an escape that is cut off or names no character.
absl::StatusOr<std::string> ParseStringLiteral(absl::string_view content);

}  // namespace holdfast::jinja
