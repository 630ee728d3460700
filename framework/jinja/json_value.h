#pragma once
// JSON to values that templates compute with.

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "framework/jinja/value.h"

namespace holdfast::jinja {

/// Of whole numbers beyond 2^63. Rounded: to a double.
enum class LargeNumbers { kRefused, kRounded };

/// InvalidArgument for what is not JSON or not UTF-8, nests deeper than 64, or has a key twice in an object. `members`:
/// of the outermost object only these are kept, unless it is empty; others are checked as these are, and become none.
absl::StatusOr<Value> ParseJson(absl::string_view json, LargeNumbers large = LargeNumbers::kRefused,
                                absl::Span<const absl::string_view> members = {});

/// framework/base/json.h's words for what a value was there. It holds nothing that JSON does not have.
const char* JsonKindOf(const Value& value);

}  // namespace holdfast::jinja
