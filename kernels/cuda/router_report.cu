// What is told of a router's choices: one block, a warp for a row. Sums are in double, in an association that the
// number of rows and experts fixes.

#include <cstdint>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/dynamic_shared.cuh"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"

namespace holdfast::kernels {
namespace {

constexpr unsigned kThreads = 256;

/// The tokens of an expert that the balance loss goes by, times `pooled_layers`.
__device__ __forceinline__ int Pooled(const RouterReportArgs& args, int expert, int experts) {
  if (args.pooled == nullptr) return args.counts[expert];
  int sum = 0;
  for (int layer = 0; layer < args.pooled_layers; ++layer) sum += args.pooled[layer * experts + expert];
  return sum;
}

__global__ void RouterReportKernel(RouterReportArgs args, Rows<const float> logits, int rows, int experts, int chosen,
                                   bool is_softmax) {
  auto* const pooled = DynamicShared<int>();  // (E)
  const double layers = static_cast<double>(args.pooled_layers);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarpSize, warp = thread / kWarpSize;
  for (int e = thread; e < experts; e += static_cast<int>(blockDim.x)) {
    pooled[e] = Pooled(args, e, experts);
    if (args.slope != nullptr) {
      args.slope[e] = args.slope_scale * (static_cast<float>(pooled[e]) / static_cast<float>(args.pooled_layers));
    }
    if (args.load != nullptr) args.load[e] = args.counts[e];
  }
  if (thread == 0 && args.dropped != nullptr) *args.dropped = int64_t{rows} * chosen - args.offsets[experts];
  if (args.load == nullptr) return;
  __syncthreads();
  double balance = 0, z = 0, entropy = 0;  // of the rows of the warp, in its first lane
  for (int row = warp; row < rows; row += static_cast<int>(blockDim.x) / kWarpSize) {
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
    balance += is_softmax ? loaded : loaded / all;
    z += lse * lse;
    entropy += lse - mean_logit;
  }
  balance = BlockReduce(balance, 0.0, Plus());
  z = BlockReduce(z, 0.0, Plus());
  entropy = BlockReduce(entropy, 0.0, Plus());
  if (thread != 0) return;
  const double count = rows;
  *args.balance = experts * balance / (count * count);
  *args.z = z / count;
  *args.entropy = entropy / count;
}

}  // namespace

void CudaOps::RouterReport(const RouterReportArgs& args, const RouterShape& shape) {
  const Grid grid = {
      .blocks = 1, .threads = kThreads, .shared_bytes = static_cast<size_t>(shape.num_experts) * sizeof(int)};
  Launch(queue_, "RouterReport", grid, RouterReportKernel, args, RowsOf<float>(args.logits),
         static_cast<int>(args.logits.rows), static_cast<int>(shape.num_experts), static_cast<int>(shape.chosen),
         shape.score == RouterScore::kSoftmax);
}

}  // namespace holdfast::kernels
