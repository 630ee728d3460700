// The microkernel of `native` arithmetic on processors with AVX512_BF16: products of pairs of bf16 values, summed in fp32
// by VDPBF16PS. A word of a panel holds two values of k, so panels take half the memory of microkernel-inl.h's.
//
// What the instruction computes (Intel SDM, VDPBF16PS; AMD64 APM volume 4 agrees): for a sum c and pairs (a0, a1),
// (b0, b1), c = fma(a1, b1, c), then c = fma(a0, b0, c), both rounded to nearest even, with subnormal inputs and results
// taken as zero. Pairs are taken in ascending k, blocks of kKc are added as in every other arithmetic, and an odd k at
// the end is paired with zero; so the bits are those of tests/kernels/native_arithmetic.h on every processor.
//
// Included once per instruction set, after hwy/foreach_target.h; see gemm.cc. Empty where the vectors are not AVX-512's.

#if defined(HOLDFAST_KERNELS_CPU_BF16_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLDFAST_KERNELS_CPU_BF16_DOT_INL_H_
#undef HOLDFAST_KERNELS_CPU_BF16_DOT_INL_H_
#else
#define HOLDFAST_KERNELS_CPU_BF16_DOT_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/microkernel-inl.h"
#include "kernels/cpu/pack-inl.h"

#if HWY_MAX_BYTES == 64
#include <immintrin.h>

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

using PairMultiplyFn = void (*)(int64_t, const uint32_t*, const uint32_t*, const float*, const float*, float*);

/// Multiply of microkernel-inl.h on words of pairs.
template <int kRows>
__attribute__((noinline, target("avx512bf16"))) void MultiplyPairs(int64_t words, const uint32_t* HWY_RESTRICT a,
                                                                   const uint32_t* HWY_RESTRICT b, const float* chain,
                                                                   const float* previous, float* out) {
  __m512 sum[kRows][2];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    sum[r][0] = chain == nullptr ? _mm512_setzero_ps() : _mm512_loadu_ps(chain + r * kNr);
    sum[r][1] = chain == nullptr ? _mm512_setzero_ps() : _mm512_loadu_ps(chain + r * kNr + kLanes);
  }
  for (int64_t k = 0; k < words; ++k) {
    const __m512bh b0 = (__m512bh)_mm512_loadu_si512(b), b1 = (__m512bh)_mm512_loadu_si512(b + kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const __m512bh a_r = (__m512bh)_mm512_set1_epi32(static_cast<int>(a[r]));
      sum[r][0] = _mm512_dpbf16_ps(sum[r][0], a_r, b0);
      sum[r][1] = _mm512_dpbf16_ps(sum[r][1], a_r, b1);
    }
    a += kMr;
    b += kNr;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      __m512 value = sum[r][v];
      if (previous != nullptr) value = _mm512_add_ps(_mm512_loadu_ps(previous + r * kNr + v * kLanes), value);
      _mm512_storeu_ps(out + r * kNr + v * kLanes, value);
    }
  }
}

/// Both operands as pairs of bf16.
struct Bf16DotKernel {
  using Word = uint32_t;
  static constexpr int64_t kValues = 2;
  static constexpr int64_t kPiece = kKc;  // 128 words: 16 KiB of a B panel

  template <int kWidth>
  static void Pack(const ConstMatrix& x, bool along, int64_t width0, int64_t width, int64_t k0, int64_t depth,
                   Word* out, int64_t panel_words) {
    PackTyped<kWidth, uint16_t>(x.data, along, x.stride, width0, k0, width, depth, out, panel_words);
  }

  static PairMultiplyFn MultiplyFor(int64_t rows) {
    static constexpr PairMultiplyFn kTable[] = {MultiplyPairs<1>,  MultiplyPairs<2>,  MultiplyPairs<3>,
                                                MultiplyPairs<4>,  MultiplyPairs<5>,  MultiplyPairs<6>,
                                                MultiplyPairs<7>,  MultiplyPairs<8>,  MultiplyPairs<9>,
                                                MultiplyPairs<10>, MultiplyPairs<11>, MultiplyPairs<12>};
    return kTable[(rows < kMr ? rows : kMr) - 1];
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // HWY_MAX_BYTES == 64
#endif  // include guard, per target
