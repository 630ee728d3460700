#pragma once
// What is told to people far away.

#include <cstdint>
#include <string>

namespace holdfast {

struct Alert {
  enum class Action : uint8_t {
    kTrigger,  // an incident has begun
    kResolve,  // it is over
    kNotify,   // news that nobody has to act on: not for pagers
  };
  enum class Severity : uint8_t { kInfo, kWarning, kError, kCritical };

  Action action = Action::kNotify;
  Severity severity = Severity::kInfo;
  std::string key;      // of the incident: the same in its trigger and its resolve
  std::string summary;  // one line
  std::string source;   // the host concerned, or the run
};

}  // namespace holdfast
