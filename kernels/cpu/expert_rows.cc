// Rows on their way to experts and back, and what happens to them there besides matrix products.

#include <algorithm>
#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/expert_rows.cc"
#include "kernels/cpu/calls.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/foreach_target.h"
#include "kernels/cpu/load-inl.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/views.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

/// Slots of choices that are not dropped.
HWY_INLINE int64_t KeptSlots(const ExpertRows& rows) { return rows.offsets[rows.num_experts]; }

void GatherRows(Executor& executor, const Matrix& out, const ConstMatrix& in, const ExpertRows& rows) {
  ForRows(executor, out.dtype, rows.slots, out.cols, [&](auto type, int64_t slot) {
    using T = decltype(type);
    std::memcpy(RowOf<T>(out, slot), RowOf<T>(in, rows.choices[slot] / rows.chosen),
                static_cast<size_t>(out.cols) * sizeof(T));
  });
}

void CombineRows(Executor& executor, const Matrix& out, const ConstMatrix& in, const ConstMatrix& last,
                 const ExpertRows& rows) {
  const int64_t kept = KeptSlots(rows);
  ForRows(executor, out.dtype, out.rows, out.cols, [&](auto type, int64_t r) HWY_ATTR {
    using T = decltype(type);
    const Wide d;
    const T* parts[kMaxExpertsPerRow + 1];
    int64_t n = 0;
    for (int64_t j = 0; j < rows.chosen; ++j) {
      const int32_t slot = rows.slot_of[r * rows.chosen + j];
      if (slot < kept) parts[n++] = RowOf<T>(in, slot);
    }
    if (last.data != nullptr) parts[n++] = RowOf<T>(last, r);
    T* to = RowOf<T>(out, r);
    ForVectors(d, out.cols, [&](int64_t c, auto access) HWY_ATTR {
      auto sum = n > 0 ? access.Load(d, parts[0] + c) : hn::Zero(d);
      for (int64_t j = 1; j < n; ++j) sum = hn::Add(sum, access.Load(d, parts[j] + c));
      access.Store(d, sum, to + c);
    });
  });
}

/// The gate's activation is x sigmoid(kLimitedSlope x) where gate and up are limited.
constexpr float kLimitedSlope = 1.702f;

template <bool limited, class D, class V = hn::Vec<D>>
HWY_INLINE V ExpertSigmoid(D d, V gate) {
  if constexpr (limited) {
    return Sigmoid(d, hn::Mul(gate, hn::Set(d, kLimitedSlope)));
  } else {
    return Sigmoid(d, gate);
  }
}

/// Limits a gate and an up, to which 1 is added. NaN stays.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void LimitGate(D d, V& gate, V& up, V most) {
  const V least = hn::Neg(most);
  gate = hn::IfThenElse(hn::Gt(gate, most), most, gate);
  up = hn::IfThenElse(hn::Gt(up, most), most, hn::IfThenElse(hn::Lt(up, least), least, up));
  up = hn::Add(up, hn::Set(d, 1.0f));
}

template <bool limited>
void SwigluForwardOf(Executor& executor, const Matrix& out, const ConstMatrix& gate_up, const float* weights,
                     float limit, const ExpertRows& rows) {
  ForRows(executor, out.dtype, KeptSlots(rows), out.cols, [&](auto type, int64_t slot) HWY_ATTR {
    using T = decltype(type);
    const Wide d;
    const T *gate = RowOf<T>(gate_up, slot), *up = gate + out.cols;
    T* to = RowOf<T>(out, slot);
    const auto weight = hn::Set(d, weights[rows.choices[slot]]), most = hn::Set(d, limit);
    ForVectors(d, out.cols, [&](int64_t c, auto access) HWY_ATTR {
      auto g = access.Load(d, gate + c), u = access.Load(d, up + c);
      if constexpr (limited) LimitGate(d, g, u, most);
      const auto value = hn::Mul(hn::Mul(g, ExpertSigmoid<limited>(d, g)), u);
      access.Store(d, hn::Mul(value, weight), to + c);
    });
  });
}

void ExpertSwigluForward(Executor& executor, const Matrix& out, const ConstMatrix& gate_up, const float* weights,
                         float limit, const ExpertRows& rows) {
  if (limit > 0) return SwigluForwardOf<true>(executor, out, gate_up, weights, limit, rows);
  SwigluForwardOf<false>(executor, out, gate_up, weights, limit, rows);
}

/// d_value = d_out * weight, d_weight = <d_out, activation(gate) up>; the rest as GatedBackward. Eight lanes for the
/// sum.
template <bool limited>
void SwigluBackwardOf(Executor& executor, const Matrix& d_gate_up, float* d_weights, const ConstMatrix& d_out,
                      const ConstMatrix& gate_up, const float* weights, float limit, const ExpertRows& rows) {
  const int64_t kept = KeptSlots(rows);
  for (int64_t slot = kept; slot < rows.slots; ++slot) d_weights[rows.choices[slot]] = 0;
  ForRows(executor, d_out.dtype, kept, 2 * d_out.cols, [&](auto type, int64_t slot) HWY_ATTR {
    using T = decltype(type);
    const Wide d;
    const int64_t cols = d_out.cols;
    const auto one = hn::Set(d, 1.0f), weight = hn::Set(d, weights[rows.choices[slot]]), most = hn::Set(d, limit);
    const T *gate = RowOf<T>(gate_up, slot), *up = gate + cols, *gradient = RowOf<T>(d_out, slot);
    T *d_gate = RowOf<T>(d_gate_up, slot), *d_up = d_gate + cols;
    auto sum = hn::Zero(Eight());
    ForVectors(d, cols, [&](int64_t c, auto access) HWY_ATTR {
      auto g = access.Load(d, gate + c), u = access.Load(d, up + c);
      const auto gate_passes = hn::Lt(g, most), up_passes = hn::Lt(hn::Abs(u), most);
      const auto dy = access.Load(d, gradient + c);
      if constexpr (limited) LimitGate(d, g, u, most);
      const auto s = ExpertSigmoid<limited>(d, g), silu = hn::Mul(g, s);
      sum = AddProducts(dy, hn::Mul(silu, u), cols - c, sum);
      const auto steep = limited ? hn::Mul(g, hn::Set(d, kLimitedSlope)) : g;
      const auto slope = hn::Mul(s, hn::MulAdd(steep, hn::Sub(one, s), one)), dv = hn::Mul(dy, weight);
      auto of_gate = hn::Mul(hn::Mul(dv, u), slope), of_up = hn::Mul(dv, silu);
      if constexpr (limited) {
        of_gate = hn::IfThenElseZero(gate_passes, of_gate);
        of_up = hn::IfThenElseZero(up_passes, of_up);
      }
      access.Store(d, of_gate, d_gate + c);
      access.Store(d, of_up, d_up + c);
    });
    d_weights[rows.choices[slot]] = SumOf(sum);
  });
}

void ExpertSwigluBackward(Executor& executor, const Matrix& d_gate_up, float* d_weights, const ConstMatrix& d_out,
                          const ConstMatrix& gate_up, const float* weights, float limit, const ExpertRows& rows) {
  if (limit > 0) return SwigluBackwardOf<true>(executor, d_gate_up, d_weights, d_out, gate_up, weights, limit, rows);
  SwigluBackwardOf<false>(executor, d_gate_up, d_weights, d_out, gate_up, weights, limit, rows);
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace holdfast::kernels {

HWY_EXPORT(GatherRows);
HWY_EXPORT(CombineRows);
HWY_EXPORT(ExpertSwigluForward);
HWY_EXPORT(ExpertSwigluBackward);

namespace {

constexpr int32_t kDropped = -1;

/// Marks in out.slot_of the choices that experts have no room for, when all are sorted; offsets are then of the others.
void DropBeyondCapacity(const SortedChoices& out, const float* weights, const RouterShape& shape) {
  const auto rank = [&](int32_t c) {
    return weights[c] == weights[c] ? weights[c] : -std::numeric_limits<float>::infinity();
  };
  const auto before = [&](int32_t a, int32_t b) { return rank(a) > rank(b) || (rank(a) == rank(b) && a < b); };
  int32_t first = 0;
  for (int64_t e = 0; e < shape.num_experts; ++e) {
    const int32_t end = out.offsets[e + 1], kept = static_cast<int32_t>(std::min<int64_t>(end - first, shape.capacity));
    std::nth_element(out.choices + first, out.choices + first + kept, out.choices + end, before);
    for (int32_t slot = first + kept; slot < end; ++slot) out.slot_of[out.choices[slot]] = kDropped;
    out.offsets[e + 1] = out.offsets[e] + kept;
    first = end;
  }
}

/// Gives choices their slots, but those that are marked the last ones. `offsets`: first slots of experts.
void PlaceChoices(const SortedChoices& out, const int32_t* experts, int64_t num_choices, const RouterShape& shape) {
  const int64_t n = shape.num_experts;
  int32_t end = out.offsets[n];
  for (int64_t c = 0; c < num_choices; ++c) {
    const int32_t slot = out.slot_of[c] == kDropped ? end++ : out.offsets[experts[c]]++;
    out.choices[slot] = static_cast<int32_t>(c);
    out.slot_of[c] = slot;
  }
  std::copy_backward(out.offsets, out.offsets + n, out.offsets + n + 1);  // each has become the next one's
  out.offsets[0] = 0;
}

}  // namespace

// A counting sort; tens of microseconds for the choices of a microbatch. With a capacity it is done again.
void CpuOps::SortChoices(const SortedChoices& out, const int32_t* experts, const float* weights, int64_t rows,
                         const RouterShape& shape) {
  const int64_t num_choices = rows * shape.chosen, n = shape.num_experts;
  std::fill(out.offsets, out.offsets + n + 1, 0);
  for (int64_t c = 0; c < num_choices; ++c) ++out.offsets[experts[c] + 1];
  if (out.counts != nullptr) std::copy_n(out.offsets + 1, n, out.counts);
  for (int64_t e = 0; e < n; ++e) out.offsets[e + 1] += out.offsets[e];
  std::fill(out.slot_of, out.slot_of + num_choices, 0);
  PlaceChoices(out, experts, num_choices, shape);
  if (shape.capacity == 0) return;
  DropBeyondCapacity(out, weights, shape);
  PlaceChoices(out, experts, num_choices, shape);
}

void CpuOps::GatherRows(Matrix out, ConstMatrix in, const ExpertRows& rows) {
  HWY_DYNAMIC_DISPATCH(GatherRows)(executor_, out, in, rows);
}

void CpuOps::CombineRows(Matrix out, ConstMatrix in, ConstMatrix last, const ExpertRows& rows) {
  HWY_DYNAMIC_DISPATCH(CombineRows)(executor_, out, in, last, rows);
}

void CpuOps::ExpertSwigluForward(Matrix out, ConstMatrix gate_up, const float* weights, float limit,
                                 const ExpertRows& rows) {
  HWY_DYNAMIC_DISPATCH(ExpertSwigluForward)(executor_, out, gate_up, weights, limit, rows);
}

void CpuOps::ExpertSwigluBackward(Matrix d_gate_up, float* d_weights, ConstMatrix d_out, ConstMatrix gate_up,
                                  const float* weights, float limit, const ExpertRows& rows) {
  HWY_DYNAMIC_DISPATCH(ExpertSwigluBackward)(executor_, d_gate_up, d_weights, d_out, gate_up, weights, limit, rows);
}

}  // namespace holdfast::kernels
#endif  // HWY_ONCE
