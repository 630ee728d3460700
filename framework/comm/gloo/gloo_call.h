#pragma once
// Gloo's exceptions and signals stop here.

#include <csignal>
#include <ctime>
#include <exception>
#include <string>

#include "absl/status/status.h"

namespace holdfast {

/// Runs `call`; Unavailable with the exception's text if it throws.
template <typename Call>
absl::Status GlooCall(Call&& call) {
  try {
    call();
    return absl::OkStatus();
  } catch (const std::exception& e) {
    return absl::UnavailableError(e.what());
  }
}

/// Writing to a connection that the other side has closed raises SIGPIPE in the writing thread, which ends the process
/// unless it is blocked. While this exists it is blocked in this thread, and one that arrived is discarded.
class NoSigPipe {
 public:
  NoSigPipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoSigPipe() {
    if (sigismember(&before_, SIGPIPE) == 1) return;
    const timespec now = {0, 0};
    while (sigtimedwait(&pipe_, nullptr, &now) == SIGPIPE) continue;
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoSigPipe(const NoSigPipe&) = delete;
  NoSigPipe& operator=(const NoSigPipe&) = delete;

 private:
  sigset_t pipe_, before_;
};

}  // namespace holdfast
