// The microkernel of `native` arithmetic on processors with AMX: tiles of 16 x 16 sums, each step of which takes 32 k
// by TDPBF16PS (kernels/cpu/native_dot.h is its definition). Four tiles of sums use each loaded tile of A and of B
// twice.
//
//   A panel: [row of 32][k pair], as tiles of A lie in memory; B panel: [k pair][column of 32], as in
//   gemm_bf16_dot-inl.h.
//
// Blocks of kNativeBlock start from zero and are added as in every other arithmetic; k beyond the end counts as zero,
// in whole steps of 32. Included once per instruction set, after hwy/foreach_target.h; see gemm.cc.

#if defined(HOLDFAST_KERNELS_CPU_GEMM_AMX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLDFAST_KERNELS_CPU_GEMM_AMX_INL_H_
#undef HOLDFAST_KERNELS_CPU_GEMM_AMX_INL_H_
#else
#define HOLDFAST_KERNELS_CPU_GEMM_AMX_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/microkernel-inl.h"
#include "kernels/cpu/native_dot.h"
#include "kernels/cpu/pack-inl.h"
#include "kernels/types.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

/// What LDTILECFG reads: palette 1, and for each tile its rows and bytes per row.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

/// The tile registers of this thread. By assembly, since GCC 12's intrinsics take literal register numbers only.
struct AmxTiles {
  AmxTiles() {
    static constexpr TileConfig kConfig;
    asm volatile("ldtilecfg %0" ::"m"(kConfig));
  }
  ~AmxTiles() { asm volatile("tilerelease" ::); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;

  template <int kTile>
  void Zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  template <int kTile>
  void Load(const uint32_t* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride * 4), "i"(kTile) : "memory");
  }
  template <int kTile>
  void Store(float* to, int64_t stride) {  // NOLINT(readability-non-const-parameter): the assembly writes to it
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride * 4), "i"(kTile) : "memory");
  }
  /// C += A B.
  template <int kC, int kA, int kB>
  void Dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
  }
};

constexpr int kAmxSize = 32;  // rows and columns of what one Multiply computes

/// out (32, 32) = previous + A panel * B panel, for `steps` of 32 k. `Tiles`: AmxTiles, or what a test puts in its
/// place.
template <class Tiles>
void MultiplyTiles(int64_t steps, const uint32_t* a, int64_t a_stride, const uint32_t* b, const float* previous,
                   const TileOut& out) {
  Tiles tiles;
  tiles.template Zero<0>();
  tiles.template Zero<1>();
  tiles.template Zero<2>();
  tiles.template Zero<3>();
  for (int64_t step = 0; step < steps; ++step) {
    tiles.template Load<4>(a + step * 16, a_stride);
    tiles.template Load<5>(a + 16 * a_stride + step * 16, a_stride);
    tiles.template Load<6>(b + step * 16 * kAmxSize, kAmxSize);
    tiles.template Load<7>(b + step * 16 * kAmxSize + 16, kAmxSize);
    tiles.template Dot<0, 4, 6>();
    tiles.template Dot<1, 4, 7>();
    tiles.template Dot<2, 5, 6>();
    tiles.template Dot<3, 5, 7>();
  }
  alignas(64) float sums[kAmxSize * kAmxSize];
  const bool at_once = previous == nullptr && out.as == TileOut::As::kF32;
  float* to = at_once ? static_cast<float*>(out.rows) : sums;
  const int64_t stride = at_once ? out.stride : kAmxSize;
  tiles.template Store<0>(to, stride);
  tiles.template Store<1>(to + 16, stride);
  tiles.template Store<2>(to + 16 * stride, stride);
  tiles.template Store<3>(to + 16 * stride + 16, stride);
  if (at_once) return;
  const hn::CappedTag<float, kLanes> d;
  StoreSums<kAmxSize, kAmxSize / kLanes>(out, [&](int r, int v) HWY_ATTR {
    const int64_t at = r * kAmxSize + v * kLanes;
    const auto sum = hn::Load(d, sums + at);
    return previous == nullptr ? sum : hn::Add(hn::LoadU(d, previous + at), sum);
  });
}

template <class Tiles>
struct AmxKernel {
  using Word = uint32_t;
  static constexpr int64_t kValues = 2;
  static constexpr int64_t kBlock = kNativeBlock;
  static constexpr int kMr = kAmxSize, kNr = kAmxSize;
  static constexpr int64_t kRowWords = kBlock / kValues + kRowPad;
  static constexpr bool kPacksByRow = true;

  static void PackA(const ConstMatrix& x, bool along, int64_t row0, int64_t rows, int64_t k0, int64_t depth, Word* out,
                    int64_t panel_words) {
    if (!along) return CopyRows(x, row0, rows, k0, depth, out, panel_words);
    std::fill_n(out, (rows + kMr - 1) / kMr * panel_words, Word{0});
    const auto* from = static_cast<const uint16_t*>(x.data);
    constexpr int64_t kPairs = kBlock / kValues;
    Word across[kPairs * kMr + kPanelPad] = {};  // [k pair][row]
    for (int64_t r0 = 0; r0 < rows; r0 += kMr, out += panel_words) {
      PackAlong<kMr>(from + k0 * x.stride + row0 + r0, x.stride, std::min<int64_t>(kMr, rows - r0), depth, across,
                     kPairs * kMr);
      for (int64_t k = 0; k < (depth + 1) / 2; k += 8) {
        for (int r = 0; r < kMr; r += 8) {
          hn::Vec<TagU8> v[8];
          LoadTransposed([&](int i) HWY_ATTR { return across + (k + i) * kMr + r; }, 8, v);
#pragma GCC unroll 8
          for (int i = 0; i < 8; ++i) hn::StoreU(v[i], TagU8(), out + (r + i) * kRowWords + k);
        }
      }
    }
  }

  /// Tiles are read whole, beyond the last row too.
  static void CopyRows(const ConstMatrix& x, int64_t row0, int64_t rows, int64_t k0, int64_t depth, Word* out,
                       int64_t panel_words) {
    std::fill_n(out, (rows + kMr - 1) / kMr * panel_words, Word{0});
    const auto* from = static_cast<const uint16_t*>(x.data) + row0 * x.stride + k0;
    for (int64_t r = 0; r < rows; ++r, from += x.stride) {
      CopyPairs(from, x.stride, depth, out + r / kMr * panel_words + r % kMr * kRowWords);
    }
  }

  static void PackB(const ConstMatrix& x, bool along, int64_t column0, int64_t columns, int64_t k0, int64_t depth,
                    Word* out, int64_t panel_words) {
    PackTyped<kNr, uint16_t>(x.data, along, x.stride, column0, k0, columns, depth, out, panel_words);
    const int64_t words = (depth + 1) / 2, whole = (words + 15) / 16 * 16;
    for (int64_t c = 0; c < columns; c += kNr, out += panel_words) {
      std::fill_n(out + words * kNr, (whole - words) * kNr, Word{0});
    }
  }

  static void Multiply(bool /*by_row*/, int64_t /*rows*/, int64_t words, const Word* a, const Word* b,
                       const float* previous, const TileOut& out, const Ahead& /*ahead*/) {
    MultiplyTiles<Tiles>((words + 15) / 16, a, kRowWords, b, previous, out);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard, per target
