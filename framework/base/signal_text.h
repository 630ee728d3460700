#pragma once
// A signal that asks a process to end, for messages.

#include <string>

namespace holdfast {

/// "SIGTERM", "SIGINT (Ctrl-C)"; "signal 99" for one that has no name.
std::string SignalText(int signal);

}  // namespace holdfast
