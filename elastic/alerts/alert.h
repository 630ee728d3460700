#pragma once
// What is told to people far away.

#include <cstdint>
#include <string>

namespace holdfast {

/// Of which run an alert tells.
struct AlertedRun {
  std::string name{};
  std::string directory{};
  int64_t workers = 0;  // that it is to have; 0 = not known
  int64_t total_steps = 0;
  int64_t step = 0;           // committed
  int64_t tokens = 0;         // since the start of the run, as is what it has cost:
  double worker_hours = 0;    // of workers that were connected; of earlier lives of the run, in its steps
  bool on_gpus = false;       // one for each worker
  double price_per_hour = 0;  // of a worker; 0 = not known
};

struct Alert {
  enum class Action : uint8_t {
    kTrigger,  // an incident has begun
    kResolve,  // it is over
    kNotify,   // news that nobody has to act on: not for pagers
  };
  enum class Severity : uint8_t { kInfo, kWarning, kError, kCritical };

  Action action = Action::kNotify;
  Severity severity = Severity::kInfo;
  std::string key;       // of the incident: the same in its trigger and its resolve
  std::string summary;   // one line
  std::string source;    // the host concerned, or the run
  std::string advice{};  // what a person can do about it; empty: nothing
  AlertedRun run{};      // when the alert was made
};

}  // namespace holdfast
