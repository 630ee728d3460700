#pragma once
// Fast exponentials and quotients: bf16's bandwidth leaves some 36 instructions an element, and their errors, below
// 2^-21 where the result is not tiny, are within the tests' tolerance for fp32.

#include <cuda_runtime.h>

namespace holdfast::kernels {

__device__ __forceinline__ float Sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

/// a = 2 sqrt(2/pi) (x + 0.044715 x^3): gelu(x) = x sigmoid(a), in tanh form (Hendrycks & Gimpel 2016, section 2).
__device__ __forceinline__ float GeluSigmoid(float x) {
  return Sigmoid(fmaf(x * x * x, 0.044715f, x) * 1.5957691216057308f);
}
__device__ __forceinline__ float Gelu(float x) { return x * GeluSigmoid(x); }

}  // namespace holdfast::kernels
