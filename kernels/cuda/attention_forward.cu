// Attention on tensor cores after FlashAttention-2 (Dao 2023): a block does a tile of queries of one head, going over
// the tiles of keys with an online softmax; the next keys and values arrive while it computes. Each warp has 32 queries
// (16 where D is too large), so that every fragment of keys and values it loads serves two products: with 16, reading
// shared memory would take longer than the tensor cores.

#include "kernels/cuda/attention_hopper.h"
#include "kernels/cuda/attention_queue.cuh"
#include "kernels/cuda/attention_softmax.cuh"
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/cuda_ops.h"

namespace holdfast::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarpSize;

/// Tiles for head sizes up to kDim. 64 registers of scores and kDim of sums fill a thread's 255 at kDim = 128.
template <int kDim, bool kDrops>
struct Plan {
  static constexpr int kM = kDim <= 128 ? 2 : 1;
  static constexpr int kQueries = kWarps * 16 * kM;
  static constexpr int kKeys = kDim <= (kDrops ? 64 : 128) ? 64 : 32;
  static constexpr int kBlocks = kDim <= 64 && !kDrops ? 3 : 2;  // of a multiprocessor

  static constexpr int kQueryBytes = kQueries * Tile<kDim>::kRowBytes;
  static constexpr int kKeyBytes = kKeys * Tile<kDim>::kRowBytes;
  static constexpr int kStageBytes = 2 * kKeyBytes;  // keys and values
  static constexpr int kSharedBytes = kQueryBytes + 2 * kStageBytes;
  static_assert(kBlocks * (kSharedBytes + 1024) <= 228 << 10);
};

template <int kDim, bool kDrops, class Sizes>
__global__ void __launch_bounds__(kThreads, Plan<kDim, kDrops>::kBlocks)
    ForwardKernel(Rows<Bf16> out, float* lse, Rows<const Bf16> qkv, int tiles, int num_heads, Sizes all) {
  using P = Plan<kDim, kDrops>;
  constexpr int kM = P::kM;
  constexpr Place kQueryTile = 0, kStages = P::kQueryBytes;

  // The longest blocks first. Neighbours share keys and values.
  const int bh = static_cast<int>(blockIdx.x) % num_heads, b = bh / all.heads, h = bh % all.heads;
  const auto& s = all.OfSequence(b);
  const int query0 = (tiles - 1 - static_cast<int>(blockIdx.x) / num_heads) * P::kQueries;
  const int queries = min(P::kQueries, s.sequence - query0);
  const int first_tile = s.first_key(query0) / P::kKeys;
  const int end_tile = (s.end_key(query0 + queries - 1) + P::kKeys - 1) / P::kKeys;
  const int64_t row0 = int64_t{b} * s.sequence;
  const int g = h / s.group();

  const TileCopy<kDim, P::kQueries, kThreads> q_copy(qkv[row0] + s.query_column(h), qkv.stride, s.head_dim);
  const TileCopy<kDim, P::kKeys, kThreads> k_copy(qkv[row0] + s.key_column(g), qkv.stride, s.head_dim);
  const auto copy_keys = [&](int tile) {
    const Place stage = kStages + tile % 2 * P::kStageBytes;
    k_copy.Start(stage, tile * P::kKeys, s.sequence);
    k_copy.Start(stage + P::kKeyBytes, tile * P::kKeys, s.sequence, s.kv_heads * s.head_dim);
  };
  q_copy.Start(kQueryTile, query0, s.sequence);
  copy_keys(first_tile);
  AsyncCopiesEndGroup();

  const int lane = static_cast<int>(LaneId());
  const int warp_row = static_cast<int>(threadIdx.x) / kWarpSize * 16 * kM, warp_query = query0 + warp_row;
  const int lane_query = warp_query + lane / 4, lane_key = 2 * (lane % 4);
  const Place q_rows = kQueryTile + warp_row * Tile<kDim>::kRowBytes;
  const float scale_log2 = s.scale * kLog2E;
  Softmax<kM> softmax;
  float sums[kM][kDim / 8][4];
  Clear<kM, kDim / 8>(sums);
  for (int tile = first_tile; tile < end_tile; ++tile) {
    AsyncCopiesWait<0>();
    __syncthreads();  // all have this tile, and none still reads the one before
    if (tile + 1 < end_tile) copy_keys(tile + 1);
    AsyncCopiesEndGroup();
    const int key0 = tile * P::kKeys;
    // Nothing that this warp's queries see.
    if (key0 >= s.end_key(warp_query + 16 * kM - 1) || key0 + P::kKeys <= s.first_key(warp_query)) continue;
    const Place stage = kStages + tile % 2 * P::kStageBytes;

    float scores[kM][P::kKeys / 8][4];
    MultiplyTransposed<kDim, kM, P::kKeys / 8>(scores, q_rows, stage);
    if (key0 + P::kKeys > s.end_key(warp_query) || key0 < s.first_key(warp_query + 16 * kM - 1)) {
      HideKeys<kM, P::kKeys / 8>(scores, s, lane_query, key0 + lane_key);
    }
    softmax.template Raise<P::kKeys / 8, kDim / 8>(scores, sums, scale_log2);
#pragma unroll
    for (int k = 0; k < P::kKeys / 16; ++k) {
      softmax.template Exponentials<P::kKeys / 8>(scores, k, scale_log2);
      if (kDrops) Drop<kM, P::kKeys / 8>(scores, k, s, s.first_element(bh), lane_query, key0 + lane_key);
      uint32_t probabilities[kM][4];
      PackOperand<kM, P::kKeys / 8>(probabilities, scores, k);
      MultiplyAdd<kDim, kM>(sums, probabilities, stage + P::kKeyBytes + 16 * k * Tile<kDim>::kRowBytes);
    }
  }

  softmax.SumLanes();
  float normalize[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = lane_query + 16 * m + 8 * half;
      normalize[m][half] = (kDrops ? s.drop_scale : 1.0f) / softmax.sum[m][half];
      if (query < s.sequence && lane % 4 == 0) {
        lse[int64_t{bh} * s.sequence + query] = fmaf(softmax.max[m][half], s.scale, logf(softmax.sum[m][half]));
      }
    }
  }
  StoreRows<kDim, kM>(out[row0 + warp_query] + s.query_column(h), out.stride, s.sequence - warp_query, s.head_dim,
                      q_rows, sums, normalize);
}

template <int kDim>
void Queue(CudaQueue& queue, const AttentionForwardCall& call) {
  WithVariant(call.sizes, [&](auto drops, auto sizes) {
    using P = Plan<kDim, drops.value>;
    QueueAttentionForward(queue, call, {P::kQueries, kThreads, P::kSharedBytes},
                          ForwardKernel<kDim, drops.value, decltype(sizes)>);
  });
}

}  // namespace

void CudaOps::AttentionForward(Matrix out, float* lse, ConstMatrix qkv, const AttentionShape& shape) {
  const AttentionForwardCall call = {out, lse, qkv, static_cast<int>(shape.batch), PackedSizes(shape)};
  if (!FitsTensorCores(qkv) || !FitsTensorCores(out)) return AttentionForwardGeneral(queue_, call);
  if (hopper_ && FitsHopper(call.sizes.head_dim)) return AttentionForwardHopper(queue_, call);
  if (shape.head_dim <= 64) return Queue<64>(queue_, call);
  if (shape.head_dim <= 96) return Queue<96>(queue_, call);
  if (shape.head_dim <= 128) return Queue<128>(queue_, call);
  Queue<256>(queue_, call);
}

}  // namespace holdfast::kernels
