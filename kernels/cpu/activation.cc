#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/activation.cc"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/foreach_target.h"
#include "kernels/cpu/load-inl.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/views.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

void GeluForward(Executor& executor, const Matrix& out, const ConstMatrix& in) {
  ForRows(executor, in.dtype, in.rows, in.cols, [&](auto type, int64_t r) HWY_ATTR {
    using T = decltype(type);
    const Wide d;
    const T* x = RowOf<T>(in, r);
    T* to = RowOf<T>(out, r);
    ForVectors(d, in.cols,
               [&](int64_t c, auto access) HWY_ATTR { access.Store(d, Gelu(d, access.Load(d, x + c)), to + c); });
  });
}

void GeluBackward(Executor& executor, const Matrix& d_in, const ConstMatrix& d_out, const ConstMatrix& in) {
  ForRows(executor, in.dtype, in.rows, in.cols, [&](auto type, int64_t r) HWY_ATTR {
    using T = decltype(type);
    const Wide d;
    const T *x = RowOf<T>(in, r), *gradient = RowOf<T>(d_out, r);
    T* to = RowOf<T>(d_in, r);
    ForVectors(d, in.cols, [&](int64_t c, auto access) HWY_ATTR {
      const auto slope = GeluDerivative(d, access.Load(d, x + c));
      access.Store(d, hn::Mul(access.Load(d, gradient + c), slope), to + c);
    });
  });
}

void SwigluForward(Executor& executor, const Matrix& out, const ConstMatrix& gate_up) {
  ForRows(executor, out.dtype, out.rows, out.cols, [&](auto type, int64_t r) HWY_ATTR {
    using T = decltype(type);
    const Wide d;
    const T *gate = RowOf<T>(gate_up, r), *up = gate + out.cols;
    T* to = RowOf<T>(out, r);
    ForVectors(d, out.cols, [&](int64_t c, auto access) HWY_ATTR {
      const auto g = access.Load(d, gate + c);
      access.Store(d, hn::Mul(hn::Mul(g, Sigmoid(d, g)), access.Load(d, up + c)), to + c);
    });
  });
}

/// d_up = d silu(gate);  d_gate = d up s (1 + gate (1 - s)), s = sigmoid(gate).
void SwigluBackward(Executor& executor, const Matrix& d_gate_up, const ConstMatrix& d_out, const ConstMatrix& gate_up) {
  ForRows(executor, d_out.dtype, d_out.rows, d_out.cols, [&](auto type, int64_t r) HWY_ATTR {
    using T = decltype(type);
    const Wide d;
    const auto one = hn::Set(d, 1.0f);
    const int64_t cols = d_out.cols;
    const T *gate = RowOf<T>(gate_up, r), *up = gate + cols, *gradient = RowOf<T>(d_out, r);
    T *d_gate = RowOf<T>(d_gate_up, r), *d_up = d_gate + cols;
    ForVectors(d, cols, [&](int64_t c, auto access) HWY_ATTR {
      const auto g = access.Load(d, gate + c), u = access.Load(d, up + c), dy = access.Load(d, gradient + c);
      const auto s = Sigmoid(d, g);
      const auto slope = hn::Mul(s, hn::MulAdd(g, hn::Sub(one, s), one));
      access.Store(d, hn::Mul(hn::Mul(dy, u), slope), d_gate + c);
      access.Store(d, hn::Mul(dy, hn::Mul(g, s)), d_up + c);
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace holdfast::kernels {

HWY_EXPORT(GeluForward);
HWY_EXPORT(GeluBackward);
HWY_EXPORT(SwigluForward);
HWY_EXPORT(SwigluBackward);

void CpuOps::GeluForward(Matrix out, ConstMatrix in) { HWY_DYNAMIC_DISPATCH(GeluForward)(executor_, out, in); }

void CpuOps::GeluBackward(Matrix d_in, ConstMatrix d_out, ConstMatrix in) {
  HWY_DYNAMIC_DISPATCH(GeluBackward)(executor_, d_in, d_out, in);
}

void CpuOps::SwigluForward(Matrix out, ConstMatrix gate_up) {
  HWY_DYNAMIC_DISPATCH(SwigluForward)(executor_, out, gate_up);
}

void CpuOps::SwigluBackward(Matrix d_gate_up, ConstMatrix d_out, ConstMatrix gate_up) {
  HWY_DYNAMIC_DISPATCH(SwigluBackward)(executor_, d_gate_up, d_out, gate_up);
}

}  // namespace holdfast::kernels
#endif  // HWY_ONCE
