#include "framework/jinja/objects.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace holdfast::jinja {

absl::StatusOr<std::vector<const Value*>> Bind(const Arguments& arguments, const std::vector<const char*>& parameters,
                                               size_t required) {
  std::vector<const Value*> bound(parameters.size(), nullptr);
  if (arguments.positional.size() > parameters.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(arguments.positional.size(), " arguments, at most ", parameters.size(), " are expected"));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) bound[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.keywords) {
    const auto found = std::find(parameters.begin(), parameters.end(), name);
    if (found == parameters.end()) return absl::InvalidArgumentError(absl::StrCat("no parameter \"", name, "\""));
    const Value*& slot = bound[static_cast<size_t>(found - parameters.begin())];
    if (slot != nullptr) return absl::InvalidArgumentError(absl::StrCat("\"", name, "\" is given twice"));
    slot = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (bound[i] == nullptr) return absl::InvalidArgumentError(absl::StrCat("\"", parameters[i], "\" is missing"));
  }
  return bound;
}

}  // namespace holdfast::jinja
