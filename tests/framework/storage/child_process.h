#pragma once
// Work in a process of its own: one that may be killed, has other rights or other limits.

#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"

namespace holdfast {

/// Runs `work` in a forked child, which ends with it. What it returns; "died with signal N" if it did not return.
std::string RunInChild(const std::function<std::string()>& work);

/// Runs this program again, from its beginning, for one test with these variables added to its environment. The wait
/// status (waitpid).
int RunTestAgain(const std::string& test, const std::map<std::string, std::string>& environment);

/// "" if `status` has this code and its message contains `part`; else what it is instead. For use in a child.
std::string Expected(absl::StatusCode code, const std::string& part, const absl::Status& status);

}  // namespace holdfast
