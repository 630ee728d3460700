// Copies a piece of a matrix into the panel the microkernel reads: [k][kWidth] words, where `width` runs over the rows
// of A or the columns of B. A word is an fp32 value (bf16 is widened here, once per element and not once per use), or a
// pair of bf16 values, k and k + 1 (gemm_bf16_dot-inl.h).
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
#include <cstring>

#include "hwy/highway.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/microkernel-inl.h"
#include "kernels/types.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Transposed panels of a width that is no multiple of 8 are written eight words at a time, which run into the next k
/// (rewritten by it) and past the end: every panel has this many words to spare behind it.
constexpr int64_t kPanelPad = 16;

/// Elements of T in a cache line.
template <class T>
constexpr int64_t kLine = 64 / sizeof(T);

/// Rows are a page or more apart, which the hardware does not foresee: they are asked for this much ahead, for the
/// second-level cache, which waits for more lines at a time than the first.
constexpr int64_t kRowsAhead = 16;
constexpr int64_t kLinesAhead = 4;
constexpr int64_t kCopiedRowsAhead = 2;
HWY_INLINE void Fetch(const void* line) { __builtin_prefetch(line, 0, 2); }

using Tag8 = hn::CappedTag<float, 8>;
using TagU8 = hn::RebindToUnsigned<Tag8>;

HWY_INLINE float AsFloat(float x) { return x; }
HWY_INLINE float AsFloat(uint16_t x) { return std::bit_cast<float>(uint32_t{x} << 16); }

template <class D>
HWY_INLINE hn::Vec<D> LoadAsF32(D d, const float* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE hn::Vec<D> LoadAsF32(D d, const uint16_t* from) {
  return LoadBf16(d, from);
}

/// out[w] lane r = word w of row r, of eight rows of eight words. `row(r)`: where row r lies; from `rows` on
/// they count as zero. Rows r and r + 4 are put beside each other by the loads, which take no shuffles.
template <class RowAt>
HWY_INLINE void LoadTransposed(const RowAt& row, int rows, hn::Vec<TagU8>* out) {
  const TagU8 d;
  const hn::Half<TagU8> dh;
  const hn::RepartitionToWide<TagU8> dw;
#pragma GCC unroll 2
  for (int word = 0; word < 8; word += 4) {
    hn::Vec<TagU8> v[4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      const auto low = r < rows ? hn::LoadU(dh, row(r) + word) : hn::Zero(dh);
      v[r] = hn::Combine(d, r + 4 < rows ? hn::LoadU(dh, row(r + 4) + word) : hn::Zero(dh), low);
    }
    const auto low01 = hn::BitCast(dw, hn::InterleaveLower(d, v[0], v[1]));
    const auto low23 = hn::BitCast(dw, hn::InterleaveLower(d, v[2], v[3]));
    const auto high01 = hn::BitCast(dw, hn::InterleaveUpper(d, v[0], v[1]));
    const auto high23 = hn::BitCast(dw, hn::InterleaveUpper(d, v[2], v[3]));
    out[word] = hn::BitCast(d, hn::InterleaveLower(dw, low01, low23));
    out[word + 1] = hn::BitCast(d, hn::InterleaveUpper(dw, low01, low23));
    out[word + 2] = hn::BitCast(d, hn::InterleaveLower(dw, high01, high23));
    out[word + 3] = hn::BitCast(d, hn::InterleaveUpper(dw, high01, high23));
  }
}

/// Values of k in a word of a panel: one as fp32, two as bf16.
template <class Word>
constexpr int kValuesOf = 1;
template <>
inline constexpr int kValuesOf<uint32_t> = 2;

/// Eight rows x 8 words of memory -> out[k][kWidth]. bf16 that is widened: transposed as pairs, which halves the
/// shuffles, and split into even and odd k at the end. Pairs have the even k in the lower half. Rows from `rows` on are
/// zero.
template <int kWidth, class T, class Word>
HWY_INLINE void Transpose8(const T* from, int64_t stride, int rows, Word* out) {
  const TagU8 du;
  hn::Vec<TagU8> v[8];
  LoadTransposed([&](int r) HWY_ATTR { return reinterpret_cast<const uint32_t*>(from + r * stride); }, rows, v);
  auto* const to = reinterpret_cast<uint32_t*>(out);
#pragma GCC unroll 8
  for (int k = 0; k < 8; ++k) {
    if constexpr (kValuesOf<Word> * sizeof(T) == sizeof(Word)) {
      hn::StoreU(v[k], du, to + k * kWidth);
    } else {
      hn::StoreU(hn::ShiftLeft<16>(v[k]), du, to + 2 * k * kWidth);
      hn::StoreU(hn::And(v[k], hn::Set(du, 0xffff0000u)), du, to + (2 * k + 1) * kWidth);
    }
  }
}

/// The word of `left` or more values, `step` elements apart; what lies beyond is zero.
template <class T>
HWY_INLINE void MakeWord(const T* from, int64_t /*step*/, int64_t /*left*/, float* word) {
  *word = AsFloat(*from);
}
HWY_INLINE void MakeWord(const uint16_t* from, int64_t step, int64_t left, uint32_t* word) {
  *word = from[0] | (left > 1 ? static_cast<uint32_t>(from[step]) << 16 : 0);
}

/// Source with k contiguous: from[w * stride + k]. Widths from `width` on are filled with zero.
template <int kWidth, class T, class Word>
HWY_NOINLINE void PackAcross(const T* from, int64_t stride, int64_t width, int64_t kc, Word* HWY_RESTRICT out) {
  constexpr int kStep = sizeof(T) == 2 ? 16 : 8, kValues = kValuesOf<Word>;
  constexpr int kGroups = (kWidth + 7) / 8;
  // A whole line of a row at a time: rows a multiple of 4 KiB apart push each other out of the first-level cache.
  for (int64_t line = 0; line < kc; line += kLine<T>) {
    const int64_t end = std::min(line + kLine<T>, kc);
    // From the last group to the first: a group narrower than 8 spills into the next k, and the first group mends it.
#pragma GCC unroll 4
    for (int group = kGroups - 1; group >= 0; --group) {
      const int in_panel = std::min(8, kWidth - group * 8);
      const int rows = static_cast<int>(std::clamp<int64_t>(width - group * 8, 0, in_panel));
      const T* from_row = from + group * 8 * stride;
      for (int r = 0; r < rows; ++r) Fetch(from_row + r * stride + line + kLinesAhead * kLine<T>);
      for (int64_t k = line; k < end; k += kStep) {
        const int64_t left = kc - k;
        const T* corner = from_row + k;
        Word* to = out + k / kValues * kWidth + group * 8;
        if (left < kStep) {
          for (int64_t i = 0; i < left; i += kValues) {
            for (int r = 0; r < in_panel; ++r) {
              Word& word = to[i / kValues * kWidth + r];
              r < rows ? MakeWord(corner + r * stride + i, 1, left - i, &word) : void(word = 0);
            }
          }
        } else if (rows == in_panel) {
          Transpose8<kWidth>(corner, stride, in_panel, to);
        } else {
          Transpose8<kWidth>(corner, stride, rows, to);
        }
      }
    }
  }
}

template <int kCount, class T>
HWY_INLINE void CopyLanes(const T* from, int64_t /*stride*/, int64_t /*left*/, float* to) {
  const hn::CappedTag<float, kCount> d;
  hn::StoreU(LoadAsF32(d, from), d, to);
}
template <int kCount>
HWY_INLINE void CopyLanes(const uint16_t* from, int64_t stride, int64_t left, uint32_t* to) {
  const hn::CappedTag<uint32_t, kCount> du;
  const hn::Rebind<uint16_t, decltype(du)> dh;
  auto words = hn::PromoteTo(du, hn::LoadU(dh, from));
  if (left > 1) words = hn::Or(words, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(dh, from + stride))));
  hn::StoreU(words, du, to);
}

/// kWidth consecutive words of the row at `from` (and, for pairs, of the next one if `left` > 1): whole vectors, then
/// the powers of two of what is left.
template <int kWidth, class T, class Word>
HWY_INLINE void CopyRow(const T* from, int64_t stride, int64_t left, Word* to) {
  constexpr int kCopied = std::min<int>(std::bit_floor(static_cast<unsigned>(kWidth)), kLanes);
  CopyLanes<kCopied>(from, stride, left, to);
  if constexpr (kCopied < kWidth) CopyRow<kWidth - kCopied>(from + kCopied, stride, left, to + kCopied);
}

/// The same for `rest` words, less than 2 kCount.
template <int kCount, class T, class Word>
HWY_INLINE void CopyRest(const T* from, int64_t stride, int64_t left, int64_t rest, Word* to) {
  if constexpr (kCount > 0) {
    const bool copies = (rest & kCount) != 0;
    if (copies) CopyRow<kCount>(from, stride, left, to);
    CopyRest<kCount / 2>(from + (copies ? kCount : 0), stride, left, rest, to + (copies ? kCount : 0));
  }
}

/// Source with the width contiguous: from[k * stride + w], as panels `panel_words` apart. k is the outer loop, so that
/// a line of memory is read once: rows a multiple of 4 KiB apart push each other out of the first-level cache. The last
/// panel is filled up with zeros.
template <int kWidth, class T, class Word>
HWY_NOINLINE void PackAlong(const T* from, int64_t stride, int64_t width, int64_t kc, Word* HWY_RESTRICT out,
                            int64_t panel_words) {
  constexpr int kValues = kValuesOf<Word>;
  const int64_t whole = width / kWidth, rest = width % kWidth;
  if (rest > 0) std::fill_n(out + whole * panel_words, (kc + kValues - 1) / kValues * kWidth, Word{0});
  for (int64_t k = 0; k < kc; k += kValues, from += kValues * stride, out += kWidth) {
    const int64_t left = kc - k;
    for (int i = 0; i < kValues; ++i) {
      for (int64_t w = 0; w < width; w += kLine<T>) Fetch(from + (kRowsAhead + i) * stride + w);
    }
    Word* to = out;
    for (int64_t panel = 0; panel < whole; ++panel, to += panel_words) {
      CopyRow<kWidth>(from + panel * kWidth, stride, left, to);
    }
    CopyRest<std::bit_floor(kWidth - 1u)>(from + whole * kWidth, stride, left, rest, to);
  }
}

/// n values of a row of A; rows are `stride` apart.
template <class T>
HWY_INLINE void CopyAsF32(const T* from, int64_t stride, int64_t n, float* to) {
  const hn::CappedTag<float, kLanes> d;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Fetch(from + kCopiedRowsAhead * stride + i);
    hn::StoreU(LoadAsF32(d, from + i), d, to + i);
  }
  for (; i < n; ++i) to[i] = AsFloat(from[i]);
}

/// The same as pairs; an odd one at the end is paired with zero.
HWY_INLINE void CopyPairs(const uint16_t* from, int64_t stride, int64_t n, uint32_t* to) {
  for (int64_t i = 0; i < n; i += kLine<uint16_t>) Fetch(from + kCopiedRowsAhead * stride + i);
  std::memcpy(to, from, static_cast<size_t>(n) * sizeof(uint16_t));
  if (n % 2 != 0) to[n / 2] = from[n - 1];
}

/// Panels of `width` rows (or columns) of a matrix of either element type, `panel_words` apart. `along`: the width runs
/// along the matrix's rows. (width0, k0) is the first element in those coordinates.
template <int kWidth, class T, class Word>
HWY_INLINE void PackTyped(const void* data, bool along, int64_t stride, int64_t width0, int64_t k0, int64_t width,
                          int64_t kc, Word* out, int64_t panel_words) {
  const T* from = static_cast<const T*>(data) + (along ? k0 * stride + width0 : width0 * stride + k0);
  if (along) {
    PackAlong<kWidth>(from, stride, width, kc, out, panel_words);
    return;
  }
  for (int64_t w = 0; w < width; w += kWidth, out += panel_words) {
    PackAcross<kWidth>(from + w * stride, stride, std::min<int64_t>(kWidth, width - w), kc, out);
  }
}

/// kNr columns of B whose values lie along memory's rows, as an operand of Multiply, which copies them to `panel` on
/// the way: the first tile that needs a panel packs it, at the cost of two stores to a word of k.
template <class T>
struct UnpackedB {
  const T* row;
  int64_t stride;
  float* panel;

  HWY_INLINE hn::Vec<hn::CappedTag<float, kLanes>> Load(int v) const {
    const hn::CappedTag<float, kLanes> d;
    const auto values = LoadAsF32(d, row + v * kLanes);
    hn::StoreU(values, d, panel + v * kLanes);
    return values;
  }
  HWY_INLINE void Next() {
    for (int64_t column = 0; column < kNr; column += kLine<T>) Fetch(row + kRowsAhead * stride + column);
    row += stride;
    panel += kNr;
  }
};

template <int kWidth>
HWY_INLINE void PackPanels(const void* data, bool bf16, bool along, int64_t stride, int64_t width0, int64_t k0,
                           int64_t width, int64_t kc, float* out, int64_t panel_words) {
  const auto pack = bf16 ? PackTyped<kWidth, uint16_t, float> : PackTyped<kWidth, float, float>;
  pack(data, along, stride, width0, k0, width, kc, out, panel_words);
}
/// As pairs, which are made of bf16 only.
template <int kWidth>
HWY_INLINE void PackPanels(const void* data, bool /*bf16*/, bool along, int64_t stride, int64_t width0, int64_t k0,
                           int64_t width, int64_t kc, uint32_t* out, int64_t panel_words) {
  PackTyped<kWidth, uint16_t>(data, along, stride, width0, k0, width, kc, out, panel_words);
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard, per target
