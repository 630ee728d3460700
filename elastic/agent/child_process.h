#pragma once
// One child process: its start, its signals, its end.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace holdfast {

struct ChildCommand {
  std::string name;
  std::vector<std::string> argv;                                 // argv[0] is the path of the binary
  std::vector<std::pair<std::string, std::string>> environment;  // added to our own
  std::string log_path;                                          // stdout and stderr are appended to it
  bool input = false;                                            // stdin is open until CloseInput; else it is empty
};

/// Movable. Thread-safety: none.
class ChildProcess {
 public:
  /// In a process group of its own, with default signals, without our file descriptors. Killed by the kernel when the
  /// calling thread ends.
  static absl::StatusOr<ChildProcess> Start(const ChildCommand& command);
  ChildProcess(ChildProcess&& other) noexcept { *this = std::move(other); }
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();  // kills and reaps

  int pid() const { return pid_; }
  /// Becomes readable when the process has ended; -1 if the kernel has no such thing.
  int exit_fd() const { return exit_fd_; }
  void Signal(int signal) const;
  /// By SIGSTOP or its like.
  bool IsFrozen() const;
  /// A line at most, for which the pipe of a command with `input` has room. Lost if the process has ended.
  void WriteInput(const std::string& text) const;
  void CloseInput();
  /// SIGKILL to it and to whatever it has started.
  void KillGroup() const;
  /// The status waitpid gives, once it has ended. What it has started is killed then.
  std::optional<int> TryWait();
  /// The last line it has written to its log that is not empty, shortened, in printable ASCII; empty if there is none.
  std::string LastLogLine() const;
  /// How it ended, by the status of TryWait, with the last line of its log where that may say why.
  std::string CauseOfEnd(int wait_status) const;

 private:
  ChildProcess() = default;

  int pid_ = -1, exit_fd_ = -1, input_ = -1;
  int input_end_ = -1;  // that the process reads: kept, so that a write after its end raises no SIGPIPE
  std::string log_path_;
  int64_t log_start_ = 0;  // where in the log this process began
};

}  // namespace holdfast
