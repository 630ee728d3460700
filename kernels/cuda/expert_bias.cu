// Gradients of experts' biases, and of the weights that these are multiplied by.

#include <cstdint>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/packet.cuh"
#include "kernels/cuda/reduce.cuh"

namespace holdfast::kernels {
namespace {

/// What kernels take of ExpertRows.
struct Slots {
  const int32_t *offsets, *choices;
  int experts;

  explicit Slots(const ExpertRows& rows)
      : offsets(rows.offsets), choices(rows.choices), experts(static_cast<int>(rows.num_experts)) {}

  __device__ __forceinline__ int kept() const { return offsets[experts]; }
  /// Of a slot whose choice is not dropped; of others, some expert.
  __device__ __forceinline__ int expert(int64_t slot) const {
    int first = 0, end = experts;
    while (end - first > 1) {
      const int middle = (first + end) / 2;
      if (offsets[middle] <= slot) {
        first = middle;
      } else {
        end = middle;
      }
    }
    return first;
  }
  __device__ __forceinline__ float weight(const float* weights, int64_t slot) const {
    return weights == nullptr ? 1.0f : weights[choices[slot]];
  }
};

constexpr int kSumWarps = 8;  // of a block that sums an expert's rows

/// Block (x, y): 32 packets of columns of expert y. Each warp adds every eighth row.
template <typename T, bool whole>
__global__ void __launch_bounds__(kSumWarps* kWarpSize)
    ExpertBiasGradientKernel(Rows<float> d_bias, Rows<const T> d_out, const float* weights, Slots slots, int64_t cols) {
  constexpr int n = kPacket<T>;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int64_t col = (int64_t{blockIdx.x} * kWarpSize + lane) * n, count = cols - col;
  const int e = static_cast<int>(blockIdx.y), end = slots.offsets[e + 1];
  float sum[n] = {};
  if (count > 0) {
#pragma unroll 4
    for (int slot = slots.offsets[e] + warp; slot < end; slot += kSumWarps) {
      const float weight = slots.weight(weights, slot);
      const auto x = LoadPacket<whole, n>(d_out[slot] + col, count);
#pragma unroll
      for (int i = 0; i < n; ++i) sum[i] = fmaf(x[i], weight, sum[i]);
    }
  }
  SumWarps<n, kSumWarps>(sum);
  if (warp == 0 && count > 0) StorePacket<whole>(d_bias[e] + col, sum, count);
}

constexpr int kRowWarps = 4;  // of a block, each with a row

/// A lane sums every 32nd packet of its row.
template <typename T, bool whole>
__global__ void ExpertBiasProductsKernel(float* d_weights, Rows<const T> d_out, Rows<const float> bias, Slots slots,
                                         int64_t cols) {
  constexpr int n = kPacket<T>;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t slot = int64_t{blockIdx.x} * kRowWarps + threadIdx.x / kWarpSize;
  if (slot >= slots.kept()) return;
  const float* const of_expert = bias[slots.expert(slot)];
  float sum = 0;
  for (int64_t col = int64_t{lane} * n; col < cols; col += kWarpSize * n) {
    const auto x = LoadPacket<whole, n>(d_out[slot] + col, cols - col);
    const auto b = LoadPacket<whole, n>(of_expert + col, cols - col);
#pragma unroll
    for (int i = 0; i < n; ++i) sum = fmaf(x[i], b[i], sum);
  }
  sum = WarpReduce(sum, Plus());
  if (lane == 0) d_weights[slots.choices[slot]] += sum;
}

}  // namespace

void CudaOps::ExpertBiasBackward(const ExpertBiasBackwardArgs& args, const ExpertRows& rows) {
  const int64_t cols = args.d_out.cols;
  WithElement(args.d_out.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int n = kPacket<T>;
    const auto dy = RowsOf<T>(args.d_out);
    if (args.d_bias != nullptr) {
      const Rows<float> d_bias = {args.d_bias, args.d_bias_step};
      const dim3 blocks(Blocks(cols, int64_t{n} * kWarpSize), static_cast<unsigned>(rows.num_experts));
      WithFlag(AllWhole<n>(cols, dy, d_bias), [&](auto whole) {
        Launch(queue_, "ExpertBiasBackward", {.blocks = blocks, .threads = kSumWarps * kWarpSize},
               ExpertBiasGradientKernel<T, whole.value>, d_bias, dy, args.weights, Slots(rows), cols);
      });
    }
    if (args.d_weights != nullptr) {
      const Rows<const float> bias = {args.bias, args.bias_step};
      WithFlag(AllWhole<n>(cols, dy, bias), [&](auto whole) {
        Launch(queue_, "ExpertBiasBackward",
               {.blocks = Blocks(rows.slots, kRowWarps), .threads = kRowWarps * kWarpSize},
               ExpertBiasProductsKernel<T, whole.value>, args.d_weights, dy, bias, Slots(rows), cols);
      });
    }
  });
}

}  // namespace holdfast::kernels
