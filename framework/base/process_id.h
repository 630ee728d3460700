#pragma once
// Which process something belongs to, written down so that others can say later whether it still runs. A number alone
// does not say it: it is used again, and in a container, or on a machine of the same name, it is another process's.

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace holdfast {

struct ProcessId {
  std::string host;     // as the machine calls itself
  std::string boot;     // of the kernel since it was started (random); empty = not known
  std::string numbers;  // the namespace that `pid` is of: "pid:[4026531836]"; empty = not known
  int64_t pid = 0;
  int64_t started = 0;  // ticks after the boot; 0 = not known

  bool operator==(const ProcessId&) const = default;
};

ProcessId ThisProcess();

enum class Life { kDead, kAlive, kUnknown };
/// Unknown unless it is of this boot and of the namespace that this process sees: what other kernels and containers run
/// cannot be seen from here.
Life LifeOf(const ProcessId& process);

/// "process 4711 on node-3"
std::string Describe(const ProcessId& process);

/// One line, and back. What does not parse is a process of which nothing is known.
std::string ToText(const ProcessId& process);
ProcessId ParseProcessId(absl::string_view text);

}  // namespace holdfast
