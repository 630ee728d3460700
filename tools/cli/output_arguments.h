#pragma once
// A file that a command is told to write takes the place of what such a command has written before, and of nothing
// else.

#include <functional>
#include <string>

#include "absl/status/status.h"

namespace holdfast {

/// AlreadyExists if something is at `path` that is no `what`, of which `is_one` knows; `option` is what named the path.
/// To be asked before any work is done.
absl::Status CheckReplaces(const std::string& option, const std::string& path, const std::string& what,
                           const std::function<bool(const std::string&)>& is_one);

}  // namespace holdfast
