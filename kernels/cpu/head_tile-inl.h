// What the forward and the backward pass of attention share: one head's matrices in memory, and packed pieces of them.
//
// Both passes cut queries and keys into tiles of kTile and multiply with a microkernel of the matrix product (`Kernel`:
// Fp32Kernel or PairKernel), choosing at each product which side is A and which is B such that its result is laid out
// as the packed B operand of the next. Where a kernel multiplies pairs of bf16, what a product computed is rounded to
// bf16 first, as FlashAttention does on a GPU; sums stay in fp32.
//
// Included once per instruction set, after hwy/foreach_target.h.

#if defined(HOLDFAST_KERNELS_CPU_HEAD_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLDFAST_KERNELS_CPU_HEAD_TILE_INL_H_
#undef HOLDFAST_KERNELS_CPU_HEAD_TILE_INL_H_
#else
#define HOLDFAST_KERNELS_CPU_HEAD_TILE_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/microkernel-inl.h"
#include "kernels/cpu/pack-inl.h"
#include "kernels/ops.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

/// Queries and keys of a tile: a whole number of panels of either kind on every instruction set (6, 12, 16 and 32).
/// Packed, the tiles of one head (D = 64) take 24 KiB each. Sums over keys run tile by tile: it is part of the bits.
constexpr int64_t kTile = 96;

constexpr int64_t PanelsOf(int64_t n, int64_t width) { return (n + width - 1) / width; }

/// Words that hold `depth` values of k.
template <class Word>
constexpr int64_t WordsOf(int64_t depth) {
  return (depth + kValuesOf<Word> - 1) / kValuesOf<Word>;
}

/// Words of one packed panel.
template <class Word>
constexpr int64_t PanelSize(int64_t width, int64_t depth) {
  return width * WordsOf<Word>(depth) + kPanelPad;
}

/// Words of `count` widths packed over `depth`.
template <int kWidth, class Word>
constexpr int64_t PackedSize(int64_t count, int64_t depth) {
  return PanelsOf(count, kWidth) * PanelSize<Word>(kWidth, depth);
}

/// One head of one sequence: row t is at data + t * stride elements, head_dim wide.
struct HeadMatrix {
  void* data;
  DType dtype;
  int64_t stride;
};

/// Head at column `col0` of sequence `batch` of a packed matrix.
inline HeadMatrix HeadOf(const ConstMatrix& m, int64_t batch, int64_t sequence, int64_t col0) {
  const int64_t offset = batch * sequence * m.stride + col0;
  char* data = static_cast<char*>(const_cast<void*>(m.data));
  return {data + offset * static_cast<int64_t>(SizeOf(m.dtype)), m.dtype, m.stride};
}

/// Panels of kWidth rows, over the head dimension: [panel][d][kWidth].
template <int kWidth, class Word>
void PackHeadRows(const HeadMatrix& x, int64_t row0, int64_t rows, int64_t head_dim, Word* out) {
  PackPanels<kWidth>(x.data, x.dtype == DType::kBF16, false, x.stride, row0, 0, rows, head_dim, out,
                     PanelSize<Word>(kWidth, head_dim));
}

/// Panels of kWidth head dimensions, over the rows: [panel][row][kWidth].
template <int kWidth, class Word>
void PackHeadColumns(const HeadMatrix& x, int64_t row0, int64_t rows, int64_t head_dim, Word* out) {
  PackPanels<kWidth>(x.data, x.dtype == DType::kBF16, true, x.stride, 0, row0, head_dim, rows, out,
                     PanelSize<Word>(kWidth, rows));
}

/// Writes eight values of one row.
HWY_INLINE void StoreEight(const HeadMatrix& x, int64_t row, int64_t d, hn::Vec<Tag8> value) {
  if (x.dtype == DType::kBF16) {
    StoreBf16(Tag8(), value, static_cast<uint16_t*>(x.data) + row * x.stride + d);
  } else {
    hn::StoreU(value, Tag8(), static_cast<float*>(x.data) + row * x.stride + d);
  }
}

/// Writes head_dim (a multiple of 8) values as one row.
inline void StoreHeadRow(const HeadMatrix& x, int64_t row, const float* values, int64_t head_dim) {
  for (int64_t d = 0; d < head_dim; d += 8) StoreEight(x, row, d, hn::LoadU(Tag8(), values + d));
}

/// Writes the first `count` columns of sums (head_dim, kNr), each divided by its divisor, as rows row0.. of x.
/// `divisors`: null for 1.
inline void StoreColumns(const HeadMatrix& x, int64_t row0, int64_t count, const float* sums, const float* divisors,
                         int64_t head_dim) {
  for (int64_t c = 0; c < count; c += 8) {
    const int columns = static_cast<int>(std::min<int64_t>(8, count - c));
    float factors[8];
    for (int i = 0; i < columns; ++i) factors[i] = divisors == nullptr ? 1.0f : 1.0f / divisors[c + i];
    for (int64_t d = 0; d < head_dim; d += 8) {
      hn::Vec<TagU8> v[8];
      LoadTransposed([&](int i) HWY_ATTR { return reinterpret_cast<const uint32_t*>(sums + (d + i) * kNr + c); }, 8, v);
      for (int i = 0; i < columns; ++i) {
        StoreEight(x, row0 + c + i, d, hn::Mul(hn::BitCast(Tag8(), v[i]), hn::Set(Tag8(), factors[i])));
      }
    }
  }
}

/// out (A rows, kNr) += A (rows, depth), packed, * one B panel. `out` holds whole tiles of kMr rows. `by_row`: A's
/// panels are [kMr][Kernel::kRowWords].
template <class Kernel>
void MultiplyPanels(const typename Kernel::Word* a, int64_t a_panel_size, bool by_row, int64_t rows, int64_t depth,
                    const typename Kernel::Word* b, bool add, float* out) {
  for (int64_t r = 0; r < rows; r += kMr, a += a_panel_size, out += kMr * kNr) {
    const Ahead ahead = {.panel = reinterpret_cast<const char*>(a + a_panel_size),
                         .tile = reinterpret_cast<const char*>(out),
                         .tile_stride = kNr * sizeof(float)};
    Kernel::Multiply(by_row, rows - r, WordsOf<typename Kernel::Word>(depth), a, b, add ? out : nullptr, {out, kNr},
                     ahead);
  }
}

/// kLanes values of a row of an A operand by rows, from column `col` on.
template <class Kernel>
HWY_INLINE void StoreInRow(hn::Vec<Lanes> values, int64_t col, typename Kernel::Word* row) {
  if constexpr (kValuesOf<typename Kernel::Word> == 1) {
    hn::StoreU(values, Lanes(), row + col);
  } else {
    hn::StoreU(Kernel::Round(values), hn::Rebind<uint16_t, Lanes>(), reinterpret_cast<uint16_t*>(row) + col);
  }
}

/// Values (depth, kNr) as a B panel in their own memory: they are one already, or rounded to pairs of bf16, an odd one
/// at the end with zero.
template <class Kernel>
const typename Kernel::Word* ToPanel(float* values, int64_t depth) {
  using Word = typename Kernel::Word;
  if constexpr (kValuesOf<Word> == 1) {
    return values;
  } else {
    const Lanes d;
    const hn::RebindToUnsigned<Lanes> du;
    Word* words = reinterpret_cast<Word*>(values);
    for (int64_t k = 0; k < depth; k += 2) {
      for (int64_t c = 0; c < kNr; c += kLanes) {
        const auto odd = k + 1 < depth ? hn::LoadU(d, values + (k + 1) * kNr + c) : hn::Zero(d);
        hn::StoreU(Kernel::RoundPairs(hn::LoadU(d, values + k * kNr + c), odd), du, words + k / 2 * kNr + c);
      }
    }
    return words;
  }
}

inline float ScoreScale(int64_t head_dim) { return 1.0f / std::sqrt(static_cast<float>(head_dim)); }

/// Hands out pieces of one block of scratch memory, each on a cache line; with a null block it only counts.
class Carver {
 public:
  explicit Carver(void* block) : block_(static_cast<char*>(block)) {}

  template <class T>
  T* Take(int64_t count) {
    T* piece = block_ == nullptr ? nullptr : reinterpret_cast<T*>(block_ + bytes_);
    bytes_ += (static_cast<size_t>(count) * sizeof(T) + 63) / 64 * 64;
    return piece;
  }
  size_t bytes() const { return bytes_; }

 private:
  char* block_;
  size_t bytes_ = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard, per target
