#include "elastic/worker/stop_signal.h"

#include <unistd.h>

#include <csignal>
#include <ctime>

namespace holdfast {
namespace {

sigset_t StopSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) sigaddset(&set, signal);
  return set;
}

}  // namespace

StopSignal::StopSignal() {
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
  while (!done_) {
    const int signal = sigtimedwait(&set, nullptr, &poll);
    if (signal <= 0) continue;
    if (received_ != 0) _exit(128 + signal);
    received_ = signal;
    source_.request_stop();
  }
}

}  // namespace holdfast
