// Which experts a row goes to, and the gradient of that: a warp for each row. What lanes have to see of each other's
// waits in shared memory; sums over experts are a lane's every 32nd, then over lanes.

#include <cmath>
#include <cstdint>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/dynamic_shared.cuh"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"

namespace holdfast::kernels {
namespace {

constexpr float kScoreEpsilon = 1e-20f;  // of DeepSeek V3: only where all chosen scores are 0
constexpr int kMaxWarps = 8;
constexpr int kSharedWords = 12 << 10;  // 48 KiB: any GPU has them
constexpr int kChosenPerLane = static_cast<int>(kMaxExpertsPerRow) / kWarpSize;

/// RouterShape in the GPU's words.
struct Router {
  int experts, chosen, groups, groups_chosen;
  bool is_softmax, normalize;
  float scale;
  const float* bias;

  explicit Router(const RouterShape& shape)
      : experts(static_cast<int>(shape.num_experts)),
        chosen(static_cast<int>(shape.chosen)),
        groups(static_cast<int>(shape.groups)),
        groups_chosen(static_cast<int>(shape.groups_chosen)),
        is_softmax(shape.score == RouterScore::kSoftmax),
        normalize(shape.normalize),
        scale(shape.scale),
        bias(shape.bias) {}
};

__device__ __forceinline__ int LaneId() { return static_cast<int>(threadIdx.x) % kWarpSize; }

/// Calls op(i) for this lane's of n.
template <typename Op>
__device__ __forceinline__ void ForLane(int n, Op op) {
  for (int i = LaneId(); i < n; i += kWarpSize) op(i);
}

template <typename Value>
__device__ __forceinline__ float SumOver(int n, Value value) {
  float sum = 0;
  ForLane(n, [&](int i) { sum += value(i); });
  return WarpReduce(sum, Plus());
}

// --- choosing --------------------------------------------------------------------------------------------------------

/// A value as an integer of the same order, above 0, which is for what must not be chosen. NaN counts as -infinity.
__device__ __forceinline__ uint32_t RankOf(float x) {
  if (x == 0) x = 0;  // -0 is no lower
  if (x != x) x = -INFINITY;
  const uint32_t bits = __float_as_uint(x);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

struct Candidate {
  uint32_t rank;
  int index;
};

/// The higher one; ties to the lower index.
struct Better {
  __device__ __forceinline__ Candidate operator()(Candidate a, Candidate b) const {
    return a.rank > b.rank || (a.rank == b.rank && a.index < b.index) ? a : b;
  }
};

/// The best of n by all lanes together, which then is out of the choice. Ranks are in shared memory.
__device__ __forceinline__ int TakeBest(uint32_t* ranks, int n) {
  Candidate best = {0, n};
  ForLane(n, [&](int i) { best = Better()(best, {ranks[i], i}); });
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    const Candidate other = {__shfl_xor_sync(kWholeWarp, best.rank, offset),
                             __shfl_xor_sync(kWholeWarp, best.index, offset)};
    best = Better()(best, other);
  }
  if (LaneId() == best.index % kWarpSize) ranks[best.index] = 0;  // the lane that reads it again
  return best.index;
}

/// Takes the experts of all but the groups with the largest sums of their two best out of the choice.
__device__ __forceinline__ void ChooseGroups(uint32_t* ranks, uint32_t* group_ranks, const float* scores,
                                             const Router& router) {
  const int size = router.experts / router.groups;
  ForLane(router.groups, [&](int g) {
    float first = -INFINITY, second = -INFINITY;
    for (int i = g * size; i < (g + 1) * size; ++i) {
      const float x = router.bias != nullptr ? scores[i] + router.bias[i] : scores[i];
      if (x > first) {
        second = first;
        first = x;
      } else if (x > second) {
        second = x;
      }
    }
    group_ranks[g] = RankOf(size > 1 ? first + second : first);
  });
  for (int j = 0; j < router.groups_chosen; ++j) TakeBest(group_ranks, router.groups);
  __syncwarp();  // what was taken is 0
  ForLane(router.experts, [&](int i) {
    if (group_ranks[i / size] != 0) ranks[i] = 0;
  });
}

/// The row's experts, ascending, into `experts`.
__device__ __forceinline__ void ChooseExperts(int32_t* experts, uint32_t* ranks, const float* scores,
                                              const Router& router) {
  ForLane(router.experts,
          [&](int i) { ranks[i] = RankOf(router.bias != nullptr ? scores[i] + router.bias[i] : scores[i]); });
  if (router.groups > 1) ChooseGroups(ranks, ranks + router.experts, scores, router);
  int mine[kChosenPerLane] = {}, place[kChosenPerLane] = {};  // of choice lane, lane + 32, ...
  for (int j = 0; j < router.chosen; ++j) {
    const int expert = TakeBest(ranks, router.experts);
#pragma unroll
    for (int i = 0; i < kChosenPerLane; ++i) {
      if (j == LaneId() + i * kWarpSize) mine[i] = expert;
    }
  }
  for (int j = 0; j < router.chosen; ++j) {
    int other = 0;
#pragma unroll
    for (int i = 0; i < kChosenPerLane; ++i) {
      const int expert = __shfl_sync(kWholeWarp, mine[i], j % kWarpSize);
      if (j / kWarpSize == i) other = expert;
    }
#pragma unroll
    for (int i = 0; i < kChosenPerLane; ++i) place[i] += other < mine[i] ? 1 : 0;
  }
#pragma unroll
  for (int i = 0; i < kChosenPerLane; ++i) {
    if (LaneId() + i * kWarpSize < router.chosen) experts[place[i]] = mine[i];
  }
}

/// Sum of the scores of the chosen experts, as weights are divided by it: never 0.
__device__ __forceinline__ float ChosenSum(const float* scores, const int32_t* experts, const Router& router) {
  float sum = 0;
  for (int j = 0; j < router.chosen; ++j) sum += scores[experts[j]];
  if (!router.is_softmax) return sum + kScoreEpsilon;
  return sum == 0 ? kScoreEpsilon : sum;  // a bias chooses experts whose softmax is 0, too
}

// Shared memory of a warp: the ranks of experts and of groups.
__global__ void RouterForwardKernel(RouterOut out, Rows<const float> logits, int rows, Router router) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize, n = router.experts;
  const int row = static_cast<int>(blockIdx.x * blockDim.x / kWarpSize) + warp;
  if (row >= rows) return;
  const float* logit = logits[row];
  float* scores = out.scores + int64_t{row} * n;
  float most = -INFINITY;
  ForLane(n, [&](int i) { most = fmaxf(most, logit[i]); });
  const float max = WarpReduce(most, Maximum());
  const float sum = SumOver(n, [&](int i) { return expf(logit[i] - max); });
  ForLane(n,
          [&](int i) { scores[i] = router.is_softmax ? expf(logit[i] - max) / sum : 1.0f / (1.0f + expf(-logit[i])); });
  __syncwarp();  // lanes read each other's scores

  int32_t* experts = out.experts + int64_t{row} * router.chosen;
  ChooseExperts(experts, DynamicShared<uint32_t>() + warp * (n + router.groups), scores, router);
  __syncwarp();  // and experts
  if (LaneId() == 0) out.lse[row] = max + logf(sum);
  const float divisor = router.normalize ? ChosenSum(scores, experts, router) : 1.0f;
  ForLane(router.chosen,
          [&](int j) { out.weights[int64_t{row} * router.chosen + j] = scores[experts[j]] / divisor * router.scale; });
}

// --- backward --------------------------------------------------------------------------------------------------------

struct BackwardArgs {
  Rows<float> d_logits;
  Rows<const float> logits;
  RouterOut forward;
  const float *d_weights, *slope;
  float z_scale;
  int rows;
};

/// Gradient of the scores of a row into d (E), in shared memory.
__device__ __forceinline__ void ScoreGradient(float* d, const BackwardArgs& args, int64_t row, const Router& router) {
  const float* scores = args.forward.scores + row * router.experts;
  const int32_t* experts = args.forward.experts + row * router.chosen;
  const float* weights = args.forward.weights + row * router.chosen;
  const float* d_weights = args.d_weights + row * router.chosen;
  ForLane(router.experts, [&](int i) { d[i] = 0; });
  float divisor = 1, shared = 0;
  if (router.normalize) {
    divisor = ChosenSum(scores, experts, router);
    for (int j = 0; j < router.chosen; ++j) shared = fmaf(d_weights[j], weights[j], shared);
  }
  __syncwarp();  // zeros of other lanes are there
  ForLane(router.chosen, [&](int j) { d[experts[j]] = (d_weights[j] * router.scale - shared) / divisor; });
  __syncwarp();
}

// Shared memory of a warp: the gradient of its row's scores.
__global__ void RouterBackwardKernel(BackwardArgs args, Router router) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize, n = router.experts;
  const int row = static_cast<int>(blockIdx.x * blockDim.x / kWarpSize) + warp;
  if (row >= args.rows) return;
  float* d = DynamicShared<float>() + warp * n;
  ScoreGradient(d, args, row, router);
  const float* scores = args.forward.scores + int64_t{row} * n;
  const float* logits = args.logits[row];
  float* d_logits = args.d_logits[row];
  const float lse = args.forward.lse[row], z = 2.0f * args.z_scale * lse;
  const auto slope = [&](int i) { return args.slope != nullptr ? args.slope[i] : 0.0f; };
  if (router.is_softmax) {
    const float mean = SumOver(n, [&](int i) { return scores[i] * (d[i] + slope(i)); });
    ForLane(n, [&](int i) { d_logits[i] = scores[i] * (d[i] + slope(i) - mean + z); });
    return;
  }
  float sum = 1, weighted = 0;
  if (args.slope != nullptr) {
    sum = SumOver(n, [&](int i) { return scores[i]; });
    if (sum == 0) sum = 1;  // the row has no part in the balance loss
    weighted = SumOver(n, [&](int i) { return slope(i) * (scores[i] / sum); });
  }
  ForLane(n, [&](int i) {
    const float d_score = d[i] + (args.slope != nullptr ? (slope(i) - weighted) / sum : 0.0f);
    const float from_z = args.z_scale != 0 ? z * expf(logits[i] - lse) : 0.0f;
    d_logits[i] = d_score * (scores[i] * (1.0f - scores[i])) + from_z;
  });
}

/// A warp for each of `rows`, as many in a block as shared memory holds.
Grid WarpPerRow(int64_t rows, int64_t words_per_warp) {
  const int64_t warps = std::clamp<int64_t>(kSharedWords / words_per_warp, 1, kMaxWarps);
  return {.blocks = Blocks(rows, warps),
          .threads = static_cast<unsigned>(warps) * kWarpSize,
          .shared_bytes = static_cast<size_t>(warps * words_per_warp) * sizeof(uint32_t)};
}

}  // namespace

void CudaOps::RouterForward(const RouterOut& out, ConstMatrix logits, const RouterShape& shape) {
  Launch(queue_, "RouterForward", WarpPerRow(logits.rows, shape.num_experts + shape.groups), RouterForwardKernel, out,
         RowsOf<float>(logits), static_cast<int>(logits.rows), Router(shape));
}

void CudaOps::RouterBackward(const RouterBackwardArgs& args, const RouterShape& shape) {
  const BackwardArgs call = {.d_logits = RowsOf<float>(args.d_logits),
                             .logits = RowsOf<float>(args.logits),
                             .forward = args.forward,
                             .d_weights = args.d_weights,
                             .slope = args.slope,
                             .z_scale = args.z_scale,
                             .rows = static_cast<int>(args.logits.rows)};
  Launch(queue_, "RouterBackward", WarpPerRow(args.logits.rows, shape.num_experts), RouterBackwardKernel, call,
         Router(shape));
}

}  // namespace holdfast::kernels
