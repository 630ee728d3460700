// Attention sinks: one more key of each head, without a value. Eight lanes a query and head, a packet at a time.

#include "kernels/cuda/column_sum.cuh"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/packet.cuh"
#include "kernels/cuda/reduce.cuh"

namespace holdfast::kernels {
namespace {

constexpr int kLanes = 8;  // of a query and head
constexpr int kThreads = 256;
constexpr int kGroups = kThreads / kLanes;
constexpr int kRowsOfBlock = 256;  // that a block of the backward pass sums

struct Heads {
  int64_t rows;
  int sequence, count, head_dim;

  explicit Heads(const AttentionShape& shape)
      : rows(shape.batch * shape.sequence),
        sequence(static_cast<int>(shape.sequence)),
        count(static_cast<int>(shape.num_heads)),
        head_dim(static_cast<int>(shape.head_dim)) {}

  /// Where lse (B, H, T) of a row's head is.
  __device__ __forceinline__ int64_t lse(int64_t row, int h) const {
    const auto r = static_cast<unsigned>(row), t = static_cast<unsigned>(sequence);
    return (int64_t{r / t} * count + h) * sequence + r % t;
  }
};

/// Adds the sink to the log-sum-exp of one query, and returns by what its output is multiplied. Nothing overflows: the
/// smaller of the two is divided by the larger.
__device__ __forceinline__ float AddSink(float& lse, float sink) {
  const bool keys_are_more = lse > sink;
  const float smaller = expf(-fabsf(lse - sink));
  lse = (keys_are_more ? lse : sink) + log1pf(smaller);
  return (keys_are_more ? 1.0f : smaller) / (1.0f + smaller);
}

template <typename T, bool whole>
__global__ void __launch_bounds__(kThreads)
    SinkForwardKernel(Rows<T> out, float* lse, const float* sinks, Heads heads) {
  constexpr int n = kPacket<T>;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t at = int64_t{blockIdx.x} * kGroups + threadIdx.x / kLanes;  // (R, H)
  const int64_t row = at / heads.count;
  const int h = static_cast<int>(at % heads.count);
  const bool real = row < heads.rows;
  float sum = 0, factor = 0;
  if (real) {
    sum = lse[heads.lse(row, h)];
    factor = AddSink(sum, sinks[h]);
  }
  __syncwarp();  // all lanes of the query have read its lse
  if (!real) return;
  if (lane == 0) lse[heads.lse(row, h)] = sum;
  T* const head = out[row] + int64_t{h} * heads.head_dim;
  for (int i = lane * n; i < heads.head_dim; i += kLanes * n) {
    const auto x = LoadPacket<whole, n>(head + i, heads.head_dim - i);
    float y[n];
#pragma unroll
    for (int k = 0; k < n; ++k) y[k] = x[k] * factor;
    StorePacket<whole>(head + i, y, heads.head_dim - i);
  }
}

/// Block (x, y): head y's sum over rows x * kRowsOfBlock and on.
template <typename T, bool whole>
__global__ void __launch_bounds__(kThreads) SinkBackwardKernel(float* partials, Rows<const T> d_out, Rows<const T> out,
                                                               const float* lse, const float* sinks, Heads heads) {
  constexpr int n = kPacket<T>;
  const int lane = static_cast<int>(threadIdx.x) % kLanes, h = static_cast<int>(blockIdx.y);
  float sum = 0;
#pragma unroll 4
  for (int i = 0; i < kRowsOfBlock / kGroups; ++i) {
    const int64_t row = int64_t{blockIdx.x} * kRowsOfBlock + i * kGroups + threadIdx.x / kLanes;
    const bool real = row < heads.rows;
    float product = 0;
    for (int c = lane * n; real && c < heads.head_dim; c += kLanes * n) {
      const int64_t at = int64_t{h} * heads.head_dim + c;
      const auto dy = LoadPacket<whole, n>(d_out[row] + at, heads.head_dim - c);
      const auto y = LoadPacket<whole, n>(out[row] + at, heads.head_dim - c);
#pragma unroll
      for (int k = 0; k < n; ++k) product = fmaf(dy[k], y[k], product);
    }
#pragma unroll
    for (int offset = kLanes / 2; offset > 0; offset /= 2) {
      product += __shfl_xor_sync(kWholeWarp, product, offset);
    }
    if (real) sum -= expf(sinks[h] - lse[heads.lse(row, h)]) * product;
  }
  sum = BlockReduce(lane == 0 ? sum : 0.0f, 0.0f, Plus());
  if (threadIdx.x == 0) partials[int64_t{blockIdx.x} * heads.count + h] = sum;
}

}  // namespace

void CudaOps::SinkForward(Matrix out, float* lse, const float* sinks, const AttentionShape& shape) {
  WithElement(out.dtype, [&](auto element) {
    using T = decltype(element);
    const Heads heads(shape);
    const auto y = RowsOf<T>(out);
    WithFlag(AllWhole<kPacket<T>>(shape.head_dim, y), [&](auto whole) {
      Launch(queue_, "SinkForward", {.blocks = Blocks(heads.rows * heads.count, kGroups), .threads = kThreads},
             SinkForwardKernel<T, whole.value>, y, lse, sinks, heads);
    });
  });
}

void CudaOps::SinkBackward(float* d_sinks, ConstMatrix d_out, ConstMatrix out, const float* lse, const float* sinks,
                           const AttentionShape& shape) {
  const Heads heads(shape);
  const unsigned blocks = Blocks(heads.rows, kRowsOfBlock), across = static_cast<unsigned>(heads.count);
  const size_t bytes = std::max<size_t>(blocks, 1) * across * sizeof(float);
  auto* const partials = static_cast<float*>(queue_.Scratch(bytes));
  if (partials == nullptr) return;
  WithElement(out.dtype, [&](auto element) {
    using T = decltype(element);
    const auto dy = RowsOf<T>(d_out), y = RowsOf<T>(out);
    WithFlag(AllWhole<kPacket<T>>(shape.head_dim, dy, y), [&](auto whole) {
      Launch(queue_, "SinkBackward", {.blocks = {blocks, across}, .threads = kThreads},
             SinkBackwardKernel<T, whole.value>, partials, dy, y, lse, sinks, heads);
    });
  });
  QueueSum(queue_, "SinkBackward",
           {.data = partials, .count = blocks, .width = across, .out = {d_sinks, nullptr}, .cols = across});
}

}  // namespace holdfast::kernels
