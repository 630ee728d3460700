#pragma once
// Signals that end a run, caught by a thread of their own so that they work in every phase: warm-up, steps, validation,
// data waits, saving.

#include <atomic>
#include <stop_token>
#include <thread>

namespace holdfast {

/// Must be created before any other thread, which then inherits the blocked signal mask. SIGTERM, SIGINT and SIGUSR1
/// request a stop; a second one ends the process at once with 128 + signal. Those within a second of the first are the
/// first: a scheduler signals a script and what it has started, and the script passes it on.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  std::stop_token token() const { return source_.get_token(); }
  /// The signal that requested the stop; 0 if none did.
  int received() const { return received_; }

 private:
  void Watch();

  std::stop_source source_;
  std::atomic<int> received_{0};
  std::atomic<bool> done_{false};
  std::thread thread_;
};

}  // namespace holdfast
