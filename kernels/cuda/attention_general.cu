// Attention for any dtype and alignment: fp32 arithmetic throughout (no TF32), blocked like the tensor core kernels.
// Tiles lie in shared memory as fp32. The 256 threads of a block form a grid of 16 x 16; thread (y, x) has rows
// y + 16 i and columns x + 16 j of every product, so that rows are broadcast and columns lie in different banks.

#include "kernels/cuda/attention_call.h"
#include "kernels/cuda/attention_queue.cuh"
#include "kernels/cuda/dynamic_shared.cuh"
#include "kernels/cuda/reduce.cuh"

namespace holdfast::kernels {
namespace {

constexpr int kSide = 16;
constexpr int kThreads = kSide * kSide;
constexpr int kWarps = kThreads / kWarpSize;

/// For head sizes up to kDim.
template <int kDim>
struct Plan {
  static constexpr int kTile = kDim <= 128 ? 64 : 32;  // queries, keys
  static constexpr int kOwn = kTile / kSide;           // rows of a thread, and columns of scores
  static constexpr int kColumns = kDim / kSide;        // columns of a thread in sums over D
  static constexpr int kRow = kDim + 1;                // odd, against bank conflicts
  static constexpr int kRowsBytes = kTile * kRow * 4;
  static constexpr int kScoreRow = kTile + 1;
  static constexpr int kScoresBytes = kTile * kScoreRow * 4;
  static constexpr int kMostBytes = 4 * kRowsBytes + 2 * kScoresBytes;  // of all kernels: dK and dV

  using Scores = float[kOwn][kOwn];
  using Sums = float[kOwn][kColumns];
};

__device__ __forceinline__ int ThreadX() { return static_cast<int>(threadIdx.x) % kSide; }
__device__ __forceinline__ int ThreadY() { return static_cast<int>(threadIdx.x) / kSide; }

template <typename P>
__device__ __forceinline__ void Clear(typename P::Sums& sums) {
  for (int i = 0; i < P::kOwn; ++i) {
    for (int j = 0; j < P::kColumns; ++j) sums[i][j] = 0;
  }
}

/// Rows row0.. of one head, which begins at `head` in row 0; zeros beyond row `end`.
template <typename P, typename T>
__device__ void LoadTile(float* tile, const T* head, int64_t stride, int row0, int end, int head_dim) {
  for (int r = static_cast<int>(threadIdx.x) / kWarpSize; r < P::kTile; r += kWarps) {
    const T* from = head + (row0 + r) * stride;
    for (int c = static_cast<int>(threadIdx.x) % kWarpSize; c < head_dim; c += kWarpSize) {
      tile[r * P::kRow + c] = row0 + r < end ? ToFloat(from[c]) : 0.0f;
    }
  }
}

/// scores = a b^T, both tiles of rows.
template <typename P>
__device__ __forceinline__ void MultiplyTransposed(typename P::Scores& scores, const float* a, const float* b,
                                                   int head_dim) {
  for (int i = 0; i < P::kOwn; ++i) {
    for (int j = 0; j < P::kOwn; ++j) scores[i][j] = 0;
  }
  for (int d = 0; d < head_dim; ++d) {
    float left[P::kOwn], right[P::kOwn];
#pragma unroll
    for (int i = 0; i < P::kOwn; ++i) {
      left[i] = a[(ThreadY() + kSide * i) * P::kRow + d];
      right[i] = b[(ThreadX() + kSide * i) * P::kRow + d];
    }
#pragma unroll
    for (int i = 0; i < P::kOwn; ++i) {
#pragma unroll
      for (int j = 0; j < P::kOwn; ++j) scores[i][j] = fmaf(left[i], right[j], scores[i][j]);
    }
  }
}

/// sums += a b, with a a tile of scores (transposed if kTransposed) and b a tile of rows.
template <typename P, bool kTransposed>
__device__ __forceinline__ void MultiplyAdd(typename P::Sums& sums, const float* a, const float* b, int head_dim) {
  for (int k = 0; k < P::kTile; ++k) {
    float left[P::kOwn];
#pragma unroll
    for (int i = 0; i < P::kOwn; ++i) {
      const int row = ThreadY() + kSide * i;
      left[i] = kTransposed ? a[k * P::kScoreRow + row] : a[row * P::kScoreRow + k];
    }
#pragma unroll
    for (int j = 0; j < P::kColumns; ++j) {
      const int column = ThreadX() + kSide * j;
      const float right = column < head_dim ? b[k * P::kRow + column] : 0.0f;
#pragma unroll
      for (int i = 0; i < P::kOwn; ++i) sums[i][j] = fmaf(left[i], right, sums[i][j]);
    }
  }
}

template <typename P>
__device__ __forceinline__ void StoreScores(float* tile, const typename P::Scores& scores) {
#pragma unroll
  for (int i = 0; i < P::kOwn; ++i) {
#pragma unroll
    for (int j = 0; j < P::kOwn; ++j) {
      tile[(ThreadY() + kSide * i) * P::kScoreRow + ThreadX() + kSide * j] = scores[i][j];
    }
  }
}

/// Rows of one head, scaled by factor[i].
template <typename P, typename T>
__device__ __forceinline__ void StoreRows(T* head, int64_t stride, int row0, int end, int head_dim,
                                          const typename P::Sums& sums, const float (&factor)[P::kOwn]) {
#pragma unroll
  for (int i = 0; i < P::kOwn; ++i) {
    const int row = row0 + ThreadY() + kSide * i;
    if (row >= end) continue;
#pragma unroll
    for (int j = 0; j < P::kColumns; ++j) {
      const int column = ThreadX() + kSide * j;
      if (column < head_dim) head[row * stride + column] = FromFloat<T>(sums[i][j] * factor[i]);
    }
  }
}

/// What a probability is multiplied by.
__device__ __forceinline__ float DropFactor(const AttentionSizes& s, int bh, int query, int key) {
  if (!s.drops) return 1.0f;
  const uint64_t element = s.first_element(bh) + static_cast<uint64_t>(query) * static_cast<uint64_t>(s.sequence) +
                           static_cast<uint64_t>(key);
  return PhiloxWord(s.drop_key, element) >= s.drop_threshold ? s.drop_scale : 0.0f;
}

/// Sum or maximum over the sixteen threads of a row.
template <typename Op>
__device__ __forceinline__ float RowReduce(float value, Op op) {
#pragma unroll
  for (int offset = kSide / 2; offset > 0; offset /= 2) value = op(value, __shfl_xor_sync(kWholeWarp, value, offset));
  return value;
}

template <typename T, int kDim>
__global__ void __launch_bounds__(kThreads)
    ForwardKernel(Rows<T> out, float* lse, Rows<const T> qkv, int tiles, int num_heads, PackedSizes all) {
  using P = Plan<kDim>;
  auto* const q = DynamicShared<float>();
  float* const kv = q + P::kTile * P::kRow;
  float* const probabilities = kv + P::kTile * P::kRow;

  const int bh = static_cast<int>(blockIdx.x) % num_heads, b = bh / all.heads, h = bh % all.heads;
  const PackedSizes s = all.OfSequence(b);
  const int g = h / s.group();
  const int query0 = (tiles - 1 - static_cast<int>(blockIdx.x) / num_heads) * P::kTile;  // the longest first
  const T* const rows = qkv[int64_t{b} * s.sequence];
  LoadTile<P>(q, rows + s.query_column(h), qkv.stride, query0, s.sequence, s.head_dim);
  float max[P::kOwn], sum[P::kOwn];
  for (int i = 0; i < P::kOwn; ++i) max[i] = kNoScore, sum[i] = 0;
  typename P::Sums sums;
  Clear<P>(sums);
  const int end_key = s.end_key(query0 + P::kTile - 1);
  for (int key0 = s.first_key(query0) / P::kTile * P::kTile; key0 < end_key; key0 += P::kTile) {
    __syncthreads();  // values have been read
    LoadTile<P>(kv, rows + s.key_column(g), qkv.stride, key0, s.sequence, s.head_dim);
    __syncthreads();
    typename P::Scores scores;
    MultiplyTransposed<P>(scores, q, kv, s.head_dim);
#pragma unroll
    for (int i = 0; i < P::kOwn; ++i) {
      const int query = query0 + ThreadY() + kSide * i;
      const auto seen = KeysOf(s, query);
      float most = max[i];
#pragma unroll
      for (int j = 0; j < P::kOwn; ++j) {
        const int key = key0 + ThreadX() + kSide * j;
        scores[i][j] = seen.has(key) ? scores[i][j] * s.scale : -INFINITY;
        most = fmaxf(most, scores[i][j]);
      }
      most = RowReduce(most, Maximum());
      const float rescale = expf(max[i] - most);  // 0 where no key was seen
      max[i] = most;
      sum[i] *= rescale;
      for (int j = 0; j < P::kColumns; ++j) sums[i][j] *= rescale;
#pragma unroll
      for (int j = 0; j < P::kOwn; ++j) {
        const float p = expf(scores[i][j] - most);
        sum[i] += p;
        scores[i][j] = p * DropFactor(s, bh, query, key0 + ThreadX() + kSide * j);
      }
    }
    StoreScores<P>(probabilities, scores);
    __syncthreads();  // keys have been read
    LoadTile<P>(kv, rows + s.value_column(g), qkv.stride, key0, s.sequence, s.head_dim);
    __syncthreads();
    MultiplyAdd<P, false>(sums, probabilities, kv, s.head_dim);
  }
  float normalize[P::kOwn];
#pragma unroll
  for (int i = 0; i < P::kOwn; ++i) {
    sum[i] = RowReduce(sum[i], Plus());
    normalize[i] = 1.0f / sum[i];
    const int query = query0 + ThreadY() + kSide * i;
    if (query < s.sequence && ThreadX() == 0) lse[int64_t{bh} * s.sequence + query] = max[i] + logf(sum[i]);
  }
  StoreRows<P>(out[int64_t{b} * s.sequence] + s.query_column(h), out.stride, query0, s.sequence, s.head_dim, sums,
               normalize);
}

/// Turns scores and products dp = d_out v^T into dropped probabilities and dS without the scale.
template <typename P>
__device__ __forceinline__ void Differentiate(typename P::Scores& scores, typename P::Scores& dp,
                                              const AttentionStats& stats, int bh, int query0, int key0,
                                              const PackedSizes& s) {
#pragma unroll
  for (int i = 0; i < P::kOwn; ++i) {
    const int query = query0 + ThreadY() + kSide * i;
    const int64_t at = int64_t{bh} * stats.stride + query;
    const float lse = stats.lse[at], delta = stats.delta[at];
    const auto seen = KeysOf(s, query);
#pragma unroll
    for (int j = 0; j < P::kOwn; ++j) {
      const int key = key0 + ThreadX() + kSide * j;
      const float p = seen.has(key) ? expf(fmaf(scores[i][j], s.scale, -lse)) : 0.0f;
      const float factor = DropFactor(s, bh, query, key);
      scores[i][j] = p * factor;
      dp[i][j] = p * (dp[i][j] * factor - delta);
    }
  }
}

template <typename T, int kDim>
__global__ void __launch_bounds__(kThreads) KeysKernel(Rows<T> d_qkv, Rows<const T> d_out, Rows<const T> qkv,
                                                       AttentionStats stats, int num_heads, PackedSizes all) {
  using P = Plan<kDim>;
  auto* const k = DynamicShared<float>();
  float* const v = k + P::kTile * P::kRow;
  float* const q = v + P::kTile * P::kRow;
  float* const d_o = q + P::kTile * P::kRow;
  float* const probabilities = d_o + P::kTile * P::kRow;
  float* const gradients = probabilities + P::kTile * P::kScoreRow;

  const int bg = static_cast<int>(blockIdx.x) % num_heads, b = bg / all.kv_heads, g = bg % all.kv_heads;
  const PackedSizes s = all.OfSequence(b);
  const int key0 = static_cast<int>(blockIdx.x) / num_heads * P::kTile;
  const int64_t row0 = int64_t{b} * s.sequence;
  LoadTile<P>(k, qkv[row0] + s.key_column(g), qkv.stride, key0, s.sequence, s.head_dim);
  LoadTile<P>(v, qkv[row0] + s.value_column(g), qkv.stride, key0, s.sequence, s.head_dim);
  typename P::Sums dk, dv;
  Clear<P>(dk);
  Clear<P>(dv);
  for (int h = g * s.group(); h < (g + 1) * s.group(); ++h) {
    const int end_query = s.end_query(key0 + P::kTile - 1);
    for (int query0 = s.first_query(key0) / P::kTile * P::kTile; query0 < end_query; query0 += P::kTile) {
      __syncthreads();
      LoadTile<P>(q, qkv[row0] + s.query_column(h), qkv.stride, query0, s.sequence, s.head_dim);
      LoadTile<P>(d_o, d_out[row0] + s.query_column(h), d_out.stride, query0, s.sequence, s.head_dim);
      __syncthreads();
      typename P::Scores scores, dp;
      MultiplyTransposed<P>(scores, q, k, s.head_dim);
      MultiplyTransposed<P>(dp, d_o, v, s.head_dim);
      Differentiate<P>(scores, dp, stats, b * s.heads + h, query0, key0, s);
      StoreScores<P>(probabilities, scores);
      StoreScores<P>(gradients, dp);
      __syncthreads();
      MultiplyAdd<P, true>(dv, probabilities, d_o, s.head_dim);
      MultiplyAdd<P, true>(dk, gradients, q, s.head_dim);
    }
  }
  float ones[P::kOwn], scales[P::kOwn];
  for (int i = 0; i < P::kOwn; ++i) ones[i] = 1, scales[i] = s.scale;
  StoreRows<P>(d_qkv[row0] + s.value_column(g), d_qkv.stride, key0, s.sequence, s.head_dim, dv, ones);
  StoreRows<P>(d_qkv[row0] + s.key_column(g), d_qkv.stride, key0, s.sequence, s.head_dim, dk, scales);
}

template <typename T, int kDim>
__global__ void __launch_bounds__(kThreads)
    QueriesKernel(Rows<T> d_qkv, Rows<const T> d_out, Rows<const T> qkv, AttentionStats stats, int tiles, int num_heads,
                  PackedSizes all) {
  using P = Plan<kDim>;
  auto* const q = DynamicShared<float>();
  float* const d_o = q + P::kTile * P::kRow;
  float* const k = d_o + P::kTile * P::kRow;
  float* const v = k + P::kTile * P::kRow;
  float* const gradients = v + P::kTile * P::kRow;

  const int bh = static_cast<int>(blockIdx.x) % num_heads, b = bh / all.heads, h = bh % all.heads;
  const PackedSizes s = all.OfSequence(b);
  const int g = h / s.group();
  const int query0 = (tiles - 1 - static_cast<int>(blockIdx.x) / num_heads) * P::kTile;  // the longest first
  const int64_t row0 = int64_t{b} * s.sequence;
  LoadTile<P>(q, qkv[row0] + s.query_column(h), qkv.stride, query0, s.sequence, s.head_dim);
  LoadTile<P>(d_o, d_out[row0] + s.query_column(h), d_out.stride, query0, s.sequence, s.head_dim);
  typename P::Sums dq;
  Clear<P>(dq);
  const int end_key = s.end_key(query0 + P::kTile - 1);
  for (int key0 = s.first_key(query0) / P::kTile * P::kTile; key0 < end_key; key0 += P::kTile) {
    __syncthreads();
    LoadTile<P>(k, qkv[row0] + s.key_column(g), qkv.stride, key0, s.sequence, s.head_dim);
    LoadTile<P>(v, qkv[row0] + s.value_column(g), qkv.stride, key0, s.sequence, s.head_dim);
    __syncthreads();
    typename P::Scores scores, dp;
    MultiplyTransposed<P>(scores, q, k, s.head_dim);
    MultiplyTransposed<P>(dp, d_o, v, s.head_dim);
    Differentiate<P>(scores, dp, stats, bh, query0, key0, s);
    StoreScores<P>(gradients, dp);
    __syncthreads();
    MultiplyAdd<P, false>(dq, gradients, k, s.head_dim);
  }
  float scales[P::kOwn];
  for (int i = 0; i < P::kOwn; ++i) scales[i] = s.scale;
  StoreRows<P>(d_qkv[row0] + s.query_column(h), d_qkv.stride, query0, s.sequence, s.head_dim, dq, scales);
}

template <typename T, int kDim>
void Queue(CudaQueue& queue, const AttentionForwardCall& call) {
  using P = Plan<kDim>;
  QueueAttentionForward(queue, call, {P::kTile, kThreads, 2 * P::kRowsBytes + P::kScoresBytes}, ForwardKernel<T, kDim>);
}

template <typename T, int kDim>
void Queue(CudaQueue& queue, const AttentionBackwardCall& call) {
  using P = Plan<kDim>;
  QueueAttentionBackward(queue, call, {P::kTile, kThreads, P::kMostBytes}, KeysKernel<T, kDim>,
                         {P::kTile, kThreads, 4 * P::kRowsBytes + P::kScoresBytes}, QueriesKernel<T, kDim>);
}

/// For any head size.
template <class Call>
void QueueGeneral(CudaQueue& queue, const Call& call) {
  WithElement(call.qkv.dtype, [&](auto element) {
    using T = decltype(element);
    if (call.sizes.head_dim <= 64) return Queue<T, 64>(queue, call);
    if (call.sizes.head_dim <= 128) return Queue<T, 128>(queue, call);
    Queue<T, 256>(queue, call);
  });
}

}  // namespace

size_t AttentionGeneralSharedBytes(int64_t head_dim) {
  if (head_dim <= 64) return Plan<64>::kMostBytes;
  return head_dim <= 128 ? Plan<128>::kMostBytes : Plan<256>::kMostBytes;
}

void AttentionForwardGeneral(CudaQueue& queue, const AttentionForwardCall& call) { QueueGeneral(queue, call); }

void AttentionBackwardGeneral(CudaQueue& queue, const AttentionBackwardCall& call) { QueueGeneral(queue, call); }

}  // namespace holdfast::kernels
