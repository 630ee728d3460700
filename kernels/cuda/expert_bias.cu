// Gradients of experts' biases, and of the weights that these are multiplied by.

#include <cstdint>

#include "kernels/cuda/column_sum.cuh"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/expert_product.cuh"
#include "kernels/cuda/launch.cuh"

namespace holdfast::kernels {
namespace {

constexpr int kSumWarps = 8;    // of a block that sums rows
constexpr int kPartRows = 128;  // of an expert, counted from its first, that a block sums

/// Block i: part i / across (FindTile), 32 packets of columns. Where an expert has no other part, that is its sum; else
/// row i / across of the partial sums.
template <typename T, bool whole>
__global__ void __launch_bounds__(kSumWarps* kWarpSize)
    ExpertBiasPartsKernel(Rows<float> d_bias, Rows<float> partials, Rows<const T> d_out, const float* weights,
                          Segments segments, const int32_t* choices, int64_t cols, unsigned across) {
  constexpr int n = kPacket<T>;
  const int number = static_cast<int>(blockIdx.x / across);
  const RowTile part = FindTile(segments, number, kPartRows);
  if (part.first > 0 && part.first >= part.count) return;  // an expert without rows has a sum, too
  const int64_t col = (int64_t{blockIdx.x % across} * kWarpSize + LaneId()) * n, count = cols - col;
  const int64_t first = segments.offsets[part.expert] + part.first;
  float sum[n];
  SumRows<kSumWarps, whole>(sum, d_out, first, first + min(part.count - part.first, kPartRows), col, count,
                            [&](int64_t slot) { return weights == nullptr ? 1.0f : weights[choices[slot]]; });
  if (threadIdx.x >= kWarpSize || count <= 0) return;
  float* const to = part.count <= kPartRows ? d_bias[part.expert] : partials[number];
  StorePacket<whole>(to + col, sum, count);
}

/// Block (x, y): 32 packets of columns of expert y, if its rows are in several parts.
template <bool whole>
__global__ void __launch_bounds__(kSumWarps* kWarpSize)
    AddPartsKernel(Rows<float> d_bias, Rows<const float> partials, Segments segments, int64_t cols) {
  constexpr int n = kPacket<float>;
  const int e = static_cast<int>(blockIdx.y), rows = segments.offsets[e + 1] - segments.offsets[e];
  if (rows <= kPartRows) return;
  const int64_t col = (int64_t{blockIdx.x} * kWarpSize + LaneId()) * n, count = cols - col;
  const int64_t first = FirstTile(segments, e, kPartRows);
  float sum[n];
  SumRows<kSumWarps, whole>(sum, partials, first, first + (rows + kPartRows - 1) / kPartRows, col, count, NoWeights());
  if (threadIdx.x < kWarpSize && count > 0) StorePacket<whole>(d_bias[e] + col, sum, count);
}

constexpr int kRowWarps = 4;  // of a block, each with a row

/// A lane sums every 32nd packet of its row.
template <typename T, bool whole>
__global__ void ExpertBiasProductsKernel(float* d_weights, Rows<const T> d_out, Rows<const float> bias,
                                         Segments segments, const int32_t* choices, int64_t cols) {
  constexpr int n = kPacket<T>;
  const int slot = static_cast<int>(blockIdx.x * kRowWarps + threadIdx.x / kWarpSize);
  if (slot >= segments.offsets[segments.num_experts]) return;
  const float* const of_expert =
      bias[LastAtMost(segments.num_experts, slot, [&](int e) { return segments.offsets[e]; })];
  float sum = 0;
  for (int64_t col = int64_t{LaneId()} * n; col < cols; col += kWarpSize * n) {
    const auto x = LoadPacket<whole, n>(d_out[slot] + col, cols - col);
    const auto b = LoadPacket<whole, n>(of_expert + col, cols - col);
#pragma unroll
    for (int i = 0; i < n; ++i) sum = fmaf(x[i], b[i], sum);
  }
  sum = WarpReduce(sum, Plus());
  if (LaneId() == 0) d_weights[choices[slot]] += sum;
}

template <typename T>
void QueueBiasGradient(CudaQueue& queue, const ExpertBiasBackwardArgs& args, const ExpertRows& rows) {
  constexpr int n = kPacket<T>;
  const int64_t cols = args.d_out.cols, parts = MostTiles(rows, kPartRows);
  auto* const memory = static_cast<float*>(queue.Scratch(static_cast<size_t>(parts * cols) * sizeof(float)));
  if (memory == nullptr) return;
  const Rows<float> d_bias = {args.d_bias, args.d_bias_step}, partials = {memory, cols};
  const auto dy = RowsOf<T>(args.d_out);
  const Segments segments = SegmentsOf(rows);
  WithFlag(AllWhole<n>(cols, dy, d_bias), [&](auto whole) {
    const unsigned across = Blocks(cols, int64_t{n} * kWarpSize);
    Launch(queue, "ExpertBiasBackward",
           {.blocks = static_cast<unsigned>(parts) * across, .threads = kSumWarps * kWarpSize},
           ExpertBiasPartsKernel<T, whole.value>, d_bias, partials, dy, args.weights, segments, rows.choices, cols,
           across);
  });
  const Rows<const float> from = {memory, cols};
  constexpr int m = kPacket<float>;
  WithFlag(AllWhole<m>(cols, d_bias, from), [&](auto whole) {
    const dim3 blocks(Blocks(cols, int64_t{m} * kWarpSize), static_cast<unsigned>(rows.num_experts));
    Launch(queue, "ExpertBiasBackward", {.blocks = blocks, .threads = kSumWarps * kWarpSize},
           AddPartsKernel<whole.value>, d_bias, from, segments, cols);
  });
}

}  // namespace

void CudaOps::ExpertBiasBackward(const ExpertBiasBackwardArgs& args, const ExpertRows& rows) {
  const int64_t cols = args.d_out.cols;
  WithElement(args.d_out.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int n = kPacket<T>;
    if (args.d_bias != nullptr) QueueBiasGradient<T>(queue_, args, rows);
    if (args.d_weights == nullptr) return;
    const auto dy = RowsOf<T>(args.d_out);
    const Rows<const float> bias = {args.bias, args.bias_step};
    WithFlag(AllWhole<n>(cols, dy, bias), [&](auto whole) {
      Launch(queue_, "ExpertBiasBackward", {.blocks = Blocks(rows.slots, kRowWarps), .threads = kRowWarps * kWarpSize},
             ExpertBiasProductsKernel<T, whole.value>, args.d_weights, dy, bias, SegmentsOf(rows), rows.choices, cols);
    });
  });
}

}  // namespace holdfast::kernels
