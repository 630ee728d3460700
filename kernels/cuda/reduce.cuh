#pragma once
// Sums and maxima over a warp or a block in a fixed association: the result depends on the values and the block's size
// alone.

#include <cuda_runtime.h>

namespace holdfast::kernels {

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kWholeWarp = 0xffffffffu;

struct Plus {
  template <typename T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Maximum {
  __device__ __forceinline__ float operator()(float a, float b) const { return a > b || a != a ? a : b; }
};

/// Every lane gets the whole warp's.
template <typename T, typename Op>
__device__ __forceinline__ T WarpReduce(T value, Op op) {
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2)
    value = op(value, __shfl_xor_sync(kWholeWarp, value, offset));
  return value;
}

/// Every thread gets the whole block's. For blocks of whole warps in x; all threads call it.
template <typename T, typename Op>
__device__ __forceinline__ T BlockReduce(T value, T neutral, Op op) {
  __shared__ T partial[kWarpSize];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int warps = static_cast<int>(blockDim.x) / kWarpSize;
  value = WarpReduce(value, op);
  if (warps == 1) return value;
  __syncthreads();  // of an earlier call everybody has read
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  return WarpReduce(lane < warps ? partial[lane] : neutral, op);
}

/// Sums a block's warps, each of which has added every so-manieth row, in the warps' order. Lane l's are x of n
/// columns. The result is warp 0's.
template <int n, int warps>
__device__ __forceinline__ void SumWarps(float (&x)[n]) {
  __shared__ float shared[warps][n][kWarpSize];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
#pragma unroll
  for (int i = 0; i < n; ++i) shared[warp][i][lane] = x[i];
  __syncthreads();
  if (warp != 0) return;
#pragma unroll
  for (int i = 0; i < n; ++i) {
    for (int w = 1; w < warps; ++w) x[i] += shared[w][i][lane];
  }
}

}  // namespace holdfast::kernels
