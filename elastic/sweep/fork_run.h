#pragma once
// A run becomes two that have their first steps in common.

#include <string>

#include "absl/status/status.h"

namespace holdfast {

/// Makes `to` of the run in `from`, which has ended: another run that can be resumed. Checkpoints, whose files are
/// never changed, are shared by links where the file system has them, and else copied. What a fork that was killed has
/// left is removed by the next one to that place.
absl::Status ForkRun(const std::string& from, const std::string& to);

}  // namespace holdfast
