#pragma once
// Whether a process that listened has ended, as the kernel of its machine says it.

#include <chrono>
#include <string>

namespace holdfast {

/// True if that machine says that nobody listens at `address` ("host:port", numeric or a name); false if somebody does
/// or nobody answers in time. A process that is frozen still listens.
bool IsRefused(const std::string& address, std::chrono::milliseconds timeout);

}  // namespace holdfast
