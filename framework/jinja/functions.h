#pragma once
// The functions that every template has: raise_exception, strftime_now, range, dict, namespace.

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "framework/jinja/budget.h"
#include "framework/jinja/objects.h"

namespace holdfast::jinja {

bool IsFunction(absl::string_view name);

/// `now` as in RenderOptions.
absl::StatusOr<Value> CallFunction(absl::string_view name, const Arguments& arguments, const std::string& now,
                                   Budget& budget);

/// What may be an attribute of a namespace.
absl::Status CheckAttributeName(absl::string_view name);

}  // namespace holdfast::jinja
