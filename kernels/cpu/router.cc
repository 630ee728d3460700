// Which experts a row goes to, and the gradient of that. A row is a few hundred numbers: one task takes many rows, and
// sums over experts use eight lanes on every instruction set.

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/router.cc"
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

constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr float kScoreEpsilon = 1e-20f;  // of DeepSeek V3: only where all chosen scores are 0

HWY_INLINE float MaxOfRow(const float* x, int64_t n) {
  float largest = kLowest;
  for (int64_t i = 0; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
  return largest;
}

/// out = exp(logits - shift); returns their sum.
HWY_INLINE float ExpRow(float* out, const float* logits, int64_t n, float shift) {
  const Eight d;
  const auto minus = hn::Set(d, shift);
  auto sum = hn::Zero(d);
  ForVectors(d, n, [&](int64_t i, auto access) HWY_ATTR {
    const auto e = Exp(d, hn::Sub(access.LoadOr(d, logits + i, kLowest), minus));
    access.Store(d, e, out + i);
    sum = hn::Add(sum, access.Keep(d, e));
  });
  return SumOf(sum);
}

HWY_INLINE void DivideRow(float* x, int64_t n, float by) {
  for (int64_t i = 0; i < n; ++i) x[i] /= by;
}

HWY_INLINE float Dot(const float* a, const float* b, int64_t n) {
  const Eight d;
  auto sum = hn::Zero(d);
  ForVectors(d, n, [&](int64_t i, auto access) HWY_ATTR {
    sum = hn::MulAdd(access.Load(d, a + i), access.Load(d, b + i), sum);
  });
  return SumOf(sum);
}

/// The `count` largest of the candidates 0 .. n - 1 for which `is_one`, into `best`, the largest first; ties to the
/// lower index. There are at least `count`.
template <typename Value, typename IsOne>
HWY_INLINE void Largest(int32_t* best, int64_t count, int64_t n, const Value& value, const IsOne& is_one) {
  int64_t found = 0;
  for (int32_t i = 0; i < n; ++i) {
    if (!is_one(i) || (found == count && !(value(i) > value(best[count - 1])))) continue;
    int64_t at = found < count ? found++ : count - 1;
    for (; at > 0 && value(i) > value(best[at - 1]); --at) best[at] = best[at - 1];
    best[at] = i;
  }
}

/// As choices rank it: a score that is not a number is the lowest, so that it keeps no other out.
HWY_INLINE float RankOf(float score) { return score == score ? score : kLowest; }

/// Marks the groups that may be chosen from. `allowed` (groups).
HWY_INLINE void ChooseGroups(bool* allowed, const float* ranked, const RouterShape& shape) {
  const int64_t size = shape.num_experts / shape.groups;
  float sums[kMaxExperts];
  for (int64_t g = 0; g < shape.groups; ++g) {
    float first = kLowest, second = kLowest;
    for (int64_t i = g * size; i < (g + 1) * size; ++i) {
      if (ranked[i] > first) {
        second = first;
        first = ranked[i];
      } else if (ranked[i] > second) {
        second = ranked[i];
      }
    }
    sums[g] = RankOf(size > 1 ? first + second : first);
  }
  int32_t best[kMaxExperts];
  Largest(
      best, shape.groups_chosen, shape.groups, [&](int32_t g) { return sums[g]; }, [](int32_t) { return true; });
  std::fill(allowed, allowed + shape.groups, false);
  for (int64_t i = 0; i < shape.groups_chosen; ++i) allowed[best[i]] = true;
}

HWY_INLINE void ChooseExperts(int32_t* experts, const float* scores, const RouterShape& shape) {
  float ranked[kMaxExperts];
  for (int64_t i = 0; i < shape.num_experts; ++i) {
    ranked[i] = RankOf(shape.bias != nullptr ? scores[i] + shape.bias[i] : scores[i]);
  }
  const auto value = [&](int32_t i) { return ranked[i]; };
  if (shape.groups > 1) {
    bool allowed[kMaxExperts];
    ChooseGroups(allowed, ranked, shape);
    const int64_t size = shape.num_experts / shape.groups;
    Largest(experts, shape.chosen, shape.num_experts, value, [&](int32_t i) { return allowed[i / size]; });
  } else {
    Largest(experts, shape.chosen, shape.num_experts, value, [](int32_t) { return true; });
  }
  std::sort(experts, experts + shape.chosen);
}

/// Sum of the scores of the chosen experts, as weights are divided by it: never 0.
HWY_INLINE float ChosenSum(const float* scores, const int32_t* experts, const RouterShape& shape) {
  float sum = 0;
  for (int64_t j = 0; j < shape.chosen; ++j) sum += scores[experts[j]];
  if (shape.score == RouterScore::kSigmoid) return sum + kScoreEpsilon;
  return sum == 0 ? kScoreEpsilon : sum;  // a bias chooses experts whose softmax is 0, too
}

HWY_INLINE void RouteRow(const RouterOut& out, const float* logits, int64_t r, const RouterShape& shape) {
  const int64_t n = shape.num_experts;
  float* scores = out.scores + r * n;
  const float max = MaxOfRow(logits, n);
  const float sum = ExpRow(scores, logits, n, max);
  out.lse[r] = max + static_cast<float>(portable::Log(static_cast<double>(sum)));
  if (shape.score == RouterScore::kSoftmax) {
    DivideRow(scores, n, sum);
  } else {
    const Eight d;
    ForVectors(d, n, [&](int64_t i, auto access) HWY_ATTR {
      access.Store(d, Sigmoid(d, access.Load(d, logits + i)), scores + i);
    });
  }
  int32_t* experts = out.experts + r * shape.chosen;
  ChooseExperts(experts, scores, shape);
  const float divisor = shape.normalize ? ChosenSum(scores, experts, shape) : 1;
  for (int64_t j = 0; j < shape.chosen; ++j) {
    out.weights[r * shape.chosen + j] = scores[experts[j]] / divisor * shape.scale;
  }
}

void RouterForward(Executor& executor, const RouterOut& out, const ConstMatrix& logits, const RouterShape& shape) {
  const Pieces pieces = PiecesOfRows(logits.rows, 8 * logits.cols);
  ParallelFor(executor, pieces.count(), [&](int64_t task, int) {
    const Range range = pieces.piece(task);
    for (int64_t r = range.begin; r < range.end; ++r) RouteRow(out, RowOf<float>(logits, r), r, shape);
  });
}

/// Gradient of the scores of row r into d (E).
HWY_INLINE void ScoreGradient(float* d, const RouterBackwardArgs& args, int64_t r, const RouterShape& shape) {
  const float* scores = args.forward.scores + r * shape.num_experts;
  const int32_t* experts = args.forward.experts + r * shape.chosen;
  const float* weights = args.forward.weights + r * shape.chosen;
  const float* d_weights = args.d_weights + r * shape.chosen;
  std::fill(d, d + shape.num_experts, 0.0f);
  float divisor = 1, shared = 0;
  if (shape.normalize) {
    divisor = ChosenSum(scores, experts, shape);
    for (int64_t j = 0; j < shape.chosen; ++j) shared += d_weights[j] * weights[j];
  }
  for (int64_t j = 0; j < shape.chosen; ++j) d[experts[j]] = (d_weights[j] * shape.scale - shared) / divisor;
}

HWY_INLINE void RouterBackwardRow(const RouterBackwardArgs& args, int64_t r, const RouterShape& shape) {
  const int64_t n = shape.num_experts;
  const float* scores = args.forward.scores + r * n;
  const float* logits = RowOf<float>(args.logits, r);
  float* d_logits = RowOf<float>(args.d_logits, r);
  float d[kMaxExperts];
  ScoreGradient(d, args, r, shape);
  const float z = 2 * args.z_scale * args.forward.lse[r];
  if (shape.score == RouterScore::kSoftmax) {
    if (args.slope != nullptr) {
      for (int64_t i = 0; i < n; ++i) d[i] += args.slope[i];
    }
    const float mean = Dot(scores, d, n);
    for (int64_t i = 0; i < n; ++i) d_logits[i] = scores[i] * (d[i] - mean + z);
    return;
  }
  if (args.slope != nullptr) {
    float sum = 0, weighted = 0;
    for (int64_t i = 0; i < n; ++i) sum += scores[i];
    if (sum == 0) sum = 1;  // the row has no part in the balance loss
    for (int64_t i = 0; i < n; ++i) weighted += args.slope[i] * (scores[i] / sum);
    for (int64_t i = 0; i < n; ++i) d[i] += (args.slope[i] - weighted) / sum;
  }
  float probabilities[kMaxExperts];
  if (args.z_scale != 0) ExpRow(probabilities, logits, n, args.forward.lse[r]);
  for (int64_t i = 0; i < n; ++i) {
    d_logits[i] = d[i] * (scores[i] * (1 - scores[i]));
    if (args.z_scale != 0) d_logits[i] += z * probabilities[i];
  }
}

void RouterBackward(Executor& executor, const RouterBackwardArgs& args, const RouterShape& shape) {
  const Pieces pieces = PiecesOfRows(args.logits.rows, 8 * args.logits.cols);
  ParallelFor(executor, pieces.count(), [&](int64_t task, int) {
    const Range range = pieces.piece(task);
    for (int64_t r = range.begin; r < range.end; ++r) RouterBackwardRow(args, r, shape);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace holdfast::kernels {

HWY_EXPORT(RouterForward);
HWY_EXPORT(RouterBackward);

void CpuOps::RouterForward(const RouterOut& out, ConstMatrix logits, const RouterShape& shape) {
  HWY_DYNAMIC_DISPATCH(RouterForward)(executor_, out, logits, shape);
}

void CpuOps::RouterBackward(const RouterBackwardArgs& args, const RouterShape& shape) {
  HWY_DYNAMIC_DISPATCH(RouterBackward)(executor_, args, shape);
}

}  // namespace holdfast::kernels
#endif  // HWY_ONCE
