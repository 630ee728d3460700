#pragma once
// A run's events in words, for the console and `holdfast status`.

#include <string>

#include "elastic/control/run_status.h"

namespace holdfast {

/// "lost local/1 (rank 1 on vm) in step 89: killed by signal 9 (Killed)"; events without words of their own are listed
/// with their fields. Empty for those that people see otherwise (validation) or need not see.
std::string EventText(const RunEvent& event);

/// A field as text; empty if the event has none of this name.
std::string FieldText(const RunEvent& event, const std::string& name);

}  // namespace holdfast
