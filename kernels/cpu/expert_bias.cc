// Gradients of experts' biases, and of the weights that these are multiplied by.

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/expert_bias.cc"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/foreach_target.h"
#include "kernels/cpu/load-inl.h"
#include "kernels/cpu/views.h"
#include "kernels/executor.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

/// Of a slot whose choice is not dropped.
HWY_INLINE int64_t ExpertOfSlot(const ExpertRows& rows, int64_t slot) {
  const int32_t* const end = rows.offsets + rows.num_experts;
  return std::upper_bound(rows.offsets, end, static_cast<int32_t>(slot)) - rows.offsets - 1;
}

HWY_INLINE float WeightOfSlot(const float* weights, const ExpertRows& rows, int64_t slot) {
  return weights == nullptr ? 1.0f : weights[rows.choices[slot]];
}

/// Rows read side by side, so that the sums are loaded and stored once for all of them.
constexpr int64_t kBiasRowsAtOnce = 8;

template <typename T>
void SumRowsOfExpert(const ExpertBiasBackwardArgs& args, const ExpertRows& rows, int64_t e, Range columns) {
  const Wide d;
  const int64_t n = columns.end - columns.begin, end = rows.offsets[e + 1];
  float* to = args.d_bias + e * args.d_bias_step + columns.begin;
  std::fill_n(to, n, 0.0f);
  for (int64_t first = rows.offsets[e]; first < end; first += kBiasRowsAtOnce) {
    const int64_t last = std::min(end, first + kBiasRowsAtOnce);
    ForVectors(d, n, [&](int64_t c, auto access) HWY_ATTR {
      auto sum = access.Load(d, to + c);
      for (int64_t slot = first; slot < last; ++slot) {
        const auto x = access.Load(d, RowOf<T>(args.d_out, slot) + columns.begin + c);
        sum = hn::MulAdd(x, hn::Set(d, WeightOfSlot(args.weights, rows, slot)), sum);
      }
      access.Store(d, sum, to + c);
    });
  }
}

void ExpertBiasBackward(Executor& executor, const ExpertBiasBackwardArgs& args, const ExpertRows& rows) {
  const int64_t cols = args.d_out.cols;
  if (args.d_bias != nullptr) {
    const Pieces stripes = {cols, 256};
    ParallelFor(executor, rows.num_experts * stripes.count(), [&](int64_t task, int) {
      WithType(args.d_out.dtype, [&](auto type) {
        SumRowsOfExpert<decltype(type)>(args, rows, task / stripes.count(), stripes.piece(task % stripes.count()));
      });
    });
  }
  if (args.d_weights == nullptr) return;
  ForRows(executor, args.d_out.dtype, rows.offsets[rows.num_experts], cols, [&](auto type, int64_t slot) HWY_ATTR {
    using T = decltype(type);
    const Eight d;
    const T* gradient = RowOf<T>(args.d_out, slot);
    const float* bias = args.bias + ExpertOfSlot(rows, slot) * args.bias_step;
    auto sum = hn::Zero(d);
    ForVectors(d, cols, [&](int64_t c, auto access) HWY_ATTR {
      sum = hn::MulAdd(access.Load(d, gradient + c), access.Load(d, bias + c), sum);
    });
    args.d_weights[rows.choices[slot]] += SumOf(sum);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace holdfast::kernels {

HWY_EXPORT(ExpertBiasBackward);

void CpuOps::ExpertBiasBackward(const ExpertBiasBackwardArgs& args, const ExpertRows& rows) {
  HWY_DYNAMIC_DISPATCH(ExpertBiasBackward)(executor_, args, rows);
}

}  // namespace holdfast::kernels
#endif  // HWY_ONCE
