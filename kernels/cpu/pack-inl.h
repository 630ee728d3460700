// Copies a piece of a matrix into the panel the microkernel reads: [k][kWidth] in fp32, where `width` runs over the
// rows of A or the columns of B. bf16 becomes fp32 here, once per element and not once per use.
//
// Included once per instruction set, after hwy/foreach_target.h; see gemm.cc.

#if defined(HOLDFAST_KERNELS_CPU_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLDFAST_KERNELS_CPU_PACK_INL_H_
#undef HOLDFAST_KERNELS_CPU_PACK_INL_H_
#else
#define HOLDFAST_KERNELS_CPU_PACK_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Panels of a width that is no multiple of 8 are written with stores of 8 that run into the next k (rewritten by it)
/// and past the end: every panel has this many floats to spare behind it.
constexpr int64_t kPanelPad = 8;

using Tag8 = hn::CappedTag<float, 8>;
using TagU8 = hn::RebindToUnsigned<Tag8>;

HWY_INLINE float AsFloat(float x) { return x; }
HWY_INLINE float AsFloat(uint16_t x) { return std::bit_cast<float>(uint32_t{x} << 16); }

HWY_INLINE hn::Vec<Tag8> Load8(const float* from) { return hn::LoadU(Tag8(), from); }
HWY_INLINE hn::Vec<Tag8> Load8(const uint16_t* from) { return LoadBf16(Tag8(), from); }

/// v[i] lane j <-> v[j] lane i, for 32-bit lanes.
template <class V>
HWY_INLINE void Transpose8x8(V* v) {
  const TagU8 d;
  const hn::RepartitionToWide<TagU8> dw;
  V t[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    t[i] = hn::InterleaveLower(d, v[i], v[i + 1]);
    t[i + 1] = hn::InterleaveUpper(d, v[i], v[i + 1]);
  }
  V u[8];
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      const auto low = hn::BitCast(dw, t[i + j]);
      const auto high = hn::BitCast(dw, t[i + j + 2]);
      u[i + 2 * j] = hn::BitCast(d, hn::InterleaveLower(dw, low, high));
      u[i + 2 * j + 1] = hn::BitCast(d, hn::InterleaveUpper(dw, low, high));
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    v[i] = hn::ConcatLowerLower(d, u[i + 4], u[i]);
    v[i + 4] = hn::ConcatUpperUpper(d, u[i + 4], u[i]);
  }
}

/// Eight rows x 8 k of fp32 -> out[k][kWidth]. Rows from `rows` on count as zero.
template <int kWidth>
HWY_INLINE void Transpose8(const float* from, int64_t stride, int rows, float* out) {
  const TagU8 du;
  hn::Vec<TagU8> v[8];
#pragma GCC unroll 8
  for (int r = 0; r < 8; ++r) {
    v[r] = r < rows ? hn::LoadU(du, reinterpret_cast<const uint32_t*>(from + r * stride)) : hn::Zero(du);
  }
  Transpose8x8(v);
#pragma GCC unroll 8
  for (int k = 0; k < 8; ++k) hn::StoreU(hn::BitCast(Tag8(), v[k]), Tag8(), out + k * kWidth);
}

/// Eight rows x 16 k of bf16: transposed as pairs, which halves the shuffles, and split into even and odd k at the end.
template <int kWidth>
HWY_INLINE void Transpose8(const uint16_t* from, int64_t stride, int rows, float* out) {
  const TagU8 du;
  const hn::Repartition<uint16_t, TagU8> dh;
  hn::Vec<TagU8> v[8];
#pragma GCC unroll 8
  for (int r = 0; r < 8; ++r) v[r] = r < rows ? hn::BitCast(du, hn::LoadU(dh, from + r * stride)) : hn::Zero(du);
  Transpose8x8(v);
  const auto upper = hn::Set(du, 0xffff0000u);
#pragma GCC unroll 8
  for (int k = 0; k < 8; ++k) {
    hn::StoreU(hn::BitCast(Tag8(), hn::ShiftLeft<16>(v[k])), Tag8(), out + 2 * k * kWidth);
    hn::StoreU(hn::BitCast(Tag8(), hn::And(v[k], upper)), Tag8(), out + (2 * k + 1) * kWidth);
  }
}

/// Source with k contiguous: from[w * stride + k]. Widths from `width` on are filled with zero.
template <int kWidth, class T>
HWY_NOINLINE void PackAcross(const T* from, int64_t stride, int64_t width, int64_t kc, float* HWY_RESTRICT out) {
  constexpr int kStep = sizeof(T) == 2 ? 16 : 8;
  constexpr int kGroups = (kWidth + 7) / 8;
  for (int64_t k = 0; k < kc; k += kStep) {
    const int64_t left = kc - k;
    // From the last group to the first: a group narrower than 8 spills into the next k, and the first group mends it.
#pragma GCC unroll 4
    for (int group = kGroups - 1; group >= 0; --group) {
      const int in_panel = std::min(8, kWidth - group * 8);
      const int rows = static_cast<int>(std::clamp<int64_t>(width - group * 8, 0, in_panel));
      const T* corner = from + group * 8 * stride + k;
      float* to = out + k * kWidth + group * 8;
      if (left < kStep) {
        for (int64_t i = 0; i < left; ++i) {
          for (int r = 0; r < in_panel; ++r) to[i * kWidth + r] = r < rows ? AsFloat(corner[r * stride + i]) : 0.0f;
        }
      } else if (rows == in_panel) {
        Transpose8<kWidth>(corner, stride, in_panel, to);
      } else {
        Transpose8<kWidth>(corner, stride, rows, to);
      }
    }
  }
}

/// kWidth consecutive elements. `spare`: at least kWidth rounded up to 8 elements follow in memory, and the floats
/// behind `to` are free until the next k is written.
template <int kWidth, class T>
HWY_INLINE void CopyRow(const T* row, bool spare, float* to) {
  constexpr int kWhole = kWidth / 8 * 8;
  for (int w = 0; w < kWhole; w += 8) hn::StoreU(Load8(row + w), Tag8(), to + w);
  if constexpr (kWhole < kWidth) {
    if (spare) {
      hn::StoreU(Load8(row + kWhole), Tag8(), to + kWhole);
    } else {
      for (int w = kWhole; w < kWidth; ++w) to[w] = AsFloat(row[w]);
    }
  }
}

/// Source with the width contiguous: from[k * stride + w], as panels `panel_size` floats apart. k is the outer loop, so
/// that a line of memory is read once: rows a multiple of 4 KiB apart push each other out of the first-level cache. The
/// last panel is filled up with zeros.
template <int kWidth, class T>
HWY_NOINLINE void PackAlong(const T* from, int64_t stride, int64_t width, int64_t kc, float* HWY_RESTRICT out,
                            int64_t panel_size) {
  const int64_t whole = width / kWidth, rest = width % kWidth;
  for (int64_t k = 0; k < kc; ++k) {
    const T* row = from + k * stride;
    float* to = out + k * kWidth;
    for (int64_t panel = 0; panel < whole; ++panel, to += panel_size) {
      CopyRow<kWidth>(row + panel * kWidth, width - panel * kWidth >= (kWidth + 7) / 8 * 8, to);
    }
    if (rest == 0) continue;
    for (int w = 0; w < kWidth; ++w) to[w] = w < rest ? AsFloat(row[whole * kWidth + w]) : 0.0f;
  }
}

/// Panels of `width` rows (or columns) of a matrix of either element type, `panel_size` floats apart. `along`: the
/// width runs along the matrix's rows. (width0, k0) is the first element in those coordinates.
template <int kWidth, class T>
HWY_INLINE void PackTyped(const T* from, bool along, int64_t stride, int64_t width, int64_t kc, float* out,
                          int64_t panel_size) {
  if (along) {
    PackAlong<kWidth>(from, stride, width, kc, out, panel_size);
    return;
  }
  for (int64_t w = 0; w < width; w += kWidth, out += panel_size) {
    PackAcross<kWidth>(from + w * stride, stride, std::min<int64_t>(kWidth, width - w), kc, out);
  }
}

template <int kWidth>
HWY_INLINE void PackPanels(const void* data, bool bf16, bool along, int64_t stride, int64_t width0, int64_t k0,
                           int64_t width, int64_t kc, float* out, int64_t panel_size) {
  const int64_t first = along ? k0 * stride + width0 : width0 * stride + k0;
  if (bf16) {
    PackTyped<kWidth>(static_cast<const uint16_t*>(data) + first, along, stride, width, kc, out, panel_size);
  } else {
    PackTyped<kWidth>(static_cast<const float*>(data) + first, along, stride, width, kc, out, panel_size);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard, per target
