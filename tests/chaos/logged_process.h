#pragma once
// A process of the holdfast binary whose output goes to a file, so that nobody has to read along.

#include <signal.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/paths.h"

namespace holdfast::chaos {

/// How long a test waits for what has to come. No measure of speed: a busy machine is far from needing it.
inline constexpr double kTestTimeoutSeconds = 300;

class LoggedProcess {
 public:
  LoggedProcess(std::vector<std::string> arguments, std::string log_path,
                std::vector<std::pair<std::string, std::string>> environment = {},
                const std::string& program = TestedBinary());
  ~LoggedProcess();  // kills what still runs
  LoggedProcess(const LoggedProcess&) = delete;
  LoggedProcess& operator=(const LoggedProcess&) = delete;

  int pid() const { return pid_; }
  bool Running() { return !Poll().has_value(); }
  void Signal(int signal) const;
  /// Waits for the end: the exit code, 128 + signal if it was killed; -1 if it still runs after kTestTimeoutSeconds.
  int ExitCode();
  std::string Log() const;

 private:
  std::optional<int> Poll();

  int pid_ = -1;
  std::optional<int> exit_code_;
  std::string log_path_;
};

}  // namespace holdfast::chaos
