#pragma once
// A run's events in words, for the console and `holdfast status`.

#include <string>

#include "elastic/control/run_event.h"

namespace holdfast {

/// "lost local/1 (rank 1 on vm) in step 89: killed by signal 9 (Killed)"; events without words of their own are listed
/// with their fields. Empty for those that people see otherwise (validation) or need not see.
std::string EventText(const RunEvent& event);

}  // namespace holdfast
