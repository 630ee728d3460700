// Attention of rows whose sequences' keys and values are kept: a block for each row and head, in fp32. Keys and values
// are read once for each of a row's query heads; what matters with few rows is that all multiprocessors read.

#include "kernels/cuda/attention_call.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"

namespace holdfast::kernels {
namespace {

constexpr int kThreads = 256;  // and keys of a tile, and the largest head

template <typename T>
struct Call {
  Rows<T> out;
  Rows<const T> qkv;
  T *keys, *values;
  const int32_t *sequence_of, *position_of;
  int capacity, heads, kv_heads, head_dim, window;
  float* lse;  // (R, H), may be null

  __device__ __forceinline__ int64_t kept(int64_t row, int g) const {
    return (int64_t{sequence_of[row]} * kv_heads + g) * capacity * head_dim;
  }
};

template <typename T>
__global__ void KeepKernel(Call<T> c) {
  const int64_t row = blockIdx.x;
  for (int i = static_cast<int>(threadIdx.x); i < c.kv_heads * c.head_dim; i += kThreads) {
    const int g = i / c.head_dim;
    const int64_t to = c.kept(row, g) + int64_t{c.position_of[row]} * c.head_dim + i % c.head_dim;
    c.keys[to] = c.qkv[row][int64_t{c.heads} * c.head_dim + i];
    c.values[to] = c.qkv[row][int64_t{c.heads + c.kv_heads} * c.head_dim + i];
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) AttendKernel(Call<T> c, float scale) {
  __shared__ float q[kThreads], p[kThreads];
  const int t = static_cast<int>(threadIdx.x), h = static_cast<int>(blockIdx.x) % c.heads;
  const int64_t row = static_cast<int>(blockIdx.x) / c.heads;
  const int64_t first = c.kept(row, h / (c.heads / c.kv_heads));
  const int end = c.position_of[row] + 1, begin = c.window > 0 ? max(0, end - c.window) : 0;
  if (t < c.head_dim) q[t] = ToFloat(c.qkv[row][int64_t{h} * c.head_dim + t]);
  float most = kNoScore, sum = 0, value = 0;
  for (int key0 = begin; key0 < end; key0 += kThreads) {
    __syncthreads();  // q is there, p has been read
    const int keys = min(kThreads, end - key0);
    float score = kNoScore;
    if (t < keys) {
      const T* key = c.keys + first + int64_t{key0 + t} * c.head_dim;
      float dot = 0;
      for (int i = 0; i < c.head_dim; ++i) dot = fmaf(q[i], ToFloat(key[i]), dot);
      score = dot * scale;
    }
    const float before = most;
    most = Maximum()(before, BlockReduce(score, kNoScore, Maximum()));
    p[t] = t < keys ? expf(score - most) : 0.0f;
    const float rescale = expf(before - most);
    sum = fmaf(sum, rescale, BlockReduce(p[t], 0.0f, Plus()));  // has waited for all of p
    value *= rescale;
    if (t < c.head_dim) {
      const T* column = c.values + first + int64_t{key0} * c.head_dim + t;
      for (int i = 0; i < keys; ++i) value = fmaf(p[i], ToFloat(column[int64_t{i} * c.head_dim]), value);
    }
  }
  if (t < c.head_dim) c.out[row][int64_t{h} * c.head_dim + t] = FromFloat<T>(value / sum);
  if (t == 0 && c.lse != nullptr) c.lse[row * c.heads + h] = most + logf(sum);
}

}  // namespace

void CudaOps::CachedAttention(const CachedAttentionArgs& args) {
  WithElement(args.qkv.dtype, [&](auto element) {
    using T = decltype(element);
    const Call<T> call = {RowsOf<T>(args.out),
                          RowsOf<const T>(args.qkv),
                          static_cast<T*>(args.keys),
                          static_cast<T*>(args.values),
                          args.sequence_of,
                          args.position_of,
                          static_cast<int>(args.capacity),
                          static_cast<int>(args.num_heads),
                          static_cast<int>(args.num_kv_heads),
                          static_cast<int>(args.head_dim),
                          static_cast<int>(args.window),
                          args.lse};
    const auto rows = static_cast<unsigned>(args.qkv.rows), heads = static_cast<unsigned>(args.num_heads);
    Launch(queue_, "CachedAttention", {.blocks = rows, .threads = kThreads}, KeepKernel<T>, call);
    Launch(queue_, "CachedAttention", {.blocks = rows * heads, .threads = kThreads}, AttendKernel<T>, call,
           1.0f / std::sqrt(static_cast<float>(args.head_dim)));
  });
}

}  // namespace holdfast::kernels
