// Loads and stores of fp32 vectors from fp32 or bf16 memory, loops over rows and over a row with its tail, and sums
// whose bits are the same on every instruction set: always 8 lanes, always in the same order.
//
// Included once per instruction set, after hwy/foreach_target.h. Example, y = 2 x over n elements of either type T:
//   ForVectors(d, n, [&](int64_t i, auto access) { access.Store(d, hn::Mul(two, access.Load(d, x + i)), y + i); });

#if defined(HOLDFAST_KERNELS_CPU_LOAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLDFAST_KERNELS_CPU_LOAD_INL_H_
#undef HOLDFAST_KERNELS_CPU_LOAD_INL_H_
#else
#define HOLDFAST_KERNELS_CPU_LOAD_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/views.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Eight lanes on every instruction set: what every sum uses.
using Eight = hn::FixedTag<float, 8>;
using EightLanes = hn::Vec<Eight>;

/// As wide as the machine: for maps, where each element stands alone.
using Wide = hn::ScalableTag<float>;

/// A whole vector. `T` is float or uint16_t (bf16).
struct FullAccess {
  template <class D>
  HWY_INLINE hn::Vec<D> Load(D d, const float* from) const {
    return hn::LoadU(d, from);
  }
  template <class D>
  HWY_INLINE hn::Vec<D> Load(D d, const uint16_t* from) const {
    return LoadBf16(d, from);
  }
  template <class D>
  HWY_INLINE void Store(D d, hn::Vec<D> value, float* to) const {
    hn::StoreU(value, d, to);
  }
  template <class D>
  HWY_INLINE void Store(D d, hn::Vec<D> value, uint16_t* to) const {
    StoreBf16(d, value, to);
  }
  template <class D>
  HWY_INLINE hn::Vec<D> LoadOr(D d, const float* from, float /*fill*/) const {
    return hn::LoadU(d, from);
  }
  /// The lanes of a sum that exist.
  template <class D>
  HWY_INLINE hn::Vec<D> Keep(D /*d*/, hn::Vec<D> value) const {
    return value;
  }
};

/// The first `count` lanes of a vector, at the end of a row; never touches memory beyond them.
struct PartialAccess {
  int64_t count;

  template <class D, typename T>
  HWY_INLINE hn::Vec<D> Load(D d, const T* from) const {
    alignas(64) T lanes[hn::MaxLanes(d)] = {};
    std::memcpy(lanes, from, static_cast<size_t>(count) * sizeof(T));
    return FullAccess().Load(d, lanes);
  }
  template <class D, typename T>
  HWY_INLINE void Store(D d, hn::Vec<D> value, T* to) const {
    alignas(64) T lanes[hn::MaxLanes(d)];
    FullAccess().Store(d, value, lanes);
    std::memcpy(to, lanes, static_cast<size_t>(count) * sizeof(T));
  }
  template <class D>
  HWY_INLINE hn::Vec<D> LoadOr(D d, const float* from, float fill) const {
    return hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(count)), Load(d, from), hn::Set(d, fill));
  }
  template <class D>
  HWY_INLINE hn::Vec<D> Keep(D d, hn::Vec<D> value) const {
    return hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(count)), value);
  }
};

/// Calls body(i, access) for the vectors that start at i = 0, Lanes(d), ... of n elements.
template <class D, typename Body>
HWY_INLINE void ForVectors(D d, int64_t n, const Body& body) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) body(i, FullAccess{});
  if (i < n) body(i, PartialAccess{n - i});
}

/// The value as it will read back from memory of type T.
template <typename T, class D>
HWY_INLINE hn::Vec<D> RoundTo(D d, hn::Vec<D> value) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return value;
  } else {
    const hn::RebindToUnsigned<D> du;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, ToBf16Bits(d, value))));
  }
}

/// sum + x y, of the first `left` lanes, eight after eight.
HWY_INLINE EightLanes AddProducts(hn::Vec<Wide> x, hn::Vec<Wide> y, [[maybe_unused]] int64_t left, EightLanes sum) {
#if HWY_MAX_BYTES == 64
  const Eight d;
  sum = hn::MulAdd(hn::LowerHalf(d, x), hn::LowerHalf(d, y), sum);
  return left > 8 ? hn::MulAdd(hn::UpperHalf(d, x), hn::UpperHalf(d, y), sum) : sum;
#else
  return hn::MulAdd(x, y, sum);
#endif
}

/// ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)).
HWY_INLINE float SumOf(EightLanes v) {
  alignas(32) float x[8];
  hn::Store(v, Eight(), x);
  return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}

HWY_INLINE float MaxOf(EightLanes v) {
  alignas(32) float x[8];
  hn::Store(v, Eight(), x);
  float largest = x[0];
  for (int i = 1; i < 8; ++i) largest = x[i] > largest ? x[i] : largest;
  return largest;
}

/// out[c] = sum over rows r, in order, of partial[r * stride + c]; zero without rows.
HWY_INLINE void SumPartials(float* out, const float* partial, int64_t rows, int64_t stride, Range columns) {
  const Eight d;
  ForVectors(d, columns.end - columns.begin, [&](int64_t i, auto access) {
    const float* from = partial + columns.begin + i;
    auto sum = rows > 0 ? access.Load(d, from) : hn::Zero(d);
    for (int64_t r = 1; r < rows; ++r) sum = hn::Add(sum, access.Load(d, from + r * stride));
    access.Store(d, sum, out + columns.begin + i);
  });
}

/// Calls body(value of the element type, row) for every row of a (rows, cols) operation.
template <typename Body>
void ForRows(Executor& executor, DType dtype, int64_t rows, int64_t cols, const Body& body) {
  const Pieces pieces = PiecesOfRows(rows, cols);
  ParallelFor(executor, pieces.count(), [&](int64_t task, int) {
    const Range range = pieces.piece(task);
    WithType(dtype, [&](auto type) {
      for (int64_t r = range.begin; r < range.end; ++r) body(type, r);
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard, per target
