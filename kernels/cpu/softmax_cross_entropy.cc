#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/softmax_cross_entropy.cc"
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/calls.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/foreach_target.h"
#include "kernels/cpu/load-inl.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/views.h"
#include "kernels/portable_math.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// Logits whose maximum is known before they are exponentiated: 4 KiB, so the second reading comes from the L1 cache.
constexpr int64_t kBlock = 1024;

HWY_INLINE float ExpOne(float x) {
  const Eight d;
  return hn::GetLane(Exp(d, hn::Set(d, x)));
}

/// The largest of n logits; NaN if any of them is.
HWY_INLINE float BlockMax(const float* x, int64_t n) {
  const Eight d;
  auto largest = hn::Set(d, kMinusInfinity);
  auto nan = hn::Zero(d);
  ForVectors(d, n, [&](int64_t i, auto access) HWY_ATTR {
    const auto v = access.LoadOr(d, x + i, kMinusInfinity);
    largest = hn::Max(largest, v);
    nan = hn::Or(nan, hn::VecFromMask(d, hn::IsNaN(v)));
  });
  return hn::AllTrue(d, hn::Eq(nan, hn::Zero(d))) ? MaxOf(largest) : std::numeric_limits<float>::quiet_NaN();
}

HWY_INLINE float BlockSum(const float* x, int64_t n, float max) {
  const Eight d;
  const auto shift = hn::Set(d, max);
  auto sum = hn::Zero(d);
  ForVectors(d, n, [&](int64_t i, auto access) HWY_ATTR {
    sum = hn::Add(sum, Exp(d, hn::Sub(access.LoadOr(d, x + i, kMinusInfinity), shift)));
  });
  return SumOf(sum);
}

/// The largest logit of a row, and the sum of exp(logit - max). The sum is NaN where there is no softmax: at a NaN, at
/// +infinity, or if all are -infinity.
struct RowSum {
  float max = kMinusInfinity;
  double sum = 0;
};

/// One pass over memory: the sum so far is rescaled when a block brings a larger maximum (Milakov & Gimelshein 2018).
RowSum MaxAndSum(const float* x, int64_t n) {
  RowSum row;
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t count = std::min(kBlock, n - i);
    const float max = BlockMax(x + i, count);
    if (std::isnan(max) || max == -kMinusInfinity) return {max, std::numeric_limits<double>::quiet_NaN()};
    if (max > row.max) {
      row.sum *= static_cast<double>(ExpOne(row.max - max));
      row.max = max;
    }
    if (row.max > kMinusInfinity) row.sum += static_cast<double>(BlockSum(x + i, count, row.max));
  }
  if (row.max == kMinusInfinity) row.sum = std::numeric_limits<double>::quiet_NaN();
  return row;
}

/// d = factor * exp(logit - max). `d` may start where `logits` does: element i is written after it was read, at an
/// address not above its own.
template <typename T>
void WriteGradient(T* d_logits, const float* logits, int64_t n, float max, float factor) {
  const Wide d;
  const auto shift = hn::Set(d, max), scale = hn::Set(d, factor);
  ForVectors(d, n, [&](int64_t i, auto access) HWY_ATTR {
    access.Store(d, hn::Mul(Exp(d, hn::Sub(access.Load(d, logits + i), shift)), scale), d_logits + i);
  });
}

template <typename T>
void CrossEntropyRow(const CrossEntropyCall& call, int64_t r) {
  const float* logits = RowOf<float>(call.logits, r);
  T* gradient = call.d_logits.data != nullptr ? RowOf<T>(call.d_logits, r) : nullptr;
  const int64_t cols = call.logits.cols;
  const int32_t target = call.targets[r];
  if (target < 0) {
    call.losses[r] = 0;
    if (gradient != nullptr) std::fill(gradient, gradient + cols, T{0});
    return;
  }
  const RowSum row = MaxAndSum(logits, cols);
  const float distance = logits[target] - row.max;
  call.losses[r] = static_cast<float>(portable::Log(row.sum)) - distance;
  if (gradient == nullptr) return;

  const double factor = static_cast<double>(call.grad_scale) / row.sum;
  WriteGradient(gradient, logits, cols, row.max, static_cast<float>(factor));
  const double probability = static_cast<double>(ExpOne(distance)) / row.sum;
  const Eight d;
  const auto at_target = hn::Set(d, static_cast<float>((probability - 1.0) * static_cast<double>(call.grad_scale)));
  PartialAccess{1}.Store(d, at_target, gradient + target);
}

void SoftmaxCrossEntropy(Executor& executor, const CrossEntropyCall& call) {
  const Pieces pieces = PiecesOfRows(call.logits.rows, call.logits.cols);
  ParallelFor(executor, pieces.count(), [&](int64_t task, int) {
    const Range range = pieces.piece(task);
    WithType(call.d_logits.dtype, [&](auto type) {
      for (int64_t r = range.begin; r < range.end; ++r) CrossEntropyRow<decltype(type)>(call, r);
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace holdfast::kernels {

HWY_EXPORT(SoftmaxCrossEntropy);

void CpuOps::SoftmaxCrossEntropy(float* losses, Matrix d_logits, ConstMatrix logits, const int32_t* targets,
                                 float grad_scale) {
  HWY_DYNAMIC_DISPATCH(SoftmaxCrossEntropy)(executor_, {losses, d_logits, logits, targets, grad_scale});
}

}  // namespace holdfast::kernels
#endif  // HWY_ONCE
