// The microkernel of `native` arithmetic on processors with AVX512_BF16: products of pairs of bf16 values, summed in fp32
// by VDPBF16PS. A word of a panel holds two values of k, so panels take half the memory of microkernel-inl.h's.
//
// What the instruction computes stands in kernels/cpu/native_dot.h. Pairs are taken in ascending k, blocks of kKc are
// added as in every other arithmetic, and an odd k at the end is paired with zero.
//
// Included once per instruction set, after hwy/foreach_target.h; see gemm.cc.

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
#include "kernels/types.h"

#if HWY_MAX_BYTES == 64
#include <immintrin.h>
#endif

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

/// Both operands as pairs of bf16. `Dot` multiplies panels: Avx512Dot, or what a test puts in its place.
template <class Dot>
struct PairKernel {
  using Word = uint32_t;
  static constexpr int kMr = HWY_NAMESPACE::kMr, kNr = HWY_NAMESPACE::kNr;
  static constexpr int64_t kValues = 2;
  static constexpr int64_t kPiece = kKc;  // 128 words: 16 KiB of a B panel on AVX-512

  static void PackA(const ConstMatrix& x, bool along, int64_t row0, int64_t rows, int64_t k0, int64_t depth, Word* out,
                    int64_t panel_words) {
    PackTyped<kMr, uint16_t>(x.data, along, x.stride, row0, k0, rows, depth, out, panel_words);
  }
  static void PackB(const ConstMatrix& x, bool along, int64_t column0, int64_t columns, int64_t k0, int64_t depth,
                    Word* out, int64_t panel_words) {
    PackTyped<kNr, uint16_t>(x.data, along, x.stride, column0, k0, columns, depth, out, panel_words);
  }
  static void Multiply(int64_t rows, int64_t words, const Word* a, const Word* b, const float* chain,
                       const float* previous, float* out) {
    Dot::Multiply(rows, words, a, b, chain, previous, out);
  }
};

#if HWY_MAX_BYTES == 64

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

struct Avx512Dot {
  static void Multiply(int64_t rows, int64_t words, const uint32_t* a, const uint32_t* b, const float* chain,
                       const float* previous, float* out) {
    static constexpr decltype(&MultiplyPairs<1>) kTable[] = {
        MultiplyPairs<1>, MultiplyPairs<2>, MultiplyPairs<3>, MultiplyPairs<4>,  MultiplyPairs<5>,  MultiplyPairs<6>,
        MultiplyPairs<7>, MultiplyPairs<8>, MultiplyPairs<9>, MultiplyPairs<10>, MultiplyPairs<11>, MultiplyPairs<12>};
    kTable[(rows < kMr ? rows : kMr) - 1](words, a, b, chain, previous, out);
  }
};

#endif  // HWY_MAX_BYTES == 64

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard, per target
