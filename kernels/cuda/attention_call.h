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

struct AttentionSizes {
  int sequence, heads, kv_heads, head_dim;
  int window;  // the sequence's length where there is none
  bool causal;
  float scale;  // of scores: 1 / sqrt(D)
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
        scale(1.0f / std::sqrt(static_cast<float>(shape.head_dim))),
        drops(shape.dropout.rate > 0),
        drop_key(shape.dropout.key),
        drop_threshold(DropoutThreshold(shape.dropout.rate)),
        drop_scale(drops ? DropoutScale(shape.dropout.rate) : 1.0f) {}

  __device__ __forceinline__ int group() const { return heads / kv_heads; }
  __device__ __forceinline__ const AttentionSizes& OfSequence(int /*b*/) const { return *this; }
  // What sees what, as in AttentionShape; ends are not beyond the sequence, where queries may be.
  __device__ __forceinline__ int first_key(int query) const { return max(0, query - window + 1); }
  __device__ __forceinline__ int end_key(int query) const { return causal ? min(query + 1, sequence) : sequence; }
  __device__ __forceinline__ int first_query(int key) const { return causal ? key : 0; }
  __device__ __forceinline__ int end_query(int key) const { return min(key + window, sequence); }
  __device__ __forceinline__ bool hides(int query, int key) const {
    const int last = causal ? query : sequence - 1;
    return static_cast<int>(key > last) | static_cast<int>(query - key >= window);  // without a branch
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

/// The same of sequences that may consist of documents. A type of its own, because the plain kernels have no register
/// to spare.
struct PackedSizes : AttentionSizes {
  Documents documents;  // of all sequences, until OfSequence

  explicit PackedSizes(const AttentionShape& shape) : AttentionSizes(shape), documents(shape.documents) {}

  __device__ __forceinline__ PackedSizes OfSequence(int b) const {
    PackedSizes sizes = *this;
    if (documents.begin != nullptr) {
      sizes.documents = {documents.begin + int64_t{b} * sequence, documents.end + int64_t{b} * sequence};
    }
    return sizes;
  }
  __device__ __forceinline__ int first_key(int query) const {
    return max(Begin(query), AttentionSizes::first_key(query));
  }
  __device__ __forceinline__ int end_key(int query) const { return causal ? min(query + 1, sequence) : End(query); }
  __device__ __forceinline__ int first_query(int key) const { return causal ? key : Begin(key); }
  __device__ __forceinline__ int end_query(int key) const { return min(key + window, End(key)); }

 private:
  __device__ __forceinline__ int Begin(int row) const {
    return documents.begin == nullptr ? 0 : documents.begin[min(row, sequence - 1)];
  }
  __device__ __forceinline__ int End(int row) const {
    return documents.end == nullptr ? sequence : documents.end[min(row, sequence - 1)];
  }
};

/// The keys that a query sees, or the queries that see a key: first to end - 1.
struct Seen {
  int first, end;
  __device__ __forceinline__ bool has(int i) const {
    return static_cast<int>(i >= first) & static_cast<int>(i < end);  // without a branch
  }
};
__device__ __forceinline__ Seen KeysOf(const PackedSizes& s, int query) {
  return {s.first_key(query), s.end_key(query)};
}
__device__ __forceinline__ Seen QueriesOf(const PackedSizes& s, int key) {
  return {s.first_query(key), s.end_query(key)};
}

/// The same without documents, worked out anew for each pair: ends would be held in registers.
struct SeenKeys {
  const AttentionSizes& s;
  int query;
  __device__ __forceinline__ bool has(int key) const { return !s.hides(query, key); }
};
struct SeeingQueries {
  const AttentionSizes& s;
  int key;
  __device__ __forceinline__ bool has(int query) const { return !s.hides(query, key); }
};
__device__ __forceinline__ SeenKeys KeysOf(const AttentionSizes& s, int query) { return {s, query}; }
__device__ __forceinline__ SeeingQueries QueriesOf(const AttentionSizes& s, int key) { return {s, key}; }

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
  PackedSizes sizes;
};

struct AttentionBackwardCall {
  Matrix d_qkv;
  ConstMatrix d_out, qkv;
  AttentionStats stats;
  int batch;
  PackedSizes sizes;
};

/// For any dtype and alignment, in fp32 without tensor cores.
void AttentionForwardGeneral(CudaQueue& queue, const AttentionForwardCall& call);
void AttentionBackwardGeneral(CudaQueue& queue, const AttentionBackwardCall& call);
/// Of their largest block.
size_t AttentionGeneralSharedBytes(int64_t head_dim);

/// bf16 whose rows can be read 16 bytes at a time: what the tensor core kernels take.
inline bool FitsTensorCores(const ConstMatrix& m) {
  return m.dtype == DType::kBF16 && RowsOf<const Bf16>(m).CanPack<8>(m.cols);
}

}  // namespace holdfast::kernels
