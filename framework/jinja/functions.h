#pragma once
// The functions that every template has: raise_exception, strftime_now, range, dict, namespace.

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/civil_time.h"
#include "framework/jinja/budget.h"
#include "framework/jinja/objects.h"

namespace holdfast::jinja {

bool IsFunction(absl::string_view name);

/// Of RenderOptions::now. InvalidArgument if it is no date, or none that the calendar has.
absl::StatusOr<absl::CivilSecond> ParseNow(const std::string& now);

/// `now` as in RenderOptions.
absl::StatusOr<Value> CallFunction(absl::string_view name, const Arguments& arguments, const std::string& now,
                                   Budget& budget);

/// What may be an attribute of a namespace.
absl::Status CheckAttributeName(absl::string_view name);

}  // namespace holdfast::jinja
