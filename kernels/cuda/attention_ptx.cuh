#pragma once
// Instructions that attention needs beyond those of tensor_core.cuh (PTX ISA, "ex2" and "bar").

#include <cuda_runtime.h>

namespace holdfast::kernels {

/// 2^x with a relative error of 2^-22; results that would be denormal are 0.
__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

/// Barrier `id` (1 to 15; 0 is __syncthreads) of `threads` threads, in whole warps. What a thread wrote before it
/// arrived, every thread sees that has waited. Those that arrive do not wait.
template <int id, int threads>
__device__ __forceinline__ void BarrierArrive() {
  asm volatile("bar.arrive %0, %1;\n" ::"n"(id), "n"(threads) : "memory");
}
template <int id, int threads>
__device__ __forceinline__ void BarrierWait() {
  asm volatile("bar.sync %0, %1;\n" ::"n"(id), "n"(threads) : "memory");
}

/// x, but the compiler cannot compute what follows from it ahead of a loop, where it would occupy registers.
__device__ __forceinline__ unsigned Opaque(unsigned x) {
  asm volatile("" : "+r"(x));
  return x;
}

}  // namespace holdfast::kernels
