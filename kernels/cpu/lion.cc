#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/lion.cc"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/foreach_target.h"
#include "kernels/cpu/load-inl.h"
#include "kernels/cpu/views.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

/// LionScalar, operation by operation. All are correctly rounded, so every lane has the scalar's bits.
HWY_INLINE void LionRange(const LionArgs& a, Range range) {
  const Wide d;
  const auto grad_scale = hn::Set(d, a.grad_scale), lr = hn::Set(d, a.lr), decay = hn::Set(d, a.lr * a.weight_decay);
  const auto beta1 = hn::Set(d, a.beta1), one_minus_beta1 = hn::Set(d, 1.0f - a.beta1);
  const auto beta2 = hn::Set(d, a.beta2), one_minus_beta2 = hn::Set(d, 1.0f - a.beta2);
  const auto zero = hn::Zero(d), one = hn::Set(d, 1.0f);
  ForVectors(d, range.end - range.begin, [&](int64_t at, auto access) HWY_ATTR {
    const int64_t i = range.begin + at;
    const auto w = access.Load(d, a.weight + i), m = access.Load(d, a.exp_avg + i);
    const auto g = hn::Mul(access.Load(d, a.grad + i), grad_scale);
    const auto c = hn::MulAdd(beta1, m, hn::Mul(one_minus_beta1, g));
    const auto u = hn::IfThenElse(hn::Gt(c, zero), one, hn::IfThenElse(hn::Lt(c, zero), hn::Neg(one), zero));
    const auto updated = hn::NegMulAdd(lr, u, hn::NegMulAdd(decay, w, w));
    access.Store(d, updated, a.weight + i);
    access.Store(d, hn::MulAdd(beta2, m, hn::Mul(one_minus_beta2, g)), a.exp_avg + i);
    if (a.weight_bf16 != nullptr) access.Store(d, updated, a.weight_bf16 + i);
  });
}

void Lion(Executor& executor, const LionArgs& args) {
  const Pieces pieces = PiecesOfVector(args.n);
  ParallelFor(executor, pieces.count(), [&](int64_t task, int) { LionRange(args, pieces.piece(task)); });
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace holdfast::kernels {

HWY_EXPORT(Lion);

void CpuOps::Lion(const LionArgs& args) { HWY_DYNAMIC_DISPATCH(Lion)(executor_, args); }

}  // namespace holdfast::kernels
#endif  // HWY_ONCE
