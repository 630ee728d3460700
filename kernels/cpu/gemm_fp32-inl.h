// The microkernel of `portable` arithmetic, and of fp32 operands in every other one: products of fp32 values.
//
// Included once per instruction set, after hwy/foreach_target.h; see gemm.cc.

#if defined(HOLDFAST_KERNELS_CPU_GEMM_FP32_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLDFAST_KERNELS_CPU_GEMM_FP32_INL_H_
#undef HOLDFAST_KERNELS_CPU_GEMM_FP32_INL_H_
#else
#define HOLDFAST_KERNELS_CPU_GEMM_FP32_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/microkernel-inl.h"
#include "kernels/cpu/pack-inl.h"
#include "kernels/types.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

/// Operands as fp32 (bf16 is widened when it is packed), in tiles of kTileRows.
template <int kTileRows>
struct Fp32Kernel {
  using Word = float;
  static constexpr int kMr = kTileRows, kNr = HWY_NAMESPACE::kNr;
  static constexpr int64_t kValues = 1;
  static constexpr int64_t kBlock = kKc;
  static constexpr int64_t kRowWords = kBlock + kRowPad;
  static constexpr bool kPacksByRow = false;

  /// `rows` rows of op(A) from row0 on, as panels [k][kMr]. `along`: they lie along memory's rows.
  static void PackA(const ConstMatrix& x, bool along, int64_t row0, int64_t rows, int64_t k0, int64_t depth, Word* out,
                    int64_t panel_words) {
    PackPanels<kMr>(x.data, x.dtype == DType::kBF16, along, x.stride, row0, k0, rows, depth, out, panel_words);
  }
  /// Rows of A as panels by rows.
  static void CopyRows(const ConstMatrix& x, int64_t row0, int64_t rows, int64_t k0, int64_t depth, Word* out,
                       int64_t panel_words) {
    for (int64_t r = 0; r < rows; ++r) {
      float* to = out + r / kMr * panel_words + r % kMr * kRowWords;
      const int64_t first = (row0 + r) * x.stride + k0;
      x.dtype == DType::kBF16 ? CopyAsF32(static_cast<const uint16_t*>(x.data) + first, x.stride, depth, to)
                              : CopyAsF32(static_cast<const float*>(x.data) + first, x.stride, depth, to);
    }
  }
  static void PackB(const ConstMatrix& x, bool along, int64_t column0, int64_t columns, int64_t k0, int64_t depth,
                    Word* out, int64_t panel_words) {
    PackPanels<kNr>(x.data, x.dtype == DType::kBF16, along, x.stride, column0, k0, columns, depth, out, panel_words);
  }
  static void Multiply(bool by_row, int64_t rows, int64_t words, const Word* a, const Word* b, const float* previous,
                       const TileOut& out, const Ahead& ahead) {
    (by_row ? MultiplyFor<kMr, true>(rows) : MultiplyFor<kMr, false>(rows))(words, a, {b}, previous, out, ahead);
  }
  /// Multiply of kMr rows and of kNr columns of B from (k0, column0) on, which are packed into `packed_b` on the way.
  static void MultiplyAndPack(const ConstMatrix& b, int64_t k0, int64_t column0, int64_t words, const Word* a,
                              // NOLINTNEXTLINE(readability-non-const-parameter): is written to in a template
                              Word* packed_b, const float* previous, const TileOut& out, const Ahead& ahead) {
    const auto multiply = [&]<class T>(const T* values) {
      const UnpackedB<T> unpacked{values + k0 * b.stride + column0, b.stride, packed_b};
      HWY_NAMESPACE::Multiply<kMr, kMr, false>(words, a, unpacked, previous, out, ahead);
    };
    b.dtype == DType::kBF16 ? multiply(static_cast<const uint16_t*>(b.data))
                            : multiply(static_cast<const float*>(b.data));
  }
  /// To the sums of eight columns the products of a value of A with one of each column, or of two of both where B is
  /// bf16: the word of `b` has the first in its lower half.
  template <class T>
  static HWY_INLINE void AddProducts(const Word* a, hn::Vec<TagU8> b, hn::Vec<Tag8>* sum) {
    const Tag8 d;
    const TagU8 du;
    if constexpr (sizeof(T) == sizeof(float)) {
      *sum = hn::MulAdd(hn::Set(d, a[0]), hn::BitCast(d, b), *sum);
    } else {
      *sum = hn::MulAdd(hn::Set(d, a[0]), hn::BitCast(d, hn::ShiftLeft<16>(b)), *sum);
      *sum = hn::MulAdd(hn::Set(d, a[1]), hn::BitCast(d, hn::And(b, hn::Set(du, 0xffff0000u))), *sum);
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard, per target
