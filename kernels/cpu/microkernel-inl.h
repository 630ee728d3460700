// The inner loop under every matrix product on the CPU (GEMM and attention): a tile of kMr x kNr sums held in
// registers. Its operands are packed panels (see pack-inl.h):
//   A panel: [k][kMr], the rows of one tile side by side; or by rows, kMr of a block of k and kRowPad more each, so
//   that they do not fall into the same cache sets: what few rows are copied to, and attention writes. B panel:
//   [k][kNr], its columns.
//
// Each element is one chain of fused multiply-adds over ascending k. Callers cut k into blocks of kKc, the same on
// every instruction set, and add the blocks in ascending order: so an element's bits depend on its row of A, its column
// of B and k only, not on where the tile lies, how many rows there are, the thread or the vector width.
//
// Included once per instruction set, after hwy/foreach_target.h; see gemm.cc.

#if defined(HOLDFAST_KERNELS_CPU_MICROKERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLDFAST_KERNELS_CPU_MICROKERNEL_INL_H_
#undef HOLDFAST_KERNELS_CPU_MICROKERNEL_INL_H_
#else
#define HOLDFAST_KERNELS_CPU_MICROKERNEL_INL_H_
#endif

#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 12 sums + 2 of B + 1 of A fill AVX2's 16 registers; 24 + 2 + 1 of AVX-512's 32. Twelve independent chains per port
// pair cover the latency of an fma (4 cycles, two a cycle) with room to spare.
constexpr int kLanes = HWY_MAX_BYTES / 4;
constexpr int kMr = kLanes == 16 ? 12 : 6;
constexpr int kNr = 2 * kLanes;

/// Products along k are added up in blocks of this depth: part of the bits.
constexpr int64_t kKc = 256;

constexpr int64_t kRowPad = 16;

/// Whether a microkernel also asks for the B that is packed next. On AVX2 that takes issue slots which the
/// multiplications need.
constexpr bool kFetchesSource = kLanes == 16;

/// What a microkernel asks for while it multiplies, a line at a time: in a burst before it the lines would fill the
/// queue of outstanding ones and stall what follows.
struct Ahead {
  const char* panel = nullptr;  // of A, for the second-level cache
  const char* tile = nullptr;   // rows of kNr floats or less, to be written: for the first-level cache
  int64_t tile_stride = 0;      // bytes
  // Of B, for the second-level cache: kRowsFetched rows of what is packed next, or null. Bytes from one of the rows to
  // the next, and from one cache line of a row to the next.
  const char* source = nullptr;
  int64_t source_row_stride = 0, source_line_stride = 0;
};

/// Words of k from one call of FetchAhead to the next: it and the loop must not take the multiplications' issue slots.
constexpr int kUnrolled = 4;

constexpr int kRowsFetched = 4;
constexpr int kWordsOfLine = 16;

/// The words of k from `word`, a multiple of kUnrolled, on are being multiplied.
template <int kRows>
HWY_INLINE void FetchAhead(int64_t word, const Ahead& ahead) {
  __builtin_prefetch(ahead.panel + word * 16, 0, 2);
  if (kFetchesSource && ahead.source != nullptr) {
    const int64_t row = word / kUnrolled % kRowsFetched, line = word / kWordsOfLine;
    __builtin_prefetch(ahead.source + row * ahead.source_row_stride + line * ahead.source_line_stride, 0, 2);
  }
  if (word % 8 == 0 && word < 8 * kRows) {
    const char* row = ahead.tile + word / 8 * ahead.tile_stride;
    __builtin_prefetch(row, 1);
    if (kNr * sizeof(float) > 64) __builtin_prefetch(row + 64, 1);
  }
}

/// Where a microkernel writes its sums, rows of kNr, and as what.
struct TileOut {
  enum class As : uint8_t {
    kF32,
    kF32PastCaches,  // rows begin at cache lines
    kF32Added,       // to what is there
    kBF16,
  };
  void* rows;
  int64_t stride;  // elements from one row to the next
  As as = As::kF32;
};

/// store(sums, row, column) for the vectors of a tile: sums_of(row, vector).
template <int kRows, int kVectors, class SumsOf, class Store>
HWY_INLINE void ForVectors(const SumsOf& sums_of, const Store& store) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) store(sums_of(r, v), r, v * kLanes);
  }
}

template <int kRows, int kVectors, class SumsOf>
HWY_INLINE void StoreSums(const TileOut& out, const SumsOf& sums_of) {
  const hn::CappedTag<float, kLanes> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t stride = out.stride;
  float* const f32 = static_cast<float*>(out.rows);
  uint16_t* const bf16 = static_cast<uint16_t*>(out.rows);
  switch (out.as) {
    case TileOut::As::kF32:
      return ForVectors<kRows, kVectors>(
          sums_of, [&](V sums, int r, int64_t c) HWY_ATTR { hn::StoreU(sums, d, f32 + r * stride + c); });
    case TileOut::As::kF32PastCaches:
      return ForVectors<kRows, kVectors>(
          sums_of, [&](V sums, int r, int64_t c) HWY_ATTR { hn::Stream(sums, d, f32 + r * stride + c); });
    case TileOut::As::kF32Added:
      return ForVectors<kRows, kVectors>(sums_of, [&](V sums, int r, int64_t c) HWY_ATTR {
        float* const to = f32 + r * stride + c;
        hn::StoreU(hn::Add(sums, hn::LoadU(d, to)), d, to);
      });
    case TileOut::As::kBF16:
      return ForVectors<kRows, kVectors>(
          sums_of, [&](V sums, int r, int64_t c) HWY_ATTR { StoreBf16(d, sums, bf16 + r * stride + c); });
  }
}

#if HWY_MAX_BYTES == 32
// One word of k of a whole tile: B in ymm12 and ymm13, rows of A in ymm14 and ymm15.
#define HOLDFAST_ROW(word, row, a, sum0, sum1)                       \
  "vbroadcastss %c[word]*" #word "+%c[row]*" #row "(%[a]), %%ymm" #a \
  "\n\t"                                                             \
  "vfmadd231ps %%ymm12, %%ymm" #a ", %[" #sum0 "]\n\tvfmadd231ps %%ymm13, %%ymm" #a ", %[" #sum1 "]\n\t"
#define HOLDFAST_WORD(word)                                                                                       \
  "vmovups 64*" #word "(%[b]), %%ymm12\n\tvmovups 64*" #word                                                      \
  "+32(%[b]), %%ymm13\n\t" HOLDFAST_ROW(word, 0, 14, s00, s01) HOLDFAST_ROW(word, 1, 15, s10, s11)                \
      HOLDFAST_ROW(word, 2, 14, s20, s21) HOLDFAST_ROW(word, 3, 15, s30, s31) HOLDFAST_ROW(word, 4, 14, s40, s41) \
          HOLDFAST_ROW(word, 5, 15, s50, s51)

/// Multiply's loop for a whole tile over `quads` (at least 1) times kUnrolled words of k. Of intrinsics gcc 12 makes
/// one that keeps a sum in memory, whose chain is then the longest, and takes a sixth more instructions: 0.75 to 0.9 of
/// the peak on Zen 3, this one 0.85 to 0.97 (both with a neighbour on the same core).
template <bool kByRow, class V>
HWY_INLINE void MultiplyQuads(int64_t quads, const float* a, const float* b, const Ahead& ahead, V (&sum)[kMr][2]) {
  for (int r = 0; r < kMr; ++r) __builtin_prefetch(ahead.tile + r * ahead.tile_stride, 1);
  const char* panel = ahead.panel;
  __m256 s00, s01, s10, s11, s20, s21, s30, s31, s40, s41, s50, s51;
  asm volatile(
      "vxorps %[s00], %[s00], %[s00]\n\tvxorps %[s01], %[s01], %[s01]\n\t"
      "vxorps %[s10], %[s10], %[s10]\n\tvxorps %[s11], %[s11], %[s11]\n\t"
      "vxorps %[s20], %[s20], %[s20]\n\tvxorps %[s21], %[s21], %[s21]\n\t"
      "vxorps %[s30], %[s30], %[s30]\n\tvxorps %[s31], %[s31], %[s31]\n\t"
      "vxorps %[s40], %[s40], %[s40]\n\tvxorps %[s41], %[s41], %[s41]\n\t"
      "vxorps %[s50], %[s50], %[s50]\n\tvxorps %[s51], %[s51], %[s51]\n\t"
      ".p2align 5\n"
      "1:\n\t"
      "prefetcht1 (%[panel])\n\t"  // for the second-level cache
      HOLDFAST_WORD(0) HOLDFAST_WORD(1) HOLDFAST_WORD(2) HOLDFAST_WORD(3)
      "add $4*%c[word], %[a]\n\t"
      "add $4*64, %[b]\n\t"
      "add $64, %[panel]\n\t"
      "dec %[quads]\n\t"
      "jnz 1b\n\t"
      : [s00] "=&x"(s00), [s01] "=&x"(s01), [s10] "=&x"(s10), [s11] "=&x"(s11), [s20] "=&x"(s20), [s21] "=&x"(s21),
        [s30] "=&x"(s30), [s31] "=&x"(s31), [s40] "=&x"(s40), [s41] "=&x"(s41), [s50] "=&x"(s50), [s51] "=&x"(s51),
        [a] "+r"(a), [b] "+r"(b), [panel] "+r"(panel), [quads] "+r"(quads)
      : [word] "n"(kByRow ? 4 : 4 * kMr), [row] "n"(kByRow ? 4 * (kKc + kRowPad) : 4)
      : "xmm12", "xmm13", "xmm14", "xmm15", "memory", "cc");
  const __m256 sums[kMr][2] = {{s00, s01}, {s10, s11}, {s20, s21}, {s30, s31}, {s40, s41}, {s50, s51}};
#pragma GCC unroll 6
  for (int r = 0; r < kMr; ++r) {
    sum[r][0] = V{sums[r][0]};
    sum[r][1] = V{sums[r][1]};
  }
}
#undef HOLDFAST_WORD
#undef HOLDFAST_ROW
#endif

/// out (kRows, kNr) = previous + A panel (kc, kMr) * B panel (kc, kNr). `previous` is (kRows, kNr), null for zero, and
/// may be `out`. kByRow: the A panel is rows, kKc + kRowPad values apart.
template <int kRows, bool kByRow>
HWY_NOINLINE void Multiply(int64_t kc, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, const float* previous,
                           const TileOut& out, const Ahead& ahead) {
  const hn::CappedTag<float, kLanes> d;
  using V = hn::Vec<decltype(d)>;
  V sum[kRows][2];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = hn::Zero(d);
  const auto add_products = [&]() HWY_ATTR {
    const V b0 = hn::LoadU(d, b);
    const V b1 = hn::LoadU(d, b + kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const V a_r = hn::Set(d, a[kByRow ? r * (kKc + kRowPad) : r]);
      sum[r][0] = hn::MulAdd(a_r, b0, sum[r][0]);
      sum[r][1] = hn::MulAdd(a_r, b1, sum[r][1]);
    }
    a += kByRow ? 1 : kMr;
    b += kNr;
  };
  int64_t k = 0;
#if HWY_MAX_BYTES == 32
  if constexpr (kRows == kMr) {
    k = kc / kUnrolled * kUnrolled;
    if (k > 0) MultiplyQuads<kByRow>(k / kUnrolled, a, b, ahead, sum);
    a += k * (kByRow ? 1 : kMr);
    b += k * kNr;
  }
#endif
  for (; k + kUnrolled <= kc; k += kUnrolled) {
    FetchAhead<kRows>(k, ahead);
#pragma GCC unroll 4
    for (int i = 0; i < kUnrolled; ++i) add_products();
  }
  for (; k < kc; ++k) add_products();
  if (previous != nullptr) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v) sum[r][v] = hn::Add(hn::LoadU(d, previous + r * kNr + v * kLanes), sum[r][v]);
    }
  }
  StoreSums<kRows, 2>(out, [&](int r, int v) HWY_ATTR { return sum[r][v]; });
}

using MultiplyFn = void (*)(int64_t, const float*, const float*, const float*, const TileOut&, const Ahead&);

/// Multiply<rows>: a tile at the lower edge computes its own rows only, which is what makes a single row (sampling)
/// cheap.
template <bool kByRow>
HWY_INLINE MultiplyFn MultiplyFor(int64_t rows) {
  static constexpr MultiplyFn kTable[] = {
    Multiply<1, kByRow>,
    Multiply<2, kByRow>,
    Multiply<3, kByRow>,
    Multiply<4, kByRow>,
    Multiply<5, kByRow>,
    Multiply<6, kByRow>,
#if HWY_MAX_BYTES == 64
    Multiply<7, kByRow>,
    Multiply<8, kByRow>,
    Multiply<9, kByRow>,
    Multiply<10, kByRow>,
    Multiply<11, kByRow>,
    Multiply<12, kByRow>,
#endif
  };
  return kTable[(rows < kMr ? rows : kMr) - 1];
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard, per target
