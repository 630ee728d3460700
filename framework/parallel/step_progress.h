#pragma once
// Where a step is, for a heartbeat thread to look at, and what one that was stopped ends with.

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"

namespace holdfast {

struct StepProgress {
  std::atomic<uint64_t> count{0};    // grows with everything that gets done
  std::atomic<bool> waiting{false};  // for other ranks
  // Of a checkpoint that is being loaded; 0 of 0: none is.
  std::atomic<int64_t> bytes_loaded{0}, bytes_to_load{0};
};

inline absl::Status StepStopped() { return absl::CancelledError("the step was abandoned: a stop was requested"); }

}  // namespace holdfast
