#pragma once
// Packets of neighbours on their way between memory and registers.
//
// A kernel that is to reach memory's bandwidth has several loads under way in each thread. For that they are made
// without a branch: rather than leave one out, a kernel loads something that it doesn't use.

#include <type_traits>

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace holdfast::kernels {

/// The widest access.
inline constexpr int kAccessBytes = 16;

/// Elements of one.
template <typename T>
inline constexpr int kPacket = kAccessBytes / static_cast<int>(sizeof(T));

/// n values in registers, as they lie in memory: two bf16 to a register until they are used.
template <typename T, int n>
struct Values {
  static constexpr int kWords = (n * static_cast<int>(sizeof(T)) + 3) / 4;
  uint32_t words[kWords];

  __device__ __forceinline__ float operator[](int i) const {
    if constexpr (sizeof(T) == 4) return __uint_as_float(words[i]);
    return __uint_as_float(i % 2 == 0 ? words[i / 2] << 16 : words[i / 2] & 0xffff0000u);
  }
};

/// One access to memory of whatever type.
template <int n>
struct __attribute__((may_alias, aligned(4 * n))) Access {
  uint32_t words[n];
};

/// Words of one access, of `words` to be moved.
constexpr int AccessWords(int words) { return words < kAccessBytes / 4 ? words : kAccessBytes / 4; }

/// n values from `at`. A whole packet is loaded in accesses as wide as can be; otherwise element by element, with zeros
/// from `count` on. Both give a thread the same elements, so that sums have the same bits.
template <bool whole, int n, typename T>
__device__ __forceinline__ Values<std::remove_const_t<T>, n> LoadPacket(T* at, int64_t count) {
  Values<std::remove_const_t<T>, n> x = {};
  if constexpr (whole) {
    constexpr int m = AccessWords(x.kWords);
#pragma unroll
    for (int i = 0; i < x.kWords; i += m) {
      const auto access = reinterpret_cast<const Access<m>*>(at)[i / m];
#pragma unroll
      for (int k = 0; k < m; ++k) x.words[i + k] = access.words[k];
    }
  } else {
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const uint32_t bits = i < count ? __float_as_uint(ToFloat(at[i])) : 0;
      if constexpr (sizeof(T) == 4) x.words[i] = bits;
      if constexpr (sizeof(T) == 2) x.words[i / 2] |= i % 2 == 0 ? bits >> 16 : bits;
    }
  }
  return x;
}

/// Rounds n values to T.
template <typename T, int n>
__device__ __forceinline__ Values<T, n> ValuesOf(const float (&x)[n]) {
  Values<T, n> values;
#pragma unroll
  for (int i = 0; i < values.kWords; ++i) {
    if constexpr (sizeof(T) == 4) values.words[i] = __float_as_uint(x[i]);
    if constexpr (sizeof(T) == 2) values.words[i] = PackBf16(x[2 * i], 2 * i + 1 < n ? x[2 * i + 1] : 0.0f);
  }
  return values;
}

/// One store, which the compiler, left alone, at times makes several of.
__device__ __forceinline__ void Store(void* at, const Access<4>& x) {
  __stwb(static_cast<uint4*>(at), make_uint4(x.words[0], x.words[1], x.words[2], x.words[3]));
}
__device__ __forceinline__ void Store(void* at, const Access<2>& x) {
  __stwb(static_cast<uint2*>(at), make_uint2(x.words[0], x.words[1]));
}

/// Stores; not whole: only the first `count`.
template <bool whole, int n, typename T>
__device__ __forceinline__ void StoreValues(T* at, const Values<T, n>& x, int64_t count) {
  if constexpr (whole) {
    constexpr int m = AccessWords(x.kWords);
#pragma unroll
    for (int i = 0; i < x.kWords; i += m) {
      Access<m> access;
#pragma unroll
      for (int k = 0; k < m; ++k) access.words[k] = x.words[i + k];
      Store(reinterpret_cast<Access<m>*>(at) + i / m, access);
    }
  } else {
#pragma unroll
    for (int i = 0; i < n; ++i) {
      if (i >= count) continue;
      if constexpr (sizeof(T) == 4) at[i] = x[i];
      if constexpr (sizeof(T) == 2) at[i] = {static_cast<uint16_t>(x.words[i / 2] >> i % 2 * 16)};
    }
  }
}

/// Rounds to T first.
template <bool whole, int n, typename T>
__device__ __forceinline__ void StorePacket(T* at, const float (&x)[n], int64_t count) {
  StoreValues<whole>(at, ValuesOf<T>(x), count);
}

template <typename T, int n>
__device__ __forceinline__ void ToFloats(float (&x)[n], const Values<T, n>& values) {
#pragma unroll
  for (int i = 0; i < n; ++i) x[i] = values[i];
}

/// Packets of n start where an access may.
template <int n, typename T>
bool IsAligned(const Rows<T>& rows) {
  constexpr int bytes = AccessWords(Values<std::remove_const_t<T>, n>::kWords) * 4;
  return rows.stride % n == 0 && reinterpret_cast<uintptr_t>(rows.data) % bytes == 0;
}

/// Rows of `cols` of all these matrices can be moved in whole packets of n.
template <int n, typename... AnyRows>
bool AllWhole(int64_t cols, const AnyRows&... rows) {
  return cols % n == 0 && (IsAligned<n>(rows) && ...);
}

/// A vector as a matrix of one row.
template <typename T>
Rows<T> OneRow(T* data) {
  return {data, 0};
}

/// Calls body with `flag` as a type to dispatch on.
template <typename Body>
void WithFlag(bool flag, Body&& body) {
  if (flag) {
    body(std::true_type{});
  } else {
    body(std::false_type{});
  }
}

}  // namespace holdfast::kernels
