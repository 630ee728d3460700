// The matrix product in every arithmetic, and those of experts. What they are made of: gemm_product-inl.h, and
// gemm_few_rows-inl.h.

#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm.cc"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/foreach_target.h"
#include "kernels/cpu/gemm_amx-inl.h"
#include "kernels/cpu/gemm_bf16_dot-inl.h"
#include "kernels/cpu/gemm_experts-inl.h"
#include "kernels/cpu/gemm_few_rows-inl.h"
#include "kernels/cpu/gemm_fp32-inl.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

/// Calls body with the kernel that multiplies such operands. `arithmetic` is one that this processor has.
template <typename Body>
void WithKernel([[maybe_unused]] DType a, [[maybe_unused]] DType b, [[maybe_unused]] Arithmetic arithmetic,
                const Body& body) {
#if HWY_MAX_BYTES == 64  // what every processor with such instructions has
  if (a == DType::kBF16 && b == DType::kBF16) {
    if (arithmetic == Arithmetic::kAvx512Bf16) return body(PairKernel<Avx512Dot>());
    if (arithmetic == Arithmetic::kAmxBf16) return body(AmxKernel<AmxTiles>());
  }
#endif
  body(Fp32Kernel<kProductMr>());
}

void Gemm(Executor& executor, const GemmArgs& args, Arithmetic arithmetic) {
  if (args.c.rows <= 0 || args.c.cols <= 0) return;
  WithKernel(args.a.dtype, args.b.dtype, arithmetic, [&](auto kernel) {
    WithProduct<decltype(kernel)>(executor, {args}, [](auto product) { product.Run(); });
  });
}

ConstMatrix SegmentOf(const ConstMatrix& m, const ExpertRows& rows, int64_t e) {
  return SliceOf(m, {rows.offsets[e], rows.offsets[e + 1]}, {0, m.cols});
}

/// The matrix of expert e, `step` elements from one to the next.
template <class View>
View MatrixOf(View first, int64_t e, int64_t step) {
  first.data = (char*)first.data + static_cast<size_t>(e * step) * SizeOf(first.dtype);  // NOLINT: const or not
  return first;
}

void ExpertGemm(Executor& executor, const ExpertGemmArgs& args, const ExpertRows& rows, Arithmetic arithmetic) {
  const auto product_of = [&](int64_t e) {
    ProductArgs product{{.a = SegmentOf(args.a, rows, e),
                         .b = MatrixOf(args.b, e, args.b_step),
                         .transpose_b = args.transpose_b,
                         .c = SliceOf(args.c, {rows.offsets[e], rows.offsets[e + 1]}, {0, args.c.cols}),
                         .accumulate = args.accumulate}};
    if (args.bias != nullptr) product.bias = args.bias + e * args.bias_step;
    if (args.bias_weights != nullptr) {
      product.bias_weights = args.bias_weights;
      product.choices = rows.choices + rows.offsets[e];
    }
    return product;
  };
  WithKernel(args.a.dtype, args.b.dtype, arithmetic, [&](auto kernel) {
    ExpertProducts<decltype(kernel), decltype(product_of)>(executor, rows.num_experts, product_of).Run();
  });
}

void ExpertGradient(Executor& executor, const ExpertGradientArgs& args, const ExpertRows& rows, Arithmetic arithmetic) {
  const auto product_of = [&](int64_t e) {
    return ProductArgs{{.a = SegmentOf(args.a, rows, e),
                        .transpose_a = true,
                        .b = SegmentOf(args.b, rows, e),
                        .c = MatrixOf(args.c, e, args.c_step)}};
  };
  WithKernel(args.a.dtype, args.b.dtype, arithmetic, [&](auto kernel) {
    ExpertProducts<decltype(kernel), decltype(product_of)>(executor, rows.num_experts, product_of).Run();
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace holdfast::kernels {

HWY_EXPORT(Gemm);
HWY_EXPORT(ExpertGemm);
HWY_EXPORT(ExpertGradient);

void CpuOps::Gemm(const GemmArgs& args) {
  HWY_DYNAMIC_DISPATCH(Gemm)(executor_, args, arithmetic_);
  if (args.gelu_input.data != nullptr) GeluBackward(args.c, args.c, args.gelu_input);
  if (args.a_sums != nullptr) ColumnSum(args.a_sums, args.a);
}

void CpuOps::ExpertGemm(const ExpertGemmArgs& args, const ExpertRows& rows) {
  HWY_DYNAMIC_DISPATCH(ExpertGemm)(executor_, args, rows, arithmetic_);
}

void CpuOps::ExpertGradient(const ExpertGradientArgs& args, const ExpertRows& rows) {
  HWY_DYNAMIC_DISPATCH(ExpertGradient)(executor_, args, rows, arithmetic_);
}

}  // namespace holdfast::kernels
#endif
