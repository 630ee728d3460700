// The microkernel of `native` arithmetic on processors with AVX512_BF16: products of pairs of bf16 values, summed in
// fp32 by VDPBF16PS. A word of a panel holds two values of k, so panels take half the memory of microkernel-inl.h's.
//
// What the instruction computes stands in kernels/cpu/native_dot.h. Pairs are taken in ascending k, blocks of
// kNativeBlock are added as in every other arithmetic, and an odd k at the end is paired with zero.
//
// Included once per instruction set, after hwy/foreach_target.h; see gemm.cc.

#if defined(HOLDFAST_KERNELS_CPU_GEMM_BF16_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLDFAST_KERNELS_CPU_GEMM_BF16_DOT_INL_H_
#undef HOLDFAST_KERNELS_CPU_GEMM_BF16_DOT_INL_H_
#else
#define HOLDFAST_KERNELS_CPU_GEMM_BF16_DOT_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/microkernel-inl.h"
#include "kernels/cpu/native_dot.h"
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
  static constexpr int64_t kBlock = kNativeBlock;
  static constexpr int64_t kRowWords = kBlock / kValues + kRowPad;

  static void PackA(const ConstMatrix& x, bool along, int64_t row0, int64_t rows, int64_t k0, int64_t depth, Word* out,
                    int64_t panel_words) {
    if (along) {
      PackTyped<kMr, uint16_t>(x.data, along, x.stride, row0, k0, rows, depth, out, panel_words);
      return;
    }
    const uint16_t* from = static_cast<const uint16_t*>(x.data) + row0 * x.stride + k0;
    for (int64_t r = 0; r < rows; ++r, from += x.stride) {
      CopyPairs(from, depth, out + r / kMr * panel_words + r % kMr * kRowWords);
    }
  }
  static void PackB(const ConstMatrix& x, bool along, int64_t column0, int64_t columns, int64_t k0, int64_t depth,
                    Word* out, int64_t panel_words) {
    PackTyped<kNr, uint16_t>(x.data, along, x.stride, column0, k0, columns, depth, out, panel_words);
  }
  static void Multiply(bool by_row, int64_t rows, int64_t words, const Word* a, const Word* b, const float* previous,
                       float* out, const Ahead& ahead) {
    by_row ? Dot::template Multiply<kRowWords>(rows, words, a, b, previous, out, ahead)
           : Dot::template Multiply<0>(rows, words, a, b, previous, out, ahead);
  }
};

#if HWY_MAX_BYTES == 64

/// Multiply of microkernel-inl.h on words of pairs. kRowWords: of a row of the A panel; 0 = the panel is [k][kMr].
template <int kRows, int64_t kRowWords>
__attribute__((noinline, target("avx512bf16"))) void MultiplyPairs(int64_t words, const uint32_t* HWY_RESTRICT a,
                                                                   const uint32_t* HWY_RESTRICT b,
                                                                   const float* previous, float* out,
                                                                   const Ahead& ahead) {
  __m512 sum[kRows][2];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = _mm512_setzero_ps();
  const auto add_products = [&]() __attribute__((always_inline, target("avx512bf16"))) {
    const __m512bh b0 = (__m512bh)_mm512_loadu_si512(b), b1 = (__m512bh)_mm512_loadu_si512(b + kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const __m512bh a_r = (__m512bh)_mm512_set1_epi32(static_cast<int>(a[kRowWords == 0 ? r : r * kRowWords]));
      sum[r][0] = _mm512_dpbf16_ps(sum[r][0], a_r, b0);
      sum[r][1] = _mm512_dpbf16_ps(sum[r][1], a_r, b1);
    }
    a += kRowWords == 0 ? kMr : 1;
    b += kNr;
  };
  int64_t k = 0;
  for (; k + kUnrolled <= words; k += kUnrolled) {
    FetchAhead<kRows>(k, ahead);
#pragma GCC unroll 4
    for (int i = 0; i < kUnrolled; ++i) add_products();
  }
  for (; k < words; ++k) add_products();
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
  template <int64_t kRowWords>
  static void Multiply(int64_t rows, int64_t words, const uint32_t* a, const uint32_t* b, const float* previous,
                       float* out, const Ahead& ahead) {
    static constexpr decltype(&MultiplyPairs<1, kRowWords>) kTable[] = {
        MultiplyPairs<1, kRowWords>,  MultiplyPairs<2, kRowWords>,  MultiplyPairs<3, kRowWords>,
        MultiplyPairs<4, kRowWords>,  MultiplyPairs<5, kRowWords>,  MultiplyPairs<6, kRowWords>,
        MultiplyPairs<7, kRowWords>,  MultiplyPairs<8, kRowWords>,  MultiplyPairs<9, kRowWords>,
        MultiplyPairs<10, kRowWords>, MultiplyPairs<11, kRowWords>, MultiplyPairs<12, kRowWords>};
    kTable[(rows < kMr ? rows : kMr) - 1](words, a, b, previous, out, ahead);
  }
};

#endif  // HWY_MAX_BYTES == 64

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard, per target
