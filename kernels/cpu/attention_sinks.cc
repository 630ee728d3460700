// Attention sinks: one more key of each head, without a value.

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_sinks.cc"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/foreach_target.h"
#include "kernels/cpu/load-inl.h"
#include "kernels/cpu/views.h"
#include "kernels/executor.h"
#include "kernels/portable_math.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

/// Where lse (B, H, T) of a row's head 0 is; that of the next head is T after it.
HWY_INLINE int64_t FirstLse(const AttentionShape& shape, int64_t row) {
  return row / shape.sequence * shape.num_heads * shape.sequence + row % shape.sequence;
}

/// Adds the sink to the log-sum-exp of one query, and returns by what its output is multiplied. Nothing overflows: the
/// smaller of the two is divided by the larger.
HWY_INLINE float AddSink(float* lse, float sink) {
  const double keys = double{*lse}, other = double{sink};
  const double smaller = portable::Exp(-std::abs(keys - other)), sum = 1.0 + smaller;
  *lse = static_cast<float>((keys > other ? keys : other) + portable::Log(sum));
  return static_cast<float>((keys > other ? 1.0 : smaller) / sum);
}

void SinkForward(Executor& executor, const Matrix& out, float* lse, const float* sinks, const AttentionShape& shape) {
  ForRows(executor, out.dtype, out.rows, out.cols, [&](auto type, int64_t row) HWY_ATTR {
    using T = decltype(type);
    const Wide d;
    for (int64_t h = 0; h < shape.num_heads; ++h) {
      const auto factor = hn::Set(d, AddSink(lse + FirstLse(shape, row) + h * shape.sequence, sinks[h]));
      T* head = RowOf<T>(out, row) + h * shape.head_dim;
      ForVectors(d, shape.head_dim, [&](int64_t c, auto access) HWY_ATTR {
        access.Store(d, hn::Mul(access.Load(d, head + c), factor), head + c);
      });
    }
  });
}

/// The addends of each head are kept, (H, R), so that their sum is one of ascending rows however rows are cut.
void SinkBackward(Executor& executor, float* d_sinks, const ConstMatrix& d_out, const ConstMatrix& out,
                  const float* lse, const float* sinks, const AttentionShape& shape) {
  const int64_t rows = out.rows, heads = shape.num_heads;
  const size_t bytes = static_cast<size_t>(rows * heads) * sizeof(float);
  auto* const addends = static_cast<float*>(executor.Scratch(Executor::kShared, bytes));
  ForRows(executor, out.dtype, rows, out.cols, [&](auto type, int64_t row) HWY_ATTR {
    using T = decltype(type);
    const Eight d;
    for (int64_t h = 0; h < heads; ++h) {
      const T* y = RowOf<T>(out, row) + h * shape.head_dim;
      const T* dy = RowOf<T>(d_out, row) + h * shape.head_dim;
      auto sum = hn::Zero(d);
      ForVectors(d, shape.head_dim, [&](int64_t c, auto access) HWY_ATTR {
        sum = hn::MulAdd(access.Load(d, dy + c), access.Load(d, y + c), sum);
      });
      const double share = portable::Exp(double{sinks[h]} - double{lse[FirstLse(shape, row) + h * shape.sequence]});
      addends[h * rows + row] = static_cast<float>(share * double{SumOf(sum)});
    }
  });
  ParallelFor(executor, heads, [&](int64_t h, int) {
    double sum = 0;
    for (int64_t row = 0; row < rows; ++row) sum -= double{addends[h * rows + row]};
    d_sinks[h] = static_cast<float>(sum);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace holdfast::kernels {

HWY_EXPORT(SinkForward);
HWY_EXPORT(SinkBackward);

void CpuOps::SinkForward(Matrix out, float* lse, const float* sinks, const AttentionShape& shape) {
  HWY_DYNAMIC_DISPATCH(SinkForward)(executor_, out, lse, sinks, shape);
}

void CpuOps::SinkBackward(float* d_sinks, ConstMatrix d_out, ConstMatrix out, const float* lse, const float* sinks,
                          const AttentionShape& shape) {
  HWY_DYNAMIC_DISPATCH(SinkBackward)(executor_, d_sinks, d_out, out, lse, sinks, shape);
}

}  // namespace holdfast::kernels
#endif  // HWY_ONCE
