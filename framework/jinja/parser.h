#pragma once
// The text of a template to its tree.

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "framework/jinja/syntax.h"

namespace holdfast::jinja {

absl::StatusOr<TemplateNode> ParseTemplate(absl::string_view source);

}  // namespace holdfast::jinja
