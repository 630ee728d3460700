#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adamw.cc"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/foreach_target.h"
#include "kernels/cpu/load-inl.h"
#include "kernels/cpu/views.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

/// AdamWScalar, operation by operation. All are correctly rounded, so every lane has the scalar's bits.
HWY_INLINE void UpdateRange(const AdamWArgs& a, Range range) {
  const Wide d;
  const auto grad_scale = hn::Set(d, a.grad_scale), eps = hn::Set(d, a.eps), lr = hn::Set(d, a.lr);
  const auto beta1 = hn::Set(d, a.beta1), one_minus_beta1 = hn::Set(d, 1.0f - a.beta1);
  const auto beta2 = hn::Set(d, a.beta2), one_minus_beta2 = hn::Set(d, 1.0f - a.beta2);
  const auto correction1 = hn::Set(d, a.bias_correction1), correction2 = hn::Set(d, a.bias_correction2_sqrt);
  const auto decay = hn::Set(d, a.lr * a.weight_decay);
  ForVectors(d, range.end - range.begin, [&](int64_t at, auto access) HWY_ATTR {
    const int64_t i = range.begin + at;
    const auto w = access.Load(d, a.weight + i);
    const auto g = hn::Mul(access.Load(d, a.grad + i), grad_scale);
    const auto m = hn::MulAdd(beta1, access.Load(d, a.exp_avg + i), hn::Mul(one_minus_beta1, g));
    const auto v = hn::MulAdd(beta2, access.Load(d, a.exp_avg_sq + i), hn::Mul(hn::Mul(one_minus_beta2, g), g));
    const auto u = hn::Div(hn::Div(m, correction1), hn::Add(hn::Div(hn::Sqrt(v), correction2), eps));
    const auto updated = hn::NegMulAdd(lr, u, hn::NegMulAdd(decay, w, w));
    access.Store(d, updated, a.weight + i);
    access.Store(d, m, a.exp_avg + i);
    access.Store(d, v, a.exp_avg_sq + i);
    if (a.weight_bf16 != nullptr) access.Store(d, updated, a.weight_bf16 + i);
  });
}

void AdamW(Executor& executor, const AdamWArgs& args) {
  const Pieces pieces = PiecesOfVector(args.n);
  ParallelFor(executor, pieces.count(), [&](int64_t task, int) { UpdateRange(args, pieces.piece(task)); });
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace holdfast::kernels {

HWY_EXPORT(AdamW);

void CpuOps::AdamW(const AdamWArgs& args) { HWY_DYNAMIC_DISPATCH(AdamW)(executor_, args); }

}  // namespace holdfast::kernels
#endif  // HWY_ONCE
