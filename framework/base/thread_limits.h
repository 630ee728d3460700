#pragma once
// Whether threads can be started. For libraries that do not say when they could not, and then wait for one for ever, as
// gRPC does.

#include "absl/status/status.h"

namespace holdfast {

/// What to say where a thread could not be started, with the limits of this process that are set. Allocates nothing;
/// the text is the calling thread's until it asks again.
const char* NoThreadText();

/// FailedPrecondition with that text if `count` more threads cannot be there at once. Starts and ends them.
absl::Status CheckThreadsStart(int count);

}  // namespace holdfast
