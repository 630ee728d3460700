#pragma once
// In place of the product's header of this name.

#include <cuda_runtime.h>

#include <cmath>

namespace holdfast::kernels {

inline float Exp2(float x) { return std::exp2(x); }
template <int id, int threads>
void BarrierArrive() {
  emulation::NamedBarrier(id, threads, false);
}
template <int id, int threads>
void BarrierWait() {
  emulation::NamedBarrier(id, threads, true);
}

inline unsigned Opaque(unsigned x) { return x; }

}  // namespace holdfast::kernels
