#pragma once
// Tests: what follows "is".

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "framework/jinja/budget.h"
#include "framework/jinja/objects.h"

namespace holdfast::jinja {

struct Test {
  absl::string_view name;
  absl::StatusOr<bool> (*holds)(const Value& value, const Arguments& arguments, Budget& budget);
};

/// Null if there is none.
const Test* FindTest(absl::string_view name);

}  // namespace holdfast::jinja
