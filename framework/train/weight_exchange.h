#pragma once
// Rank 0 reads the whole model although it holds only a part: it asks for one chunk after the other, and the chunk's
// holder sends it. Memory stays at one chunk. While rank 0 is busy with what it has read, a file that is written say,
// it tells the others once a second that it still is: they would give up waiting for a question after `timeout`.

#include <chrono>
#include <functional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "framework/parallel/placed_state.h"
#include "framework/parallel/step_progress.h"

namespace holdfast {

/// Values [first, first + out.size()) of the model's flat vector.
using ReadWeightsFn = std::function<absl::Status(int64_t first, absl::Span<float> out)>;

/// Calls use(read) on rank 0, on another thread where there are other ranks, and answers its questions on those, until
/// it has returned. Every rank must call it. Each chunk is progress, and to the others each word of rank 0.
absl::Status WithWeights(PlacedState& placed, std::chrono::milliseconds timeout, StepProgress& progress,
                         absl::FunctionRef<absl::Status(const ReadWeightsFn& read)> use);

}  // namespace holdfast
