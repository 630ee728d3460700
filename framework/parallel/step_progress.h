#pragma once
// Where a step is, for a heartbeat thread to look at.

#include <atomic>
#include <cstdint>

namespace holdfast {

struct StepProgress {
  std::atomic<uint64_t> count{0};    // grows with everything that gets done
  std::atomic<bool> waiting{false};  // for other ranks
};

}  // namespace holdfast
