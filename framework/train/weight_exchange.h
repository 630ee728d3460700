#pragma once
// Rank 0 reads the whole model although it holds only a part: it asks for one chunk after the other, and the chunk's
// holder sends it. Memory stays at one chunk.

#include <chrono>
#include <functional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "framework/parallel/placed_state.h"

namespace holdfast {

/// Values [first, first + out.size()) of the model's flat vector.
using ReadWeightsFn = std::function<absl::Status(int64_t first, absl::Span<float> out)>;

/// Calls use(read) on rank 0 and answers its questions on the others, until it has returned. Every rank must call it.
absl::Status WithWeights(PlacedState& placed, std::chrono::milliseconds timeout,
                         absl::FunctionRef<absl::Status(const ReadWeightsFn& read)> use);

}  // namespace holdfast
