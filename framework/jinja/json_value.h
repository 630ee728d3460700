#pragma once
// JSON to values that templates compute with.

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "framework/jinja/value.h"

namespace holdfast::jinja {

/// InvalidArgument for what is not JSON or not UTF-8, nests deeper than 64, has a key twice in an object, or a whole
/// number beyond 2^63.
absl::StatusOr<Value> ParseJson(absl::string_view json);

}  // namespace holdfast::jinja
