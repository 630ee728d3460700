#pragma once
// Sums over rows, in two halves: the first leaves a few partial sums, each of a fixed part of the rows, the second adds
// them.

#include <cstdint>

#include "kernels/cuda/cuda_queue.h"
#include "kernels/cuda/packet.cuh"
#include "kernels/cuda/reduce.cuh"

namespace holdfast::kernels {

/// Sets `sum` of the first of a block's `warps` warps to the sum of rows `first` to `end` - 1, each times weight(row).
/// A lane's is of n columns from `col` on, of which there are `count`, or none. Each warp adds every so-manieth row.
template <int warps, bool whole, int n, typename T, typename Weight>
__device__ __forceinline__ void SumRows(float (&sum)[n], const Rows<T>& in, int64_t first, int64_t end, int64_t col,
                                        int64_t count, const Weight& weight) {
#pragma unroll
  for (int i = 0; i < n; ++i) sum[i] = 0;
  if (count > 0) {
#pragma unroll 8
    for (int64_t row = first + threadIdx.x / kWarpSize; row < end; row += warps) {
      const float w = weight(row);
      const auto x = LoadPacket<whole, n>(in[row] + col, count);
#pragma unroll
      for (int i = 0; i < n; ++i) sum[i] = fmaf(x[i], w, sum[i]);
    }
  }
  SumWarps<n, warps>(sum);
}

/// Of rows that count as they are.
struct NoWeights {
  __device__ __forceinline__ float operator()(int64_t /*row*/) const { return 1.0f; }
};

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
