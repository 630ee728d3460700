#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/column_sum.cc"
#include <algorithm>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/foreach_target.h"
#include "kernels/cpu/load-inl.h"
#include "kernels/cpu/views.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

/// Rows read side by side, so that the partial sums are loaded and stored once for all of them.
constexpr int64_t kRowsAtOnce = 8;

/// partial[c] += rows [range), in order. The first row is stored, not added.
template <typename T>
void AddRows(float* partial, const ConstMatrix& in, Range range) {
  const Eight d;
  for (int64_t r0 = range.begin; r0 < range.end; r0 += kRowsAtOnce) {
    const int64_t r1 = std::min(range.end, r0 + kRowsAtOnce);
    const bool first = r0 == range.begin;
    ForVectors(d, in.cols, [&](int64_t c, auto access) HWY_ATTR {
      auto sum = first ? hn::Zero(d) : access.Load(d, partial + c);
      for (int64_t r = r0; r < r1; ++r) sum = hn::Add(sum, access.Load(d, RowOf<T>(in, r) + c));
      access.Store(d, sum, partial + c);
    });
  }
}

void ColumnSum(Executor& executor, float* out, const ConstMatrix& in) {
  const Pieces blocks = PiecesToSum(in.rows);
  const size_t bytes = static_cast<size_t>(blocks.count() * in.cols) * sizeof(float);
  float* partials = static_cast<float*>(executor.Scratch(Executor::kShared, bytes));
  ParallelFor(executor, blocks.count(), [&](int64_t task, int) {
    WithType(in.dtype, [&](auto type) { AddRows<decltype(type)>(partials + task * in.cols, in, blocks.piece(task)); });
  });
  const Pieces stripes = {in.cols, 256};
  ParallelFor(executor, stripes.count(), [&](int64_t task, int) HWY_ATTR {
    SumPartials(out, partials, blocks.count(), in.cols, stripes.piece(task));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace holdfast::kernels {

HWY_EXPORT(ColumnSum);

void CpuOps::ColumnSum(float* out, ConstMatrix in) { HWY_DYNAMIC_DISPATCH(ColumnSum)(executor_, out, in); }

}  // namespace holdfast::kernels
#endif  // HWY_ONCE
