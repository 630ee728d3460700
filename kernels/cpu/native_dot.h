#pragma once
// What the bf16 instructions of processors compute, operation by operation: the definition of the native arithmetics,
// which processors are checked against before they are used, and tests where a processor lacks the instructions. None
// of them depends on the process's rounding mode, nor on whether it flushes subnormal values (MXCSR).

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/arithmetic.h"

namespace holdfast::kernels {

/// Subnormal values count as zero of the same sign (DAZ, FTZ).
inline float FlushSubnormal(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

/// fma(a, b, c), rounded to nearest even, of values without subnormals and to such a value.
inline float FlushedFma(float a, float b, float c) {
  return FlushSubnormal(std::fma(FlushSubnormal(a), FlushSubnormal(b), FlushSubnormal(c)));
}

/// VCVTNEPS2BF16 of one lane, as bf16 bits: to nearest even, after subnormal values have become zero. A NaN keeps its
/// upper bits, and is quiet (Intel SDM volume 2).
inline uint16_t RoundedToBf16(float x) {
  const auto bits = std::bit_cast<uint32_t>(FlushSubnormal(x));
  return static_cast<uint16_t>((std::isnan(x) ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// VDPBF16PS of one lane: c + a . b for two pairs; the second product is added first (Intel SDM volume 2; seen on Zen
/// 4).
inline float DotOfPairs(float c, const float (&a)[2], const float (&b)[2]) {
  return FlushedFma(a[0], b[0], FlushedFma(a[1], b[1], c));
}

/// TDPBF16PS of one element of C: c + the sum of 16 pairs of a and b. Products with even and with odd k are two chains
/// from zero, which are added to each other and then to c (Intel SDM volume 2).
inline float DotOfTileRow(float c, const float (&a)[32], const float (&b)[32]) {
  float even = 0, odd = 0;
  for (int k = 0; k < 32; k += 2) {
    even = FlushedFma(a[k], b[k], even);
    odd = FlushedFma(a[k + 1], b[k + 1], odd);
  }
  return FlushSubnormal(FlushSubnormal(c) + FlushSubnormal(even + odd));
}

/// Products along k are added up in blocks of this depth: part of the bits of native arithmetics. Twice that of
/// portable ones, so that tiles come back to memory half as often.
inline constexpr int64_t kNativeBlock = 512;

/// One element of a product of bf16 matrices in a native arithmetic: the sum over `depth` of a(k) * b(k), which return
/// bf16 bits.
template <class A, class B>
float NativeDot(Arithmetic arithmetic, int64_t depth, const A& a, const B& b) {
  constexpr int64_t kPairs = 2, kTileDepth = 32;
  const auto widen = [](uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); };
  float sum = 0;
  for (int64_t k0 = 0; k0 < depth; k0 += kNativeBlock) {
    const int64_t end = std::min(k0 + kNativeBlock, depth);
    float block = 0;
    const int64_t step = arithmetic == Arithmetic::kAmxBf16 ? kTileDepth : kPairs;
    for (int64_t k = k0; k < end; k += step) {
      float x[kTileDepth] = {}, y[kTileDepth] = {};
      for (int64_t i = 0; i < step && k + i < end; ++i) x[i] = widen(a(k + i)), y[i] = widen(b(k + i));
      block = arithmetic == Arithmetic::kAmxBf16 ? DotOfTileRow(block, x, y)
                                                 : DotOfPairs(block, {x[0], x[1]}, {y[0], y[1]});
    }
    sum = k0 == 0 ? block : sum + block;
  }
  return sum;
}

}  // namespace holdfast::kernels
