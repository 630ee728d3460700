// The inner loop under every matrix product on the CPU (GEMM and attention): a tile of kMr x kNr sums held in
// registers. Its operands are packed panels (see pack-inl.h):
//   A panel: [k][rows], the rows of one tile side by side; or by rows, a block of k and kRowPad more each, so that they
//   do not fall into the same cache sets: what few rows are copied to, and attention writes. B panel: [k][kNr], its
//   columns; or B as it lies in memory, copied to a panel on the way (UnpackedB of pack-inl.h).
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

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A product's 12 sums + 2 of B + 1 of A fill AVX2's 16 registers, 28 + 2 + 1 AVX-512's 32: the more rows, the fewer
// loads to a multiplication. Twelve independent chains per port pair cover the latency of an fma (4 cycles, two a
// cycle) with room to spare. Attention, whose tiles of keys and queries are whole panels, and pairs of bf16 take 12
// rows.
constexpr int kLanes = HWY_MAX_BYTES / 4;
constexpr int kProductMr = kLanes == 16 ? 14 : 6;
constexpr int kMr = kLanes == 16 ? 12 : 6;
constexpr int kNr = 2 * kLanes;

using Lanes = hn::CappedTag<float, kLanes>;

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
  // Of B, for the second-level cache: kRowsFetched rows of 16 lines of what is packed next, or null. Bytes from one of
  // the rows to the next, and from one cache line of a row to the next.
  const char* source = nullptr;
  int64_t source_row_stride = 0, source_line_stride = 0;
};

/// Words of k that a microkernel multiplies between two requests: these and the loop must not take the multiplications'
/// issue slots.
constexpr int kUnrolled = 4;

constexpr int kRowsFetched = 4;

/// The words of a call are taken in kRowsFetched parts of so many: in each, one row of Ahead's source is asked for, and
/// its share of the tile.
constexpr int64_t WordsOfPart(int64_t words) {
  constexpr int64_t kWhole = kRowsFetched * kUnrolled;
  return (words + kWhole - 1) / kWhole * kUnrolled;
}

/// Asks for what is ahead during a call for kRows rows: Begin at the start of a part, Next once for each kUnrolled
/// words of it. So the inner loop has no branch, which takes 5 % of a product on Intel's Cascade Lake.
template <int kRows>
struct Fetcher {
  static constexpr int kTileRows = (kRows + kRowsFetched - 1) / kRowsFetched;  // for each part

  const Ahead& ahead;
  const char* panel = ahead.panel;
  const char* source = ahead.panel;
  int64_t source_step = 0;

  HWY_INLINE void Begin(int64_t part) {
    if (kFetchesSource && ahead.source != nullptr) {
      source = ahead.source + part * ahead.source_row_stride;
      source_step = ahead.source_line_stride;
    }
    for (int64_t r = part * kTileRows; r < kRows && r < (part + 1) * kTileRows; ++r) {
      const char* row = ahead.tile + r * ahead.tile_stride;
      __builtin_prefetch(row, 1);
      if (kNr * sizeof(float) > 64) __builtin_prefetch(row + 64, 1);
    }
  }
  HWY_INLINE void Next() {
    __builtin_prefetch(panel, 0, 2);
    if (kFetchesSource) __builtin_prefetch(source, 0, 2);
    panel += 64;
    source += source_step;
  }
};

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

/// A packed panel of B as an operand of Multiply.
struct PackedB {
  const float* panel;

  HWY_INLINE hn::Vec<hn::CappedTag<float, kLanes>> Load(int v) const {
    return hn::LoadU(hn::CappedTag<float, kLanes>(), panel + v * kLanes);
  }
  HWY_INLINE void Next() { panel += kNr; }
};

/// out (kRows, kNr) = previous + A panel (kc, kWidth) * B (kc, kNr). `previous` is (kRows, kNr), null for zero, and
/// may be `out`. kByRow: the A panel is rows, kKc + kRowPad values apart. `B`: PackedB, or what has its functions.
template <int kRows, int kWidth, bool kByRow, class B>
HWY_NOINLINE void Multiply(int64_t kc, const float* HWY_RESTRICT a, B b, const float* previous, const TileOut& out,
                           const Ahead& ahead) {
  const hn::CappedTag<float, kLanes> d;
  using V = hn::Vec<decltype(d)>;
  V sum[kRows][2];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = hn::Zero(d);
  const auto add_products = [&]() HWY_ATTR {
    const V b0 = b.Load(0);
    const V b1 = b.Load(1);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const V a_r = hn::Set(d, a[kByRow ? r * (kKc + kRowPad) : r]);
      sum[r][0] = hn::MulAdd(a_r, b0, sum[r][0]);
      sum[r][1] = hn::MulAdd(a_r, b1, sum[r][1]);
    }
    a += kByRow ? 1 : kWidth;
    b.Next();
  };
  int64_t k = 0;
#if HWY_MAX_BYTES == 32
  if constexpr (kRows == kMr && std::is_same_v<B, PackedB>) {
    k = kc / kUnrolled * kUnrolled;
    if (k > 0) MultiplyQuads<kByRow>(k / kUnrolled, a, b.panel, ahead, sum);
    a += k * (kByRow ? 1 : kWidth);
    b.panel += k * kNr;
  }
#endif
  Fetcher<kRows> fetcher{ahead};
  for (int64_t part = 0; k + kUnrolled <= kc; ++part) {
    fetcher.Begin(part);
    for (const int64_t end = std::min(k + WordsOfPart(kc), kc - kUnrolled + 1); k < end; k += kUnrolled) {
      fetcher.Next();
#pragma GCC unroll 4
      for (int i = 0; i < kUnrolled; ++i) add_products();
    }
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

using MultiplyFn = void (*)(int64_t, const float*, PackedB, const float*, const TileOut&, const Ahead&);

/// Multiply<rows> of panels for kWidth rows: a tile at the lower edge computes its own rows only, which is what makes a
/// single row (sampling) cheap.
template <int kWidth, bool kByRow>
HWY_INLINE MultiplyFn MultiplyFor(int64_t rows) {
  static constexpr auto kTable = []<int... kLess>(std::integer_sequence<int, kLess...>) {
    return std::array<MultiplyFn, kWidth>{Multiply<kLess + 1, kWidth, kByRow, PackedB>...};
  }
  (std::make_integer_sequence<int, kWidth>());
  return kTable[static_cast<size_t>((rows < kWidth ? rows : kWidth) - 1)];
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard, per target
