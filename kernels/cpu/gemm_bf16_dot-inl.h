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

#include <algorithm>
#include <bit>
#include <cstdint>
#include <iterator>

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

/// Both operands as pairs of bf16. `Dot` multiplies panels and rounds to pairs: Avx512Dot, or what a test puts in its
/// place.
template <class Dot>
struct PairKernel {
  using Word = uint32_t;
  static constexpr int kMr = HWY_NAMESPACE::kMr, kNr = HWY_NAMESPACE::kNr;
  static constexpr int64_t kValues = 2;
  static constexpr int64_t kBlock = kNativeBlock;
  static constexpr int64_t kRowWords = kBlock / kValues + kRowPad;
  static constexpr bool kPacksByRow = false;

  static void PackA(const ConstMatrix& x, bool along, int64_t row0, int64_t rows, int64_t k0, int64_t depth, Word* out,
                    int64_t panel_words) {
    PackTyped<kMr, uint16_t>(x.data, along, x.stride, row0, k0, rows, depth, out, panel_words);
  }
  static void CopyRows(const ConstMatrix& x, int64_t row0, int64_t rows, int64_t k0, int64_t depth, Word* out,
                       int64_t panel_words) {
    const uint16_t* from = static_cast<const uint16_t*>(x.data) + row0 * x.stride + k0;
    for (int64_t r = 0; r < rows; ++r, from += x.stride) {
      CopyPairs(from, x.stride, depth, out + r / kMr * panel_words + r % kMr * kRowWords);
    }
  }
  static void PackB(const ConstMatrix& x, bool along, int64_t column0, int64_t columns, int64_t k0, int64_t depth,
                    Word* out, int64_t panel_words) {
    PackTyped<kNr, uint16_t>(x.data, along, x.stride, column0, k0, columns, depth, out, panel_words);
  }
  static void Multiply(bool by_row, int64_t rows, int64_t words, const Word* a, const Word* b, const float* previous,
                       const TileOut& out, const Ahead& ahead) {
    Dot::Multiply(by_row, rows, words, a, b, previous, out, ahead);
  }
  /// To the sums of eight columns the products of a pair of A with one of each column.
  template <class T>
  requires requires { &Dot::AddProducts; }
  static HWY_INLINE void AddProducts(const Word* a, hn::Vec<TagU8> b, hn::Vec<Tag8>* sum) {
    Dot::AddProducts(a, b, sum);
  }
  /// Values of one row as bf16, and those of an even and an odd row of k as words (RoundedToBf16).
  static HWY_INLINE hn::Vec<hn::Rebind<uint16_t, Lanes>> Round(hn::Vec<Lanes> values) { return Dot::Round(values); }
  static HWY_INLINE hn::Vec<hn::RebindToUnsigned<Lanes>> RoundPairs(hn::Vec<Lanes> even, hn::Vec<Lanes> odd) {
    return Dot::RoundPairs(even, odd);
  }
};

/// Whether Round and RoundPairs of `Dot` are RoundedToBf16 in every lane, of values that other roundings take to
/// others.
template <class Dot>
bool RoundsAsDefined() {
  constexpr uint32_t kTelling[] = {
      0x3f807fff, 0x3f808000, 0x3f808001, 0x3f817fff, 0x3f818000, 0x3f818001,  // ties, down and up, and beside them
      0x3fffffff, 0x7f7f7fff, 0x7f7f8000, 0x7f7fffff,                          // to the next exponent and to infinity
      0x00000000, 0x00000001, 0x00410000, 0x007f7fff, 0x007fffff, 0x00800000,  // zero, subnormal and the least normal
      0x7f800000, 0x7f800001, 0x7fa12345, 0x7fc1ffff, 0x7fffffff};             // infinity and NaNs
  constexpr int kCount = 2 * static_cast<int>(std::size(kTelling));
  const auto bits = [&](int i) { return kTelling[i / 2 % std::size(kTelling)] | static_cast<uint32_t>(i % 2) << 31; };
  const auto rounded = [](uint32_t from) { return RoundedToBf16(std::bit_cast<float>(from)); };
  const Lanes d;
  const hn::RebindToUnsigned<Lanes> du;
  for (int first = 0; first < kCount; ++first) {
    uint32_t even[kLanes], odd[kLanes], pairs[kLanes];
    uint16_t row[kLanes];
    for (int i = 0; i < kLanes; ++i) even[i] = bits(first + i), odd[i] = bits(first + kLanes + i);
    const auto even_values = hn::BitCast(d, hn::LoadU(du, even)), odd_values = hn::BitCast(d, hn::LoadU(du, odd));
    hn::StoreU(Dot::Round(even_values), hn::Rebind<uint16_t, Lanes>(), row);
    hn::StoreU(Dot::RoundPairs(even_values, odd_values), du, pairs);
    for (int i = 0; i < kLanes; ++i) {
      const uint32_t low = rounded(even[i]), high = rounded(odd[i]);
      if (row[i] != low || pairs[i] != (low | high << 16)) return false;
    }
  }
  return true;
}

#if HWY_MAX_BYTES == 64

/// Multiply of microkernel-inl.h on words of pairs.
constexpr int64_t kPairsRow = kNativeBlock / 2 + kRowPad;
template <int kRows, bool kByRow>
__attribute__((noinline, target("avx512bf16"))) void MultiplyPairs(int64_t words, const uint32_t* HWY_RESTRICT a,
                                                                   const uint32_t* HWY_RESTRICT b,
                                                                   const float* previous, const TileOut& out,
                                                                   const Ahead& ahead) {
  __m512 sum[kRows][2];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = _mm512_setzero_ps();
  const auto add_products = [&]() __attribute__((always_inline, target("avx512bf16"))) {
    const __m512bh b0 = (__m512bh)_mm512_loadu_si512(b), b1 = (__m512bh)_mm512_loadu_si512(b + kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const __m512bh a_r = (__m512bh)_mm512_set1_epi32(static_cast<int>(a[kByRow ? r * kPairsRow : r]));
      sum[r][0] = _mm512_dpbf16_ps(sum[r][0], a_r, b0);
      sum[r][1] = _mm512_dpbf16_ps(sum[r][1], a_r, b1);
    }
    a += kByRow ? 1 : kMr;
    b += kNr;
  };
  int64_t k = 0;
  Fetcher<kRows> fetcher{ahead};
  for (int64_t part = 0; k + kUnrolled <= words; ++part) {
    fetcher.Begin(part);
    for (const int64_t end = std::min(k + WordsOfPart(words), words - kUnrolled + 1); k < end; k += kUnrolled) {
      fetcher.Next();
#pragma GCC unroll 4
      for (int i = 0; i < kUnrolled; ++i) add_products();
    }
  }
  for (; k < words; ++k) add_products();
  if (previous != nullptr) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v) {
        sum[r][v] = _mm512_add_ps(_mm512_loadu_ps(previous + r * kNr + v * kLanes), sum[r][v]);
      }
    }
  }
  StoreSums<kRows, 2>(out, [&](int r, int v) HWY_ATTR { return hn::Vec<hn::CappedTag<float, kLanes>>{sum[r][v]}; });
}

template <bool kByRow>
decltype(&MultiplyPairs<1, kByRow>) MultiplyPairsFor(int64_t rows) {
  static constexpr decltype(&MultiplyPairs<1, kByRow>) kTable[] = {
      MultiplyPairs<1, kByRow>, MultiplyPairs<2, kByRow>,  MultiplyPairs<3, kByRow>,  MultiplyPairs<4, kByRow>,
      MultiplyPairs<5, kByRow>, MultiplyPairs<6, kByRow>,  MultiplyPairs<7, kByRow>,  MultiplyPairs<8, kByRow>,
      MultiplyPairs<9, kByRow>, MultiplyPairs<10, kByRow>, MultiplyPairs<11, kByRow>, MultiplyPairs<12, kByRow>};
  return kTable[(rows < kMr ? rows : kMr) - 1];
}

struct Avx512Dot {
  /// By assembly: the intrinsic could be inlined into functions with the instruction's target only.
  static HWY_INLINE void AddProducts(const uint32_t* a, hn::Vec<TagU8> b, hn::Vec<Tag8>* sum) {
    asm("vdpbf16ps %2%{1to8%}, %1, %0" : "+v"(sum->raw) : "v"(b.raw), "m"(*a));
  }
  static HWY_INLINE hn::Vec<hn::Rebind<uint16_t, Lanes>> Round(hn::Vec<Lanes> values) {
    hn::Vec<hn::Rebind<uint16_t, Lanes>> rounded;
    asm("vcvtneps2bf16 %1, %0" : "=v"(rounded.raw) : "v"(values.raw));
    return rounded;
  }
  static HWY_INLINE hn::Vec<hn::RebindToUnsigned<Lanes>> RoundPairs(hn::Vec<Lanes> even, hn::Vec<Lanes> odd) {
    __m512i halves;
    asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(halves) : "v"(even.raw), "v"(odd.raw));
    alignas(64) static constexpr uint16_t kInTurns[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                          8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return hn::Vec<hn::RebindToUnsigned<Lanes>>{_mm512_permutexvar_epi16(_mm512_load_si512(kInTurns), halves)};
  }
  static void Multiply(bool by_row, int64_t rows, int64_t words, const uint32_t* a, const uint32_t* b,
                       const float* previous, const TileOut& out, const Ahead& ahead) {
    (by_row ? MultiplyPairsFor<true>(rows) : MultiplyPairsFor<false>(rows))(words, a, b, previous, out, ahead);
  }
};

#endif  // HWY_MAX_BYTES == 64

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard, per target
