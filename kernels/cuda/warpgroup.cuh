#pragma once
// How a warpgroup's rows are shared out: it works on 64 rows of a product, each of its warps on 16 of them.

#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/warpgroup_ptx.cuh"

namespace holdfast::kernels {

inline constexpr int kWarpgroupRows = 64, kWarpRows = 16;

/// This warpgroup's number in its block; the compiler knows that it is the same in a warp, as what describes operands.
__device__ __forceinline__ int Warpgroup() { return __shfl_sync(kWholeWarp, static_cast<int>(threadIdx.x) / 128, 0); }

}  // namespace holdfast::kernels
