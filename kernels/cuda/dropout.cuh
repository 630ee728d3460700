#pragma once
// Dropout of values in registers.

#include <cuda_runtime.h>

#include "kernels/philox.h"

namespace holdfast::kernels {

struct DropoutMask {
  RandomKey key;
  uint32_t threshold;
  float scale;
  bool drops;
};

inline DropoutMask MaskOf(const Dropout& dropout) {
  return {dropout.key, DropoutThreshold(dropout.rate), DropoutScale(dropout.rate), dropout.rate > 0};
}

/// Drops of x, elements first .. first + n - 1 of the stream. Whole packets start at a multiple of four, and take one
/// Philox block for four elements; others take one for each.
template <bool whole, int n>
__device__ __forceinline__ void Drop(const DropoutMask& mask, int64_t first, float (&x)[n]) {
  static_assert(n % 4 == 0);
  if (!mask.drops) return;
#pragma unroll
  for (int i = 0; i < n; i += 4) {
    const auto e = static_cast<uint64_t>(first + i);
    Philox4 words;
    if constexpr (whole) {
      words = Philox(mask.key, e / 4);
    } else {
      for (int k = 0; k < 4; ++k) words.v[k] = PhiloxWord(mask.key, e + static_cast<uint64_t>(k));
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) x[i + k] = words.v[k] >= mask.threshold ? x[i + k] * mask.scale : 0.0f;
  }
}

}  // namespace holdfast::kernels
