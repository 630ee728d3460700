// Attention in every arithmetic. What it is made of: head_forward-inl.h, head_backward-inl.h, head_cached-inl.h.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cc"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/foreach_target.h"
#include "kernels/cpu/gemm_bf16_dot-inl.h"
#include "kernels/cpu/gemm_fp32-inl.h"
#include "kernels/cpu/head_backward-inl.h"
#include "kernels/cpu/head_cached-inl.h"
#include "kernels/cpu/head_forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

/// Whether products are those of bf16 pairs. Processors with tiles multiply pairs as well: a head's products are too
/// small for tiles of 32 x 32.
[[maybe_unused]] bool MultipliesPairs(Arithmetic arithmetic, DType dtype) {
  return arithmetic != Arithmetic::kPortable && dtype == DType::kBF16;
}

void AttentionForward(Executor& executor, const Matrix& out, float* lse, const ConstMatrix& qkv,
                      const AttentionShape& shape, [[maybe_unused]] Arithmetic arithmetic) {
#if HWY_MAX_BYTES == 64  // what every processor with such instructions has
  if (MultipliesPairs(arithmetic, qkv.dtype)) {
    return ForwardPass<PairKernel<Avx512Dot>>(executor, out, lse, qkv, shape);
  }
#endif
  ForwardPass<Fp32Kernel<kMr>>(executor, out, lse, qkv, shape);
}

void AttentionBackward(Executor& executor, const Matrix& d_qkv, const ConstMatrix& d_out, const ConstMatrix& out,
                       const float* lse, const ConstMatrix& qkv, const AttentionShape& shape,
                       [[maybe_unused]] Arithmetic arithmetic) {
#if HWY_MAX_BYTES == 64
  if (MultipliesPairs(arithmetic, qkv.dtype) && d_out.dtype == DType::kBF16) {
    return BackwardPass<PairKernel<Avx512Dot>>(executor, d_qkv, d_out, out, lse, qkv, shape);
  }
#endif
  BackwardPass<Fp32Kernel<kMr>>(executor, d_qkv, d_out, out, lse, qkv, shape);
}

void CachedAttention(Executor& executor, const CachedAttentionArgs& args, [[maybe_unused]] Arithmetic arithmetic) {
#if HWY_MAX_BYTES == 64
  if (MultipliesPairs(arithmetic, args.qkv.dtype)) return CachedPass<PairKernel<Avx512Dot>>(executor, args);
#endif
  CachedPass<Fp32Kernel<kMr>>(executor, args);
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace holdfast::kernels {

HWY_EXPORT(AttentionForward);
HWY_EXPORT(AttentionBackward);
HWY_EXPORT(CachedAttention);

void CpuOps::AttentionForward(Matrix out, float* lse, ConstMatrix qkv, const AttentionShape& shape) {
  HWY_DYNAMIC_DISPATCH(AttentionForward)(executor_, out, lse, qkv, shape, arithmetic_);
}

void CpuOps::AttentionBackward(Matrix d_qkv, ConstMatrix d_out, ConstMatrix out, const float* lse, ConstMatrix qkv,
                               const AttentionShape& shape) {
  HWY_DYNAMIC_DISPATCH(AttentionBackward)(executor_, d_qkv, d_out, out, lse, qkv, shape, arithmetic_);
}

void CpuOps::CachedAttention(const CachedAttentionArgs& args) {
  HWY_DYNAMIC_DISPATCH(CachedAttention)(executor_, args, arithmetic_);
}

}  // namespace holdfast::kernels
#endif  // HWY_ONCE
