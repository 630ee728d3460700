#pragma once
// Values as kernels see them: fp32 in registers, fp32 or bf16 in memory.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/types.h"

namespace holdfast::kernels {

/// bf16 as it lies in memory.
struct Bf16 {
  uint16_t bits;
};

__device__ __forceinline__ float ToFloat(float x) { return x; }
__device__ __forceinline__ float ToFloat(Bf16 x) { return __uint_as_float(static_cast<uint32_t>(x.bits) << 16); }

/// To nearest even.
template <typename T>
__device__ __forceinline__ T FromFloat(float x);
template <>
__device__ __forceinline__ float FromFloat<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ Bf16 FromFloat<Bf16>(float x) {
  return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
}

/// `n` neighbours in memory, moved in one access where T and n allow; `at` must be aligned to the whole.
template <typename T, int n>
struct alignas(sizeof(T) * n) Packet {
  T v[n];
};

/// Rows of a matrix view whose element type is known.
template <typename T>
struct Rows {
  T* data;
  int64_t stride;
  __device__ __forceinline__ T* operator[](int64_t row) const { return data + row * stride; }
  /// Rows can be moved in packets of n.
  template <int n>
  bool CanPack(int64_t cols) const {
    return stride % n == 0 && cols % n == 0 && reinterpret_cast<uintptr_t>(data) % (sizeof(T) * n) == 0;
  }
};

/// Positions::At of a row.
__device__ __forceinline__ int32_t PositionOf(const Positions& positions, int64_t row) {
  const auto in_sequence = static_cast<int32_t>(static_cast<uint32_t>(row) % static_cast<uint32_t>(positions.sequence));
  return positions.begin == nullptr ? in_sequence : in_sequence - positions.begin[row];
}

template <typename T>
Rows<T> RowsOf(const Matrix& m) {
  return {static_cast<T*>(m.data), m.stride};
}
template <typename T>
Rows<const T> RowsOf(const ConstMatrix& m) {
  return {static_cast<const T*>(m.data), m.stride};
}

/// Calls body with a float or a Bf16, as a type to dispatch on.
template <typename Body>
void WithElement(DType dtype, Body&& body) {
  if (dtype == DType::kF32) {
    body(float{});
  } else {
    body(Bf16{});
  }
}

}  // namespace holdfast::kernels
