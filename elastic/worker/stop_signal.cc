#include "elastic/worker/stop_signal.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <ctime>

namespace holdfast {
namespace {

constexpr std::chrono::seconds kOneSignal{1};

/// A terminal's signals (Ctrl-C, and its end) are for who works at it: they stay ignored where somebody has said so, as
/// nohup does of SIGHUP, and a shell without job control of SIGINT for what it starts with &.
sigset_t StopSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGUSR1}) sigaddset(&set, signal);
  for (const int signal : {SIGINT, SIGHUP}) {
    struct sigaction before {};
    if (sigaction(signal, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) sigaddset(&set, signal);
  }
  return set;
}

}  // namespace

StopSignal::StopSignal(pid_t sender) : sender_(sender) {
  const sigset_t set = StopSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread([this] { Watch(); });
}

StopSignal::~StopSignal() {
  done_ = true;
  thread_.join();
  const sigset_t set = StopSignals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void StopSignal::Watch() {
  const sigset_t set = StopSignals();
  const timespec poll{.tv_sec = 0, .tv_nsec = 50'000'000};
  std::chrono::steady_clock::time_point first;
  while (!done_) {
    siginfo_t info{};
    const int signal = sigtimedwait(&set, &info, &poll);
    if (signal <= 0 || (sender_ != 0 && info.si_pid != sender_)) continue;
    const auto now = std::chrono::steady_clock::now();
    if (received_ != 0) {
      if (signal == SIGINT && now - first > kOneSignal) _exit(128 + signal);
      continue;
    }
    first = now;
    received_ = signal;
    source_.request_stop();
  }
}

absl::Status StopOfStart::End() {
  follow_.reset();
  return requested() ? absl::CancelledError("no step was begun") : absl::OkStatus();
}

}  // namespace holdfast
