#pragma once
// Where a step is, for a heartbeat thread to look at, and what one that was stopped ends with.

#include <atomic>
#include <chrono>
#include <cstdint>

#include "absl/status/status.h"
#include "framework/base/seconds.h"

namespace holdfast {

struct StepProgress {
  std::atomic<uint64_t> count{0};    // grows with everything that gets done
  std::atomic<bool> waiting{false};  // for other ranks
  // Of a checkpoint that is being loaded; 0 of 0: none is.
  std::atomic<int64_t> bytes_loaded{0}, bytes_to_load{0};
};

/// What `wait` returns, which waits for other ranks; adds how long it took to `seconds`.
template <typename Wait>
auto Waiting(StepProgress& progress, double& seconds, Wait&& wait) {
  const auto start = std::chrono::steady_clock::now();
  progress.waiting = true;
  auto result = wait();
  progress.waiting = false;
  seconds += SecondsSince(start);
  return result;
}

inline absl::Status StepStopped() { return absl::CancelledError("the step was abandoned: a stop was requested"); }

}  // namespace holdfast
