#pragma once
// Several things that wait (requests, reads), at once.

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace holdfast {

/// Calls task(0) .. task(count - 1) from up to `threads` threads, the caller's among them. After an error no further
/// task begins; returns the first error. For tasks that wait: threads are made and ended here.
absl::Status RunParallel(int64_t count, int threads, absl::FunctionRef<absl::Status(int64_t)> task);

}  // namespace holdfast
