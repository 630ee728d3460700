#pragma once
// One call of attention as its kernels see it. Shapes: B batch, T sequence, H query heads, G key/value heads, D head
// size, as in ops.h.

#include <cmath>
#include <cstdint>

#include "kernels/cuda/cuda_queue.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/ops.h"
#include "kernels/philox.h"

namespace holdfast::kernels {

/// The maximum of no score. Not -infinity, which the maximum stays while a query sees none of a tile's keys: the
/// difference of two of them is not a number.
inline constexpr float kNoScore = -3.402823466e38f;

/// The keys that a query sees, or the queries that see a key: first to end - 1.
struct Seen {
  int first, end;
  __device__ __forceinline__ bool has(int i) const { return i >= first && i < end; }
};

struct AttentionSizes {
  int sequence, heads, kv_heads, head_dim;
  int window;  // the sequence's length where there is none
  bool causal;
  Documents documents;  // of all sequences, until OfSequence
  float scale;          // of scores: 1 / sqrt(D)
  bool drops;
  RandomKey drop_key;
  uint32_t drop_threshold;
  float drop_scale;

  explicit AttentionSizes(const AttentionShape& shape)
      : sequence(static_cast<int>(shape.sequence)),
        heads(static_cast<int>(shape.num_heads)),
        kv_heads(static_cast<int>(shape.num_kv_heads)),
        head_dim(static_cast<int>(shape.head_dim)),
        window(static_cast<int>(shape.window > 0 && shape.window < shape.sequence ? shape.window : shape.sequence)),
        causal(shape.causal),
        documents(shape.documents),
        scale(1.0f / std::sqrt(static_cast<float>(shape.head_dim))),
        drops(shape.dropout.rate > 0),
        drop_key(shape.dropout.key),
        drop_threshold(DropoutThreshold(shape.dropout.rate)),
        drop_scale(drops ? DropoutScale(shape.dropout.rate) : 1.0f) {}

  __device__ __forceinline__ int group() const { return heads / kv_heads; }
  __device__ __forceinline__ AttentionSizes OfSequence(int b) const {
    AttentionSizes sizes = *this;
    if (documents.begin != nullptr) {
      sizes.documents = {documents.begin + int64_t{b} * sequence, documents.end + int64_t{b} * sequence};
    }
    return sizes;
  }
  __device__ __forceinline__ Seen keys_of(int query) const { return {first_key(query), end_key(query)}; }
  __device__ __forceinline__ Seen queries_of(int key) const { return {first_query(key), end_query(key)}; }
  // What sees what, as in AttentionShape; ends are not beyond the sequence, where queries may be.
  __device__ __forceinline__ int first_key(int query) const {
    const int begin = documents.begin == nullptr ? 0 : documents.begin[min(query, sequence - 1)];
    return max(begin, query - window + 1);
  }
  __device__ __forceinline__ int end_key(int query) const {
    if (causal) return min(query + 1, sequence);
    return documents.end == nullptr ? sequence : documents.end[min(query, sequence - 1)];
  }
  __device__ __forceinline__ int first_query(int key) const {
    if (causal) return key;
    return documents.begin == nullptr ? 0 : documents.begin[min(key, sequence - 1)];
  }
  __device__ __forceinline__ int end_query(int key) const {
    const int end = documents.end == nullptr ? sequence : documents.end[min(key, sequence - 1)];
    return min(key + window, end);
  }
  // Columns of qkv.
  __device__ __forceinline__ int64_t query_column(int h) const { return int64_t{h} * head_dim; }
  __device__ __forceinline__ int64_t key_column(int g) const { return int64_t{heads + g} * head_dim; }
  __device__ __forceinline__ int64_t value_column(int g) const { return int64_t{heads + kv_heads + g} * head_dim; }
  /// Dropout element of query 0, key 0 of head `bh` of B * H.
  __device__ __forceinline__ uint64_t first_element(int bh) const {
    return static_cast<uint64_t>(bh) * static_cast<uint64_t>(sequence) * static_cast<uint64_t>(sequence);
  }
};

/// What the backward pass needs of each query besides its rows: (B, H, T rounded up to kStatsMultiple) of each. Queries
/// beyond T have lse = infinity and delta = 0, so that their probabilities and gradients come out as 0.
struct AttentionStats {
  static constexpr int kMultiple = 128;
  float* lse;    // times log2(e) for the tensor core kernels
  float* delta;  // sum over D of d_out * out
  int stride;    // of a head

  static int StrideOf(int64_t sequence) { return static_cast<int>((sequence + kMultiple - 1) / kMultiple * kMultiple); }
};

struct AttentionForwardCall {
  Matrix out;
  float* lse;
  ConstMatrix qkv;
  int batch;
  AttentionSizes sizes;
};

struct AttentionBackwardCall {
  Matrix d_qkv;
  ConstMatrix d_out, qkv;
  AttentionStats stats;
  int batch;
  AttentionSizes sizes;
};

/// For any dtype and alignment, in fp32 without tensor cores.
void AttentionForwardGeneral(CudaQueue& queue, const AttentionForwardCall& call);
void AttentionBackwardGeneral(CudaQueue& queue, const AttentionBackwardCall& call);

/// bf16 whose rows can be read 16 bytes at a time: what the tensor core kernels take.
inline bool FitsTensorCores(const ConstMatrix& m) {
  return m.dtype == DType::kBF16 && RowsOf<const Bf16>(m).CanPack<8>(m.cols);
}

}  // namespace holdfast::kernels
