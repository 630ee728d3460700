#pragma once
// Signals that end a run, caught by a thread of their own so that they work in every phase: warm-up, steps, validation,
// data waits, saving.

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <optional>
#include <stop_token>
#include <thread>

#include "absl/status/status.h"

namespace holdfast {

/// Must be created before any other thread, which then inherits the blocked signal mask. SIGTERM, SIGUSR1 and, unless
/// they are ignored, SIGINT and SIGHUP request a stop; later ones are the same request, as schedulers repeat it in
/// every process of a job. Only SIGINT, more than a second after the first, ends the process at once with 130.
class StopSignal {
 public:
  /// `sender`: signals of other processes are passed over; 0: of none.
  explicit StopSignal(pid_t sender = 0);
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  std::stop_token token() const { return source_.get_token(); }
  /// The signal that requested the stop; 0 if none did.
  int received() const { return received_; }

 private:
  void Watch();

  const pid_t sender_;
  std::stop_source source_;
  std::atomic<int> received_{0};
  std::atomic<bool> done_{false};
  std::thread thread_;
};

/// Passes a signal on to what is done before a run begins, such as waiting for a server. Files and storages that are
/// opened then keep this token for the whole run. They are read and written also after a stop of the run, so signals
/// that come once it has begun must not reach them. Thread-safety: none.
class StopOfStart {
 public:
  /// `signal` must outlive it.
  explicit StopOfStart(const StopSignal& signal)
      : follow_(std::in_place, signal.token(), [this] { source_.request_stop(); }) {}

  std::stop_token token() const { return source_.get_token(); }
  bool requested() const { return source_.stop_requested(); }
  /// The run begins: later signals do not reach the token. Cancelled if one has.
  absl::Status End();

 private:
  std::stop_source source_;
  std::optional<std::stop_callback<std::function<void()>>> follow_;
};

}  // namespace holdfast
