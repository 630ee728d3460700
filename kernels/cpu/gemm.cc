// The matrix product in every arithmetic. What it is made of: gemm_product-inl.h.

#include <cstddef>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm.cc"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/foreach_target.h"
#include "kernels/cpu/gemm_amx-inl.h"
#include "kernels/cpu/gemm_bf16_dot-inl.h"
#include "kernels/cpu/gemm_fp32-inl.h"
#include "kernels/cpu/gemm_product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

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

namespace {

ConstMatrix RowsOf(const ConstMatrix& m, int64_t first, int64_t count) {
  const auto* data = static_cast<const std::byte*>(m.data) + static_cast<size_t>(first * m.stride) * SizeOf(m.dtype);
  return {data, m.dtype, count, m.cols, m.stride};
}

Matrix RowsOf(const Matrix& m, int64_t first, int64_t count) {
  auto* data = static_cast<std::byte*>(m.data) + static_cast<size_t>(first * m.stride) * SizeOf(m.dtype);
  return {data, m.dtype, count, m.cols, m.stride};
}

}  // namespace

void CpuOps::Gemm(const GemmArgs& args) { HWY_DYNAMIC_DISPATCH(Gemm)(executor_, args, arithmetic_); }

void CpuOps::ExpertGemm(const ExpertGemmArgs& args, const ExpertRows& rows) {
  for (int64_t e = 0; e < rows.num_experts; ++e) {
    const int64_t first = rows.offsets[e], count = rows.offsets[e + 1] - first;
    ConstMatrix b = args.b;
    b.data = static_cast<const std::byte*>(b.data) + static_cast<size_t>(e * args.b_step) * SizeOf(b.dtype);
    Gemm({.a = RowsOf(args.a, first, count),
          .b = b,
          .transpose_b = args.transpose_b,
          .c = RowsOf(args.c, first, count)});
  }
}

void CpuOps::ExpertGradient(const ExpertGradientArgs& args, const ExpertRows& rows) {
  for (int64_t e = 0; e < rows.num_experts; ++e) {
    const int64_t first = rows.offsets[e], count = rows.offsets[e + 1] - first;
    Matrix c = args.c;
    c.data = static_cast<float*>(c.data) + e * args.c_step;
    Gemm({.a = RowsOf(args.a, first, count), .transpose_a = true, .b = RowsOf(args.b, first, count), .c = c});
  }
}

}  // namespace holdfast::kernels
#endif
