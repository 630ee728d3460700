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
      const auto v = access.Load(d, x + c);
      const auto slope = GeluDerivative(d, v, GeluSigmoid(d, v));
      access.Store(d, hn::Mul(access.Load(d, gradient + c), slope), to + c);
    });
  });
}

/// The activation of a gate is x s.
template <GateKind kind, class D, class V = hn::Vec<D>>
HWY_INLINE V GateSigmoid(D d, V x) {
  if constexpr (kind == GateKind::kGelu) {
    return GeluSigmoid(d, x);
  } else {
    return Sigmoid(d, x);
  }
}

/// Of the activation with s = GateSigmoid(x); silu's is s (1 + x (1 - s)).
template <GateKind kind, class D, class V = hn::Vec<D>>
HWY_INLINE V GateDerivative(D d, V x, V s) {
  if constexpr (kind == GateKind::kGelu) {
    return GeluDerivative(d, x, s);
  } else {
    const V one = hn::Set(d, 1.0f);
    return hn::Mul(s, hn::MulAdd(x, hn::Sub(one, s), one));
  }
}

template <GateKind kind>
void GatedForwardOf(Executor& executor, const Matrix& out, const ConstMatrix& gate_up) {
  ForRows(executor, out.dtype, out.rows, out.cols, [&](auto type, int64_t r) HWY_ATTR {
    using T = decltype(type);
    const Wide d;
    const T *gate = RowOf<T>(gate_up, r), *up = gate + out.cols;
    T* to = RowOf<T>(out, r);
    ForVectors(d, out.cols, [&](int64_t c, auto access) HWY_ATTR {
      const auto g = access.Load(d, gate + c);
      access.Store(d, hn::Mul(hn::Mul(g, GateSigmoid<kind>(d, g)), access.Load(d, up + c)), to + c);
    });
  });
}

void GatedForward(Executor& executor, const Matrix& out, const ConstMatrix& gate_up, GateKind kind) {
  if (kind == GateKind::kGelu) return GatedForwardOf<GateKind::kGelu>(executor, out, gate_up);
  GatedForwardOf<GateKind::kSilu>(executor, out, gate_up);
}

/// d_up = d activation(gate);  d_gate = d up activation'(gate).
template <GateKind kind>
void GatedBackwardOf(Executor& executor, const Matrix& d_gate_up, const ConstMatrix& d_out,
                     const ConstMatrix& gate_up) {
  ForRows(executor, d_out.dtype, d_out.rows, d_out.cols, [&](auto type, int64_t r) HWY_ATTR {
    using T = decltype(type);
    const Wide d;
    const int64_t cols = d_out.cols;
    const T *gate = RowOf<T>(gate_up, r), *up = gate + cols, *gradient = RowOf<T>(d_out, r);
    T *d_gate = RowOf<T>(d_gate_up, r), *d_up = d_gate + cols;
    ForVectors(d, cols, [&](int64_t c, auto access) HWY_ATTR {
      const auto g = access.Load(d, gate + c), u = access.Load(d, up + c), dy = access.Load(d, gradient + c);
      const auto s = GateSigmoid<kind>(d, g);
      access.Store(d, hn::Mul(hn::Mul(dy, u), GateDerivative<kind>(d, g, s)), d_gate + c);
      access.Store(d, hn::Mul(dy, hn::Mul(g, s)), d_up + c);
    });
  });
}

void GatedBackward(Executor& executor, const Matrix& d_gate_up, const ConstMatrix& d_out, const ConstMatrix& gate_up,
                   GateKind kind) {
  if (kind == GateKind::kGelu) return GatedBackwardOf<GateKind::kGelu>(executor, d_gate_up, d_out, gate_up);
  GatedBackwardOf<GateKind::kSilu>(executor, d_gate_up, d_out, gate_up);
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace holdfast::kernels {

HWY_EXPORT(GeluForward);
HWY_EXPORT(GeluBackward);
HWY_EXPORT(GatedForward);
HWY_EXPORT(GatedBackward);

void CpuOps::GeluForward(Matrix out, ConstMatrix in) { HWY_DYNAMIC_DISPATCH(GeluForward)(executor_, out, in); }

void CpuOps::GeluBackward(Matrix d_in, ConstMatrix d_out, ConstMatrix in) {
  HWY_DYNAMIC_DISPATCH(GeluBackward)(executor_, d_in, d_out, in);
}

void CpuOps::GatedForward(Matrix out, ConstMatrix gate_up, GateKind kind) {
  HWY_DYNAMIC_DISPATCH(GatedForward)(executor_, out, gate_up, kind);
}

void CpuOps::GatedBackward(Matrix d_gate_up, ConstMatrix d_out, ConstMatrix gate_up, GateKind kind) {
  HWY_DYNAMIC_DISPATCH(GatedBackward)(executor_, d_gate_up, d_out, gate_up, kind);
}

}  // namespace holdfast::kernels
#endif  // HWY_ONCE
