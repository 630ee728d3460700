#pragma once
// Sums of squares of runs of a vector in device memory, brought to the host.

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/tensor/tensor.h"

namespace holdfast {

class ChunkSquares {
 public:
  /// Of x[offsets[i] .. offsets[i + 1]), each in fp64. Waits for `stream`.
  absl::StatusOr<std::vector<double>> Of(const float* x, absl::Span<const int64_t> offsets, Device& device,
                                         Stream& stream);

 private:
  Buffer sums_;  // on the device
};

}  // namespace holdfast
