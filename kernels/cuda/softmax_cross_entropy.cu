// Loss and gradient of a row of logits by one block. A row that fits into the shared memory of a block (on Hopper some
// 56 Ki logits) is read from memory once and waits there for its maximum and sum; of a longer one the first logits do,
// the others are read twice, the second time in part from the L2 cache. All have the same bits.
//
// Such a row leaves room for one block on a multiprocessor. For memory to be busy throughout, a block has several rows,
// one after the other: where it has read a packet for the gradient, it begins to load that of its next row.

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

using LogitPacket = Values<float, kLogits>;

// Thread t of a block has packets t, t + blockDim, ... of a row, kPackets of them in each round; it alone reads those
// in shared memory.
template <typename T>
struct CrossEntropyArgs {
  float* losses;
  Rows<T> d_logits;  // its data may be null, or that of logits
  Rows<const float> logits;
  const int32_t* targets;
  float grad_scale;
  int64_t rows;
  int cols;  // fit an int, since targets do
  int packets, rounds;
  int cached_rounds;  // the first ones, whose packets lie in shared memory
};

/// The k-th packet of the running thread in a round.
__device__ __forceinline__ int PacketOf(int round, int k) {
  return (kPackets * round + k) * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
}

/// Packet p of a row; what is beyond it is as good as masked.
template <bool aligned>
__device__ __forceinline__ LogitPacket LoadLogits(const float* row, int p, int cols) {
  const float* at = row + int64_t{p} * kLogits;
  if (aligned && p < cols / kLogits) return LoadPacket<true, kLogits>(at, kLogits);
  LogitPacket x;
#pragma unroll
  for (int i = 0; i < kLogits; ++i) x.words[i] = __float_as_uint(i < cols - p * kLogits ? at[i] : kMinusInfinity);
  return x;
}

/// Begins to load packet p of a row into shared memory. What is not a whole packet comes at once: memory may end where
/// the row does.
template <bool aligned>
__device__ __forceinline__ void BeginLoad(LogitPacket* cache, const float* row, int p, int cols) {
  if (aligned && p < cols / kLogits) {
    AsyncCopy16(cache + p, row + int64_t{p} * kLogits, true);
  } else {
    cache[p] = LoadLogits<false>(row, p, cols);
  }
}

/// The loads of each cached round are a group of copies.
template <bool aligned, typename T>
__device__ __forceinline__ void BeginLoads(const CrossEntropyArgs<T>& a, int64_t row) {
  for (int round = 0; round < a.cached_rounds; ++round) {
    for (int k = 0; k < kPackets; ++k) {
      const int p = PacketOf(round, k);
      if (p < a.packets) BeginLoad<aligned>(DynamicShared<LogitPacket>(), a.logits[row], p, a.cols);
    }
    AsyncCopiesEndGroup();
  }
}

/// Until this thread may read what it has loaded, except in its `pending` newest groups.
__device__ __forceinline__ void WaitForLoads(int pending) {
  if (pending >= 3) AsyncCopiesWait<3>();
  if (pending == 2) AsyncCopiesWait<2>();
  if (pending == 1) AsyncCopiesWait<1>();
  if (pending == 0) AsyncCopiesWait<0>();
  asm volatile("" ::: "memory");  // to the compiler, too, what comes next reads other values
}

template <bool aligned, typename T>
__device__ __forceinline__ void LoadRound(LogitPacket (&x)[kPackets], const CrossEntropyArgs<T>& a, const float* logits,
                                          int round) {
  const auto* cache = DynamicShared<LogitPacket>();
  if (round >= a.cached_rounds) {
    if (aligned && PacketOf(round, kPackets - 1) < a.cols / kLogits) {  // no branch between loads
#pragma unroll
      for (int k = 0; k < kPackets; ++k) {
        x[k] = LoadPacket<true, kLogits>(logits + int64_t{PacketOf(round, k)} * kLogits, kLogits);
      }
    } else {
#pragma unroll
      for (int k = 0; k < kPackets; ++k) x[k] = LoadLogits<aligned>(logits, PacketOf(round, k), a.cols);
    }
    return;
  }
#pragma unroll
  for (int k = 0; k < kPackets; ++k) {
    const int p = PacketOf(round, k);
#pragma unroll
    for (uint32_t& word : x[k].words) word = __float_as_uint(kMinusInfinity);
    if (p < a.packets) x[k] = cache[p];
  }
}

/// Of a thread's or a row's logits: the largest, and the sum of exp(logit - max). The sum becomes NaN at a NaN and at
/// +infinity, and that of a whole row if all are -infinity: there is no softmax then.
struct MaxAndSum {
  float max = kMinusInfinity, sum = 0;

  /// The sum so far is rescaled when there is a larger maximum (Milakov & Gimelshein 2018).
  __device__ __forceinline__ void Add(const LogitPacket (&x)[kPackets]) {
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
__device__ __forceinline__ void StoreGradient(T* row, int p, const float (&gradient)[kLogits], int cols) {
  T* to = row + int64_t{p} * kLogits;
  if (aligned && p < cols / kLogits) {
    StorePacket<true>(to, gradient, kLogits);
  } else {
    StorePacket<false>(to, gradient, cols - p * kLogits);
  }
}

/// `row`, or the block's next one that is not ignored; those passed over get zeros.
template <bool aligned, typename T>
__device__ __forceinline__ int64_t SkipIgnored(const CrossEntropyArgs<T>& a, int64_t row) {
  for (; row < a.rows && a.targets[row] < 0; row += gridDim.x) {
    if (threadIdx.x == 0) a.losses[row] = 0;
    if (a.d_logits.data == nullptr) continue;
    const float zeros[kLogits] = {};
    for (int p = PacketOf(0, 0); p < a.packets; p += blockDim.x)
      StoreGradient<aligned>(a.d_logits[row], p, zeros, a.cols);
  }
  return row;
}

template <bool aligned, typename T>
__device__ __forceinline__ MaxAndSum ThreadsMaxAndSum(const CrossEntropyArgs<T>& a, const float* logits) {
  MaxAndSum mine;
  for (int round = 0; round < a.rounds && PacketOf(round, 0) < a.packets; ++round) {
    if (round < a.cached_rounds) WaitForLoads(a.cached_rounds - 1 - round);
    LogitPacket x[kPackets];
    LoadRound<aligned>(x, a, logits, round);
    mine.Add(x);
  }
  return mine;
}

/// The gradient at a logit is exp(logit - max) * factor, except at the target.
struct Gradient {
  float max, factor, at_target;
  int32_t target;
};

/// Also begins to load row `next` unless it is beyond the last.
//
// Gradients may lie where the logits do, but none above its logit's address: a round overwrites nothing but logits in
// shared memory and what everybody has read once the round's logits are. Rounds that are not in shared memory come
// first, while the L2 cache may still have them.
template <bool aligned, typename T>
__device__ __forceinline__ void StoreGradients(const CrossEntropyArgs<T>& a, int64_t row, int64_t next,
                                               const Gradient& g) {
  T* const to = a.d_logits[row];
  const float* const from = a.logits[next];
  for (int i = 0; i < a.rounds; ++i) {
    const int from_cached = i + a.cached_rounds, round = from_cached < a.rounds ? from_cached : from_cached - a.rounds;
    const bool is_cached = round < a.cached_rounds;
    LogitPacket x[kPackets];
    LoadRound<aligned>(x, a, a.logits[row], round);
    if (!is_cached) __syncthreads();
#pragma unroll
    for (int k = 0; k < kPackets; ++k) {
      const int p = PacketOf(round, k);
      if (p >= a.packets) break;
      float gradient[kLogits];
#pragma unroll
      for (int j = 0; j < kLogits; ++j) {
        const float at_others = __expf(x[k][j] - g.max) * g.factor;  // without a branch
        gradient[j] = j == g.target - p * kLogits ? g.at_target : at_others;
      }
      StoreGradient<aligned>(to, p, gradient, a.cols);
      if (is_cached && next < a.rows) BeginLoad<aligned>(DynamicShared<LogitPacket>(), from, p, a.cols);
    }
    if (is_cached) AsyncCopiesEndGroup();
  }
}

// Block b has rows b, b + gridDim, ...
template <typename T, bool aligned>
__global__ void __launch_bounds__(kMaxThreads) CrossEntropyKernel(CrossEntropyArgs<T> a) {
  int64_t row = SkipIgnored<aligned>(a, blockIdx.x);
  if (row < a.rows) BeginLoads<aligned>(a, row);
  while (row < a.rows) {
    const int64_t next = SkipIgnored<aligned>(a, row + gridDim.x);
    const int32_t target = a.targets[row];
    const float at_target = a.logits[row][target];
    const MaxAndSum mine = ThreadsMaxAndSum<aligned>(a, a.logits[row]);
    const float max = BlockReduce(mine.max, kMinusInfinity, Maximum());
    const double sum = BlockReduce(double{mine.sum * __expf(mine.max - max)}, 0.0, Plus());
    const float distance = at_target - max;
    __syncthreads();  // everybody has read at_target, which may be overwritten
    if (threadIdx.x == 0) a.losses[row] = static_cast<float>(log(sum)) - distance;
    if (a.d_logits.data != nullptr) {
      const Gradient gradient = {
          .max = max,
          .factor = static_cast<float>(double{a.grad_scale} / sum),
          .at_target = static_cast<float>((double{expf(distance)} / sum - 1.0) * double{a.grad_scale}),
          .target = target};
      StoreGradients<aligned>(a, row, next, gradient);
    }
    row = next;
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
    const int64_t threads = std::min<int64_t>(Blocks(packets, kWarpSize) * kWarpSize, kMaxThreads);
    const int64_t round = threads * kPackets, rounds = Blocks(packets, round);
    const size_t shared_bytes = d_logits.data == nullptr ? 0 : MaxSharedBytes(queue_);
    const auto fitting =
        static_cast<int64_t>((std::max(shared_bytes, kOtherSharedBytes) - kOtherSharedBytes) / sizeof(LogitPacket));
    const int64_t cached_rounds = packets <= fitting ? rounds : fitting / round;
    // All are on the GPU at once, whose multiprocessors have registers for kMaxThreads of this kernel's threads.
    const int64_t blocks = cached_rounds == 0 ? logits.rows : Multiprocessors(queue_) * (kMaxThreads / threads);
    const CrossEntropyArgs<T> args = {.losses = losses,
                                      .d_logits = gradient,
                                      .logits = from,
                                      .targets = targets,
                                      .grad_scale = grad_scale,
                                      .rows = logits.rows,
                                      .cols = static_cast<int>(logits.cols),
                                      .packets = static_cast<int>(packets),
                                      .rounds = static_cast<int>(rounds),
                                      .cached_rounds = static_cast<int>(cached_rounds)};
    const Grid grid = {
        .blocks = Blocks(std::min(logits.rows, blocks), 1),
        .threads = static_cast<unsigned>(threads),
        .shared_bytes = static_cast<size_t>(std::min(packets, cached_rounds * round)) * sizeof(LogitPacket)};
    const bool is_aligned = logits.cols >= kLogits && IsAligned<kLogits>(gradient) && IsAligned<kLogits>(from);
    WithFlag(is_aligned, [&](auto aligned) {
      Launch(queue_, "SoftmaxCrossEntropy", grid, CrossEntropyKernel<T, aligned.value>, args);
    });
  });
}

}  // namespace holdfast::kernels
