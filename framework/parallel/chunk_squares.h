#pragma once
// Sums of squares of gradients, chunk by chunk, in device memory, brought to the CPU.

#include <cstdint>
#include <map>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/nn/layout.h"
#include "framework/tensor/tensor.h"

namespace holdfast {

/// Chunks [first, end) of the layout, one after the other from x on.
struct ChunkRange {
  int64_t first = 0, end = 0;
  const float* x = nullptr;
};

class ChunkSquares {
 public:
  /// By chunk, each in fp64, of what ParameterSpec::norm_factor makes of the values. Waits for `stream`, once.
  absl::StatusOr<std::map<int64_t, double>> Of(absl::Span<const ChunkRange> ranges, const ParameterLayout& layout,
                                               Device& device, Stream& stream);

 private:
  Buffer sums_;  // on the device
};

}  // namespace holdfast
