// Loss and gradient of a row of logits by one block. A row that fits into the shared memory of a block (on Hopper some
// 56 Ki logits) is read from memory once and waits there for its maximum and sum; a longer one is read twice, the
// second time in part from the L2 cache. Both have the same bits.

#include <cmath>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/dynamic_shared.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/packet.cuh"
#include "kernels/cuda/reduce.cuh"

namespace holdfast::kernels {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int kLogits = 4;   // of a packet
constexpr int kPackets = 4;  // that a thread has at once
constexpr float kMinusInfinity = -INFINITY;
constexpr size_t kOtherSharedBytes = 1 << 10;  // more than BlockReduce has

template <typename T>
struct CrossEntropyArgs {
  float* losses;
  Rows<T> d_logits;  // its data may be null, or that of logits
  Rows<const float> logits;
  const int32_t* targets;
  float grad_scale;
  int64_t cols;
  bool cached;  // in shared memory
};

/// Packet p of a row; what is beyond it is as good as masked. Aligned rows have one packet at least, and are loaded
/// before the few threads at their end may branch.
template <bool aligned>
__device__ __forceinline__ Values<float, kLogits> LoadLogits(const float* row, int64_t p, int64_t cols) {
  const int64_t whole = cols / kLogits;
  Values<float, kLogits> x = {};
  if constexpr (aligned) x = LoadPacket<true, kLogits>(row + (p < whole ? p : whole - 1) * kLogits, kLogits);
  if (aligned && p < whole) return x;
#pragma unroll
  for (int i = 0; i < kLogits; ++i) {
    const int64_t col = p * kLogits + i;
    x.words[i] = __float_as_uint(col < cols ? row[col] : kMinusInfinity);
  }
  return x;
}

/// Of a thread's or a row's logits: the largest, and the sum of exp(logit - max). The sum becomes NaN at a NaN and at
/// +infinity, and that of a whole row if all are -infinity: there is no softmax then.
struct MaxAndSum {
  float max = kMinusInfinity, sum = 0;

  /// The sum so far is rescaled when there is a larger maximum (Milakov & Gimelshein 2018).
  __device__ __forceinline__ void Add(const Values<float, kLogits> (&x)[kPackets]) {
    float largest = max;
#pragma unroll
    for (const auto& packet : x) {
#pragma unroll
      for (int i = 0; i < kLogits; ++i) largest = fmaxf(largest, packet[i]);
    }
    const float shift = largest == kMinusInfinity ? 0.0f : largest;
    sum *= __expf(max - shift);
    max = largest;
#pragma unroll
    for (const auto& packet : x) {
#pragma unroll
      for (int i = 0; i < kLogits; ++i) sum += __expf(packet[i] - shift);
    }
  }
};

template <bool aligned, typename T>
__device__ __forceinline__ void StoreGradient(const CrossEntropyArgs<T>& a, int64_t row, int64_t p,
                                              const float (&gradient)[kLogits]) {
  const int64_t col = p * kLogits, count = a.cols - col;
  T* to = a.d_logits[row] + col;
  if (aligned && count >= kLogits) {
    StorePacket<true>(to, gradient, count);
  } else {
    StorePacket<false>(to, gradient, count);
  }
}

// Thread t has packets t, t + blockDim, ... of the row, in groups of kPackets.
template <typename T, bool aligned>
__global__ void __launch_bounds__(kMaxThreads) CrossEntropyKernel(CrossEntropyArgs<T> a) {
  const int64_t row = blockIdx.x, group = int64_t{kPackets} * blockDim.x;
  const int64_t packets = (a.cols + kLogits - 1) / kLogits;
  const int32_t target = a.targets[row];
  const bool wants_gradient = a.d_logits.data != nullptr;
  if (target < 0) {
    if (threadIdx.x == 0) a.losses[row] = 0;
    const float zeros[kLogits] = {};
    for (int64_t p = threadIdx.x; wants_gradient && p < packets; p += blockDim.x)
      StoreGradient<aligned>(a, row, p, zeros);
    return;
  }

  const float* logits = a.logits[row];
  const float at_target = logits[target];
  auto* cache = DynamicShared<Values<float, kLogits>>();
  MaxAndSum mine;
  for (int64_t first = threadIdx.x; first < packets; first += group) {
    Values<float, kLogits> x[kPackets];
#pragma unroll
    for (int k = 0; k < kPackets; ++k) x[k] = LoadLogits<aligned>(logits, first + int64_t{k} * blockDim.x, a.cols);
    mine.Add(x);
    if (!a.cached) continue;
#pragma unroll
    for (int k = 0; k < kPackets; ++k) {
      const int64_t p = first + int64_t{k} * blockDim.x;
      if (p < packets) cache[p] = x[k];  // to be read by this thread alone
    }
  }
  const float max = BlockReduce(mine.max, kMinusInfinity, Maximum());
  const double sum = BlockReduce(double{mine.sum * __expf(mine.max - max)}, 0.0, Plus());
  const float distance = at_target - max;
  if (threadIdx.x == 0) a.losses[row] = static_cast<float>(log(sum)) - distance;
  if (!wants_gradient) return;

  const auto factor = static_cast<float>(double{a.grad_scale} / sum);
  const auto gradient_at_target = static_cast<float>((double{expf(distance)} / sum - 1.0) * double{a.grad_scale});
  // Gradients may lie where the logits do, but none above its logit's address: a round overwrites what everybody has
  // read once the round's logits are.
  __syncthreads();
  for (int64_t start = 0; start < packets; start += group) {
    Values<float, kLogits> x[kPackets];
#pragma unroll
    for (int k = 0; k < kPackets; ++k) {
      const int64_t p = start + int64_t{k} * blockDim.x + threadIdx.x;
      if (!a.cached) x[k] = LoadLogits<aligned>(logits, p, a.cols);
      if (a.cached && p < packets) x[k] = cache[p];
    }
    if (!a.cached) __syncthreads();
#pragma unroll
    for (int k = 0; k < kPackets; ++k) {
      const int64_t p = start + int64_t{k} * blockDim.x + threadIdx.x;
      if (p >= packets) break;
      float gradient[kLogits];
#pragma unroll
      for (int i = 0; i < kLogits; ++i) {
        gradient[i] = p * kLogits + i == target ? gradient_at_target : __expf(x[k][i] - max) * factor;
      }
      StoreGradient<aligned>(a, row, p, gradient);
    }
  }
}

}  // namespace

void CudaOps::SoftmaxCrossEntropy(float* losses, Matrix d_logits, ConstMatrix logits, const int32_t* targets,
                                  float grad_scale) {
  WithElement(d_logits.dtype, [&](auto element) {
    using T = decltype(element);
    const auto gradient = RowsOf<T>(d_logits);
    const auto from = RowsOf<float>(logits);
    const int64_t packets = Blocks(logits.cols, kLogits);
    const size_t row_bytes = static_cast<size_t>(packets) * kLogits * sizeof(float);
    const bool cached = d_logits.data != nullptr && row_bytes + kOtherSharedBytes <= MaxSharedBytes(queue_);
    const CrossEntropyArgs<T> args = {.losses = losses,
                                      .d_logits = gradient,
                                      .logits = from,
                                      .targets = targets,
                                      .grad_scale = grad_scale,
                                      .cols = logits.cols,
                                      .cached = cached};
    const Grid grid = {.blocks = Blocks(logits.rows, 1),
                       .threads = std::min<unsigned>(Blocks(packets, kWarpSize) * kWarpSize, kMaxThreads),
                       .shared_bytes = cached ? row_bytes : 0};
    const bool is_aligned = logits.cols >= kLogits && IsAligned<kLogits>(gradient) && IsAligned<kLogits>(from);
    WithFlag(is_aligned, [&](auto aligned) {
      Launch(queue_, "SoftmaxCrossEntropy", grid, CrossEntropyKernel<T, aligned.value>, args);
    });
  });
}

}  // namespace holdfast::kernels
