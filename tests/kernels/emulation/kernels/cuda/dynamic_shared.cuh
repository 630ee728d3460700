#pragma once
// In place of the product's header of this name.

#include <cuda_runtime.h>

namespace holdfast::kernels {

template <typename T>
T* DynamicShared() {
  return static_cast<T*>(emulation::DynamicShared());
}

}  // namespace holdfast::kernels
