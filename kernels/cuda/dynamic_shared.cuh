#pragma once
// The shared memory whose size a launch says.

#include <cuda_runtime.h>

namespace holdfast::kernels {

template <typename T>
__device__ __forceinline__ T* DynamicShared() {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  return reinterpret_cast<T*>(dynamic_shared);
}

}  // namespace holdfast::kernels
