#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/clip.cc"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/foreach_target.h"
#include "kernels/cpu/load-inl.h"
#include "kernels/cpu/views.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

/// NaN stays.
void Clip(Executor& executor, const Matrix& out, const ConstMatrix& in, float limit) {
  ForRows(executor, in.dtype, in.rows, in.cols, [&](auto type, int64_t r) HWY_ATTR {
    using T = decltype(type);
    const Wide d;
    const auto most = hn::Set(d, limit), least = hn::Set(d, -limit);
    const T* from = RowOf<T>(in, r);
    T* to = RowOf<T>(out, r);
    ForVectors(d, in.cols, [&](int64_t c, auto access) HWY_ATTR {
      const auto x = access.Load(d, from + c);
      const auto below = hn::IfThenElse(hn::Gt(x, most), most, x);
      access.Store(d, hn::IfThenElse(hn::Lt(x, least), least, below), to + c);
    });
  });
}

void ClipBackward(Executor& executor, const Matrix& d_in, const ConstMatrix& in, float limit) {
  ForRows(executor, in.dtype, in.rows, in.cols, [&](auto type, int64_t r) HWY_ATTR {
    using T = decltype(type);
    const Wide d;
    const auto most = hn::Set(d, limit);
    const T* from = RowOf<T>(in, r);
    T* gradient = RowOf<T>(d_in, r);
    ForVectors(d, in.cols, [&](int64_t c, auto access) HWY_ATTR {
      const auto inside = hn::Lt(hn::Abs(access.Load(d, from + c)), most);
      access.Store(d, hn::IfThenElseZero(inside, access.Load(d, gradient + c)), gradient + c);
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace holdfast::kernels {

HWY_EXPORT(Clip);
HWY_EXPORT(ClipBackward);

void CpuOps::Clip(Matrix out, ConstMatrix in, float limit) { HWY_DYNAMIC_DISPATCH(Clip)(executor_, out, in, limit); }

void CpuOps::ClipBackward(Matrix d, ConstMatrix in, float limit) {
  HWY_DYNAMIC_DISPATCH(ClipBackward)(executor_, d, in, limit);
}

}  // namespace holdfast::kernels
#endif  // HWY_ONCE
