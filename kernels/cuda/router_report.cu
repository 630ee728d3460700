// What is told of a router's choices: a block sums over some rows, a warp for a row, and another kernel adds what the
// blocks have. Sums are in double, in an association that the number of rows and experts fixes.

#include <cstdint>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/dynamic_shared.cuh"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"

namespace holdfast::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kRowsPerBlock = 32;

/// Of some rows.
struct RowSums {
  double balance = 0, z = 0, entropy = 0;
};

__device__ __forceinline__ RowSums BlockSum(const RowSums& sums) {
  return {.balance = BlockReduce(sums.balance, 0.0, Plus()),
          .z = BlockReduce(sums.z, 0.0, Plus()),
          .entropy = BlockReduce(sums.entropy, 0.0, Plus())};
}

/// The tokens of an expert that the balance loss goes by, times `pooled_layers`.
__device__ __forceinline__ int Pooled(const RouterReportArgs& args, int expert, int experts) {
  if (args.pooled == nullptr) return args.counts[expert];
  int sum = 0;
  for (int layer = 0; layer < args.pooled_layers; ++layer) sum += args.pooled[layer * experts + expert];
  return sum;
}

__global__ void RowSumsKernel(RowSums* sums, RouterReportArgs args, Rows<const float> logits, int rows, int experts,
                              bool is_softmax) {
  auto* const pooled = DynamicShared<int>();  // (E)
  const double layers = static_cast<double>(args.pooled_layers);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarpSize, warp = thread / kWarpSize;
  for (int e = thread; e < experts; e += kThreads) pooled[e] = Pooled(args, e, experts);
  __syncthreads();
  const int first = static_cast<int>(blockIdx.x) * kRowsPerBlock, end = min(first + kRowsPerBlock, rows);
  RowSums mine;  // of the rows of the warp, in its first lane
  for (int row = first + warp; row < end; row += kThreads / kWarpSize) {
    const float* scores = args.forward.scores + int64_t{row} * experts;
    const float* logit = logits[row];
    const double lse = args.forward.lse[row];
    double all = 0, loaded = 0, mean_logit = 0;
    for (int e = lane; e < experts; e += kWarpSize) {
      const double score = scores[e], x = logit[e];
      all += score;
      loaded += pooled[e] / layers * score;
      mean_logit += (is_softmax ? score : exp(x - lse)) * x;
    }
    all = WarpReduce(all, Plus());
    loaded = WarpReduce(loaded, Plus());
    mean_logit = WarpReduce(mean_logit, Plus());
    if (lane != 0) continue;
    mine.balance += is_softmax || all == 0 ? loaded : loaded / all;
    mine.z += lse * lse;
    mine.entropy += lse - mean_logit;
  }
  mine = BlockSum(mine);
  if (thread == 0) sums[blockIdx.x] = mine;
}

/// One block. `sums` (parts) is null where losses are not asked for.
__global__ void RouterReportKernel(RouterReportArgs args, const RowSums* sums, int parts, int rows, int experts,
                                   int chosen) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int e = thread; e < experts; e += kThreads) {
    if (args.slope != nullptr) {
      args.slope[e] =
          args.slope_scale * (static_cast<float>(Pooled(args, e, experts)) / static_cast<float>(args.pooled_layers));
    }
    if (args.load != nullptr) args.load[e] = args.counts[e];
  }
  if (thread == 0 && args.dropped != nullptr) *args.dropped = int64_t{rows} * chosen - args.offsets[experts];
  if (sums == nullptr) return;
  RowSums all;
  for (int i = thread; i < parts; i += kThreads) {
    all.balance += sums[i].balance;
    all.z += sums[i].z;
    all.entropy += sums[i].entropy;
  }
  all = BlockSum(all);
  if (thread != 0) return;
  const double count = rows;
  *args.balance = experts * all.balance / (count * count);
  *args.z = all.z / count;
  *args.entropy = all.entropy / count;
}

}  // namespace

void CudaOps::RouterReport(const RouterReportArgs& args, const RouterShape& shape) {
  const auto rows = static_cast<int>(args.logits.rows), experts = static_cast<int>(shape.num_experts);
  const unsigned parts = Blocks(rows, kRowsPerBlock);
  RowSums* sums = nullptr;
  if (args.load != nullptr) {
    sums = static_cast<RowSums*>(queue_.Scratch(std::max(parts, 1u) * sizeof(RowSums)));
    if (sums == nullptr) return;
    const Grid grid = {
        .blocks = parts, .threads = kThreads, .shared_bytes = static_cast<size_t>(experts) * sizeof(int)};
    Launch(queue_, "RouterReport", grid, RowSumsKernel, sums, args, RowsOf<float>(args.logits), rows, experts,
           shape.score == RouterScore::kSoftmax);
  }
  Launch(queue_, "RouterReport", {.blocks = 1, .threads = kThreads}, RouterReportKernel, args, sums,
         static_cast<int>(parts), rows, experts, static_cast<int>(shape.chosen));
}

}  // namespace holdfast::kernels
