#pragma once
// Filters: what follows "|".

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "framework/jinja/budget.h"
#include "framework/jinja/objects.h"

namespace holdfast::jinja {

struct Filter {
  absl::string_view name;
  absl::StatusOr<Value> (*apply)(const Value& value, const Arguments& arguments, Budget& budget);
};

/// Null if there is none.
const Filter* FindFilter(absl::string_view name);

}  // namespace holdfast::jinja
