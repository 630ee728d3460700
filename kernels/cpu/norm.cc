#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm.cc"
#include <cmath>

#include "kernels/cpu/calls.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/foreach_target.h"
#include "kernels/cpu/load-inl.h"
#include "kernels/cpu/random-inl.h"
#include "kernels/cpu/views.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

/// The `row`-th group of columns, counted through all rows.
template <typename T, typename M>
auto* GroupOf(const M& m, int64_t row, int64_t groups) {
  return RowOf<T>(m, row / groups) + row % groups * (m.cols / groups);
}

/// x = residual + dropout(branch), rounded as the backward pass will read it. Returns the lanes of sum(x).
template <typename T>
EightLanes AddBranch(const NormForwardCall& call, const RowDropout& dropout, int64_t row, float* x) {
  const Eight d;
  const int64_t cols = call.out.cols / call.params.groups;
  const T* residual = GroupOf<T>(call.residual, row, call.params.groups);
  auto sum = hn::Zero(d);
  if (call.branch.data == nullptr) {
    ForVectors(d, cols, [&](int64_t c, auto access) HWY_ATTR {
      const auto value = access.Load(d, residual + c);
      access.Store(d, value, x + c);
      sum = hn::Add(sum, value);
    });
    return sum;
  }
  const T* branch = RowOf<T>(call.branch, row);
  T* residual_out = RowOf<T>(call.residual_out, row);
  const uint32_t* masks = dropout.Masks(row * cols);
  ForVectors(d, cols, [&](int64_t c, auto access) HWY_ATTR {
    const auto added = hn::Add(access.Load(d, residual + c), dropout.Apply(access.Load(d, branch + c), masks + c));
    const auto value = access.Keep(d, RoundTo<T>(d, added));
    access.Store(d, added, residual_out + c);
    access.Store(d, value, x + c);
    sum = hn::Add(sum, value);
  });
  return sum;
}

/// sum((x - mean)^2), from values in the cache: not the difference of two large sums.
HWY_INLINE float SquaredDeviation(const float* x, int64_t cols, float mean) {
  const Eight d;
  const auto center = hn::Set(d, mean);
  auto sum = hn::Zero(d);
  ForVectors(d, cols, [&](int64_t c, auto access) HWY_ATTR {
    const auto deviation = access.Keep(d, hn::Sub(access.Load(d, x + c), center));
    sum = hn::MulAdd(deviation, deviation, sum);
  });
  return SumOf(sum);
}

template <typename T>
void ForwardRow(const NormForwardCall& call, const RowDropout& dropout, int64_t row, float* x) {
  const Eight d;
  const int64_t cols = call.out.cols / call.params.groups;
  const float count = static_cast<float>(cols);
  const auto sum = AddBranch<T>(call, dropout, row, x);
  const bool centered = call.params.kind == NormKind::kLayerNorm;
  const float mean = centered ? SumOf(sum) / count : 0.0f;
  const float rstd = 1.0f / std::sqrt(SquaredDeviation(x, cols, mean) / count + call.params.eps);
  if (centered && call.stats.mean != nullptr) call.stats.mean[row] = mean;
  if (call.stats.rstd != nullptr) call.stats.rstd[row] = rstd;

  const float* weight = call.params.weight;
  const float* bias = call.params.bias;
  T* out = GroupOf<T>(call.out, row, call.params.groups);
  const auto center = hn::Set(d, mean), scale = hn::Set(d, rstd);
  ForVectors(d, cols, [&](int64_t c, auto access) HWY_ATTR {
    const auto normalized = hn::Mul(hn::Sub(access.Load(d, x + c), center), scale);
    const auto shift = bias != nullptr ? access.Load(d, bias + c) : hn::Zero(d);
    access.Store(d, hn::MulAdd(normalized, access.Load(d, weight + c), shift), out + c);
  });
}

void NormForward(Executor& executor, const NormForwardCall& call, const Dropout& dropout) {
  const int64_t groups = call.params.groups, cols = call.out.cols / groups;
  const Pieces pieces = PiecesOfRows(call.out.rows * groups, cols);
  const Dropout used = call.branch.data != nullptr ? dropout : Dropout{};
  const size_t bytes = static_cast<size_t>(KeepMaskSize(cols) + cols) * sizeof(uint32_t);
  ParallelForWithScratch(executor, pieces.count(), bytes, [&](int64_t task, void* memory) HWY_ATTR {
    uint32_t* masks = static_cast<uint32_t*>(memory);
    float* x = reinterpret_cast<float*>(masks + KeepMaskSize(cols));
    const RowDropout rows(used, cols, masks);
    const Range range = pieces.piece(task);
    WithType(call.out.dtype, [&](auto type) {
      for (int64_t r = range.begin; r < range.end; ++r) ForwardRow<decltype(type)>(call, rows, r, x);
    });
  });
}

/// With x^ = (x - mean) rstd and g = d_out * weight: d_input = rstd (g - mean(g) - x^ mean(g x^)) + d_residual, where
/// RMSNorm has neither mean. Adds this row to the partial sums of d_weight and d_bias.
template <typename T, bool kCentered>
void BackwardRow(const NormBackwardCall& call, int64_t row, float* d_weight, float* d_bias) {
  const Eight d;
  const int64_t groups = call.params.groups, cols = call.input.cols / groups;
  const T* input = GroupOf<T>(call.input, row, groups);
  const T* d_out = GroupOf<T>(call.d_out, row, groups);
  const float* weight = call.params.weight;
  const auto center = hn::Set(d, kCentered ? call.stats.mean[row] : 0.0f);
  const auto scale = hn::Set(d, call.stats.rstd[row]);
  auto sum_g = hn::Zero(d), sum_gx = hn::Zero(d);
  ForVectors(d, cols, [&](int64_t c, auto access) HWY_ATTR {
    const auto gradient = access.Load(d, d_out + c);  // lanes beyond the row are zero here, and so in every sum
    const auto x = hn::Mul(hn::Sub(access.Load(d, input + c), center), scale);
    const auto g = hn::Mul(gradient, access.Load(d, weight + c));
    sum_gx = hn::MulAdd(g, x, sum_gx);
    access.Store(d, hn::MulAdd(gradient, x, access.Load(d, d_weight + c)), d_weight + c);
    if constexpr (kCentered) {
      sum_g = hn::Add(sum_g, g);
      access.Store(d, hn::Add(gradient, access.Load(d, d_bias + c)), d_bias + c);
    }
  });

  const float count = static_cast<float>(cols);
  const auto mean_g = hn::Set(d, SumOf(sum_g) / count), mean_gx = hn::Set(d, SumOf(sum_gx) / count);
  const T* d_residual = call.d_residual.data != nullptr ? GroupOf<T>(call.d_residual, row, groups) : nullptr;
  T* d_input = GroupOf<T>(call.d_input, row, groups);
  ForVectors(d, cols, [&](int64_t c, auto access) HWY_ATTR {
    const auto x = hn::Mul(hn::Sub(access.Load(d, input + c), center), scale);
    auto g = hn::Mul(access.Load(d, d_out + c), access.Load(d, weight + c));
    if constexpr (kCentered) g = hn::Sub(g, mean_g);
    const auto base = d_residual != nullptr ? access.Load(d, d_residual + c) : hn::Zero(d);
    access.Store(d, hn::MulAdd(scale, hn::NegMulAdd(x, mean_gx, g), base), d_input + c);
  });
}

void NormBackward(Executor& executor, const NormBackwardCall& call, float* d_weight, float* d_bias) {
  const int64_t groups = call.params.groups, cols = call.input.cols / groups;
  const Pieces blocks = PiecesToSum(call.input.rows * groups);
  const int64_t stride = 2 * cols;  // of a block's partial sums: d_weight then d_bias
  const size_t bytes = static_cast<size_t>(blocks.count() * stride) * sizeof(float);
  float* partials = static_cast<float*>(executor.Scratch(Executor::kShared, bytes));
  ParallelFor(executor, blocks.count(), [&](int64_t task, int) HWY_ATTR {
    float* partial = partials + task * stride;
    std::fill(partial, partial + stride, 0.0f);
    const Range range = blocks.piece(task);
    WithType(call.input.dtype, [&](auto type) {
      using T = decltype(type);
      const auto backward_row = call.params.kind == NormKind::kLayerNorm ? BackwardRow<T, true> : BackwardRow<T, false>;
      for (int64_t r = range.begin; r < range.end; ++r) backward_row(call, r, partial, partial + cols);
    });
  });

  const Pieces stripes = {cols, 256};
  ParallelFor(executor, stripes.count(), [&](int64_t task, int) HWY_ATTR {
    const Range columns = stripes.piece(task);
    if (d_weight != nullptr) SumPartials(d_weight, partials, blocks.count(), stride, columns);
    if (d_bias != nullptr) SumPartials(d_bias, partials + cols, blocks.count(), stride, columns);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace holdfast::kernels {

HWY_EXPORT(NormForward);
HWY_EXPORT(NormBackward);

void CpuOps::NormForward(Matrix out, Matrix residual_out, const NormStats& stats, ConstMatrix residual,
                         ConstMatrix branch, const NormParams& params, const Dropout& dropout) {
  HWY_DYNAMIC_DISPATCH(NormForward)(executor_, {out, residual_out, stats, residual, branch, params}, dropout);
}

void CpuOps::NormBackward(Matrix d_input, float* d_weight, float* d_bias, ConstMatrix d_residual, ConstMatrix d_out,
                          ConstMatrix input, const NormStats& stats, const NormParams& params) {
  HWY_DYNAMIC_DISPATCH(NormBackward)
  (executor_, {d_input, d_residual, d_out, input, stats, params}, d_weight, d_bias);
}

}  // namespace holdfast::kernels
#endif  // HWY_ONCE
