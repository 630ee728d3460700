#pragma once
// Methods of strings, dicts and lists. What would change a list or a dict is refused, as in transformers' sandbox.

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "framework/jinja/budget.h"
#include "framework/jinja/objects.h"

namespace holdfast::jinja {

/// Whether Python's type has it, supported or not.
bool HasMethod(const Value& owner, absl::string_view name);

absl::StatusOr<Value> CallMethod(const Method& method, const Arguments& arguments, Budget& budget);

/// str.replace; count < 0: all.
absl::StatusOr<std::string> ReplaceAll(absl::string_view text, absl::string_view from, absl::string_view to,
                                       int64_t count, Budget& budget);

}  // namespace holdfast::jinja
