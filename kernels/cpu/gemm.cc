// The matrix product in every arithmetic. What it is made of: gemm_product-inl.h.

#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm.cc"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/foreach_target.h"
#include "kernels/cpu/gemm_amx-inl.h"
#include "kernels/cpu/gemm_bf16_dot-inl.h"
#include "kernels/cpu/gemm_product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

/// Operands as fp32 (bf16 is widened when it is packed).
struct Fp32Kernel {
  using Word = float;
  static constexpr int kMr = HWY_NAMESPACE::kMr, kNr = HWY_NAMESPACE::kNr;
  static constexpr int64_t kValues = 1;
  static constexpr int64_t kBlock = kKc, kPiece = HWY_NAMESPACE::kPiece;

  static constexpr int64_t kRowWords = kPiece + kRowPad;

  /// `rows` rows of op(A) from row0 on, as panels: [k][kMr] if they lie `along` memory's rows, else [kMr][k].
  static void PackA(const ConstMatrix& x, bool along, int64_t row0, int64_t rows, int64_t k0, int64_t depth, Word* out,
                    int64_t panel_words) {
    const bool bf16 = x.dtype == DType::kBF16;
    if (along) return PackPanels<kMr>(x.data, bf16, along, x.stride, row0, k0, rows, depth, out, panel_words);
    for (int64_t r = 0; r < rows; ++r) {
      float* to = out + r / kMr * panel_words + r % kMr * kRowWords;
      const int64_t first = (row0 + r) * x.stride + k0;
      bf16 ? CopyAsF32(static_cast<const uint16_t*>(x.data) + first, depth, to)
           : CopyAsF32(static_cast<const float*>(x.data) + first, depth, to);
    }
  }
  static void PackB(const ConstMatrix& x, bool along, int64_t column0, int64_t columns, int64_t k0, int64_t depth,
                    Word* out, int64_t panel_words) {
    PackPanels<kNr>(x.data, x.dtype == DType::kBF16, along, x.stride, column0, k0, columns, depth, out, panel_words);
  }
  static void Multiply(bool by_row, int64_t rows, int64_t words, const Word* a, const Word* b, const float* chain,
                       const float* previous, float* out) {
    (by_row ? MultiplyFor<true>(rows) : MultiplyFor<false>(rows))(words, a, b, chain, previous, out);
  }
};

/// `arithmetic` is one that this processor has.
void Gemm(Executor& executor, const GemmArgs& args, [[maybe_unused]] Arithmetic arithmetic) {
  if (args.c.rows <= 0 || args.c.cols <= 0) return;
#if HWY_MAX_BYTES == 64  // what every processor with such instructions has
  if (args.a.dtype == DType::kBF16 && args.b.dtype == DType::kBF16) {
    if (arithmetic == Arithmetic::kAvx512Bf16) return Product<PairKernel<Avx512Dot>>(executor, args).Run();
    if (arithmetic == Arithmetic::kAmxBf16) return Product<AmxKernel<AmxTiles>>(executor, args).Run();
  }
#endif
  Product<Fp32Kernel>(executor, args).Run();
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace holdfast::kernels {

HWY_EXPORT(Gemm);

void CpuOps::Gemm(const GemmArgs& args) { HWY_DYNAMIC_DISPATCH(Gemm)(executor_, args, arithmetic_); }

}  // namespace holdfast::kernels
#endif
