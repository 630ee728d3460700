#pragma once

#include <string>

namespace holdfast {

/// This machine's, as it calls itself; "unknown" if it does not say.
std::string HostName();

}  // namespace holdfast
