#pragma once
// The second half of every sum over rows: the first leaves a few partial sums, each of a fixed part of the rows.

#include <cstdint>

#include "kernels/cuda/cuda_queue.h"

namespace holdfast::kernels {

/// Sums `count` rows of `width` partial sums, (count, width) fp32. Column c goes to out[c / cols][c % cols]; what `out`
/// is null for is not summed.
struct PartialSums {
  const float* data;
  int64_t count, width;
  float* out[2];
  int64_t cols;
};
void QueueSum(CudaQueue& queue, const char* operation, const PartialSums& sums);

}  // namespace holdfast::kernels
