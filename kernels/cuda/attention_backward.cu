// The backward pass of attention on tensor cores. With delta = sum over D of d_out * out, for each query and key
//   P = exp(scale Q K^T - lse)      dV += P^T dO      dS = P (dO V^T - delta)      dK += scale dS^T Q
//   dQ += scale dS K
//
// Two kernels: one for dK and dV over tiles of keys (four products), one for dQ over tiles of queries (three, two of
// them the same again): 7 products where one kernel would need 5 (the forward pass has 2). One kernel would have to add
// to dQ from many blocks, in an order forced by waiting for each other, through fp32 in memory, and to pass dS from
// warp to warp in shared memory; here all sums stay in registers, each in the fixed order of its loop, and no block
// waits for another, so the bits depend on nothing but the arguments.

#include "kernels/cuda/attention_gradients.cuh"
#include "kernels/cuda/attention_hopper.h"
#include "kernels/cuda/attention_limits.h"
#include "kernels/cuda/attention_queue.cuh"
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/launch.cuh"

namespace holdfast::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarpSize;

// --- statistics of queries -------------------------------------------------------------------------------------------

constexpr int kLanesOfHead = 8;

/// Eight lanes a query and head, reading kPack values at a time.
template <typename T, int kPack>
__global__ void StatsKernel(AttentionStats stats, Rows<const T> d_out, Rows<const T> out, const float* lse,
                            float lse_factor, int64_t count, AttentionSizes s) {
  // (B, padded T, H): 32 bits, for divisions of 64 would take longer than reading.
  const unsigned at = blockIdx.x * (blockDim.x / kLanesOfHead) + threadIdx.x / kLanesOfHead;
  const int lane = static_cast<int>(threadIdx.x) % kLanesOfHead;
  const unsigned heads = static_cast<unsigned>(s.heads), stride = static_cast<unsigned>(stats.stride);
  const int h = static_cast<int>(at % heads), query = static_cast<int>(at / heads % stride);
  const int64_t b = at / heads / stride, bh = b * s.heads + h;
  const bool real = at < count && query < s.sequence;
  float sum = 0;
  if (real) {
    const int64_t row = b * s.sequence + query;
    const T *x = d_out[row] + s.query_column(h), *y = out[row] + s.query_column(h);
    for (int i = lane * kPack; i < s.head_dim; i += kLanesOfHead * kPack) {
      const auto left = *reinterpret_cast<const Packet<T, kPack>*>(x + i);
      const auto right = *reinterpret_cast<const Packet<T, kPack>*>(y + i);
#pragma unroll
      for (int k = 0; k < kPack; ++k) sum = fmaf(ToFloat(left.v[k]), ToFloat(right.v[k]), sum);
    }
  }
#pragma unroll
  for (int offset = kLanesOfHead / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(kWholeWarp, sum, offset);
  if (at >= count || lane != 0) return;
  stats.delta[bh * stats.stride + query] = sum;
  stats.lse[bh * stats.stride + query] = real ? lse[bh * s.sequence + query] * lse_factor : INFINITY;
}

template <typename T, int kPack>
void QueueStats(CudaQueue& queue, const AttentionBackwardCall& call, const ConstMatrix& out, const float* lse,
                float lse_factor) {
  constexpr unsigned kBlock = 256;
  const int64_t count = int64_t{call.batch} * call.stats.stride * call.sizes.heads;
  Launch(queue, "AttentionBackward", {.blocks = Blocks(count * kLanesOfHead, kBlock), .threads = kBlock},
         StatsKernel<T, kPack>, call.stats, RowsOf<const T>(call.d_out), RowsOf<const T>(out), lse, lse_factor, count,
         call.sizes);
}

// --- dK and dV -------------------------------------------------------------------------------------------------------
// Warps work in pairs on 16 kM keys, rows of transposed products: one computes P^T and dV, the other dP^T, from the
// first's P^T (passed through shared memory) dS^T, and dK. So each has only one sum of kDim registers to hold, and room
// for 32 keys, which halves what it reads from shared memory for each product.

template <int kDim, bool kDrops>
struct KeysPlan {
  static constexpr int kM = kDim <= 128 ? 2 : 1;
  static constexpr int kPairs = kWarps / 2;
  static constexpr int kKeys = kPairs * 16 * kM;
  static constexpr int kQueries = kDim <= 128 ? 64 : 32;
  static constexpr int kBlocks = kDim <= 64 && !kDrops ? 3 : 2;  // of a multiprocessor

  static constexpr int kKeyBytes = kKeys * Tile<kDim>::kRowBytes;
  static constexpr int kQueryBytes = kQueries * Tile<kDim>::kRowBytes;
  static constexpr int kStatsBytes = kQueries * 4;
  static constexpr int kStageBytes = 2 * kQueryBytes + 2 * kStatsBytes;  // Q, dO, lse, delta
  static constexpr int kPassedBytes = 16 * kM * kQueries * 2;            // P^T of a pair
  static constexpr int kSharedBytes = 2 * kKeyBytes + 2 * kStageBytes + kPairs * kPassedBytes;
  static_assert(kBlocks * (kSharedBytes + 1024) <= 228 << 10);
  static_assert(kQueries <= kKeys && kKeys % kQueries == 0 && AttentionStats::kMultiple % kQueries == 0);
};

/// P^T of a pair of warps on its way from the one to the other: 16 queries at a time, as a lane holds them.
__device__ __forceinline__ uint4* Passed(Place passed, int k, int m, int kM) {
  return reinterpret_cast<uint4*>(Shared(passed)) + (k * kM + m) * kWarpSize + LaneId();
}

template <int kDim, bool kDrops, class Sizes>
__global__ void __launch_bounds__(kThreads, KeysPlan<kDim, kDrops>::kBlocks)
    KeysKernel(Rows<Bf16> d_qkv, Rows<const Bf16> d_out, Rows<const Bf16> qkv, AttentionStats stats, int num_heads,
               Sizes all) {
  using P = KeysPlan<kDim, kDrops>;
  constexpr int kM = P::kM, kN = P::kQueries / 8;
  constexpr Place kKeyTile = 0, kValueTile = P::kKeyBytes, kStages = 2 * P::kKeyBytes;

  // The keys that most queries see first. Neighbours share no keys but read the same queries.
  const int bg = static_cast<int>(blockIdx.x) % num_heads, b = bg / all.kv_heads, g = bg % all.kv_heads;
  const auto& s = all.OfSequence(b);
  const int key0 = static_cast<int>(blockIdx.x) / num_heads * P::kKeys;
  const int64_t row0 = int64_t{b} * s.sequence;
  const int first_tile = s.first_query(key0) / P::kQueries;
  const int end_tile = (s.end_query(key0 + P::kKeys - 1) + P::kQueries - 1) / P::kQueries;

  const auto copy_queries = [&](int h, int tile, Place stage) {
    const int query0 = tile * P::kQueries;
    const TileCopy<kDim, P::kQueries, kThreads> q_copy(qkv[row0] + s.query_column(h), qkv.stride, s.head_dim);
    const TileCopy<kDim, P::kQueries, kThreads> do_copy(d_out[row0] + s.query_column(h), d_out.stride, s.head_dim);
    q_copy.Start(stage, query0, s.sequence);
    do_copy.Start(stage + P::kQueryBytes, query0, s.sequence);
    constexpr int kChunks = P::kStatsBytes / 16;
    const int i = static_cast<int>(threadIdx.x);
    if (i >= 2 * kChunks) return;
    const float* row = (i < kChunks ? stats.lse : stats.delta) + (int64_t{b} * s.heads + h) * stats.stride;
    AsyncCopy16(Shared(stage + 2 * P::kQueryBytes + i * 16), row + query0 + i % kChunks * 4, true);
  };
  const TileCopy<kDim, P::kKeys, kThreads> k_copy(qkv[row0] + s.key_column(g), qkv.stride, s.head_dim);
  k_copy.Start(kKeyTile, key0, s.sequence);
  k_copy.Start(kValueTile, key0, s.sequence, s.kv_heads * s.head_dim);
  copy_queries(g * s.group(), first_tile, kStages);
  AsyncCopiesEndGroup();

  const int lane = static_cast<int>(LaneId()), warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int pair = warp % P::kPairs, warp_key = key0 + pair * 16 * kM, lane_key = warp_key + lane / 4;
  const bool has_values = warp < P::kPairs;
  const Place rows = (has_values ? kKeyTile : kValueTile) + pair * 16 * kM * Tile<kDim>::kRowBytes;
  const Place passed = kStages + 2 * P::kStageBytes + pair * P::kPassedBytes;
  const float scale_log2 = s.scale * kLog2E;
  float sums[kM][kDim / 8][4];  // dV or dK
  Clear<kM, kDim / 8>(sums);
  int h = g * s.group(), tile = first_tile;
  for (Place stage = kStages, other = kStages + P::kStageBytes; h < (g + 1) * s.group();) {
    AsyncCopiesWait<0>();
    __syncthreads();  // all have this tile, and none still reads the one before or what was passed
    const int this_h = h, query0 = tile * P::kQueries;
    if (++tile == end_tile) tile = first_tile, ++h;
    if (h < (g + 1) * s.group()) copy_queries(h, tile, other);
    AsyncCopiesEndGroup();
    const Place q = stage, d_o = stage + P::kQueryBytes, lse = stage + 2 * P::kQueryBytes;
    const Place delta = lse + P::kStatsBytes;
    stage = other, other = q;
    const int last_key = warp_key + 16 * kM - 1;
    // None of these queries sees a key of this pair.
    if (query0 + P::kQueries <= s.first_query(warp_key) || query0 >= s.end_query(last_key)) continue;

    float products[kM][kN][4];
    MultiplyTransposed<kDim, kM, kN>(products, rows, has_values ? q : d_o);
    if (has_values) {
      Probabilities<kM, kN>(products, lse, scale_log2);
      if (query0 < s.first_query(last_key) || query0 + P::kQueries > s.end_query(warp_key)) {
        HideQueries<kM, kN>(products, s, lane_key, query0 + lane % 4 * 2);
      }
      uint32_t kept[kN / 2][kM][4];
#pragma unroll
      for (int k = 0; k < kN / 2; ++k) {
        uint32_t marked[kM][4];
        PackOperand<kM, kN>(marked, products, k);
        PackOperand<kM, kN>(kept[k], products, k);
        if (kDrops) {
          const uint64_t first = s.first_element(b * s.heads + this_h);
          DropTransposed<kM>(marked, kept[k], s, first, lane_key, query0 + 16 * k + lane % 4 * 2);
        }
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          *Passed(passed, k, m, kM) = make_uint4(marked[m][0], marked[m][1], marked[m][2], marked[m][3]);
        }
      }
      pair == 0 ? BarrierArrive<1, 2 * kWarpSize>() : BarrierArrive<2, 2 * kWarpSize>();
#pragma unroll
      for (int k = 0; k < kN / 2; ++k) {
        MultiplyAdd<kDim, kM>(sums, kept[k], d_o + 16 * k * Tile<kDim>::kRowBytes);
      }
    } else {
      pair == 0 ? BarrierWait<1, 2 * kWarpSize>() : BarrierWait<2, 2 * kWarpSize>();
#pragma unroll
      for (int k = 0; k < kN / 2; ++k) {
        uint32_t marked[kM][4], gradients[kM][4];
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          const uint4 packed = *Passed(passed, k, m, kM);
          marked[m][0] = packed.x, marked[m][1] = packed.y, marked[m][2] = packed.z, marked[m][3] = packed.w;
        }
        ScoreGradients<kDrops, kM, kN>(gradients, products, k, marked, delta, s.drop_scale);
        MultiplyAdd<kDim, kM>(sums, gradients, q + 16 * k * Tile<kDim>::kRowBytes);
      }
    }
  }

  float factor[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) factor[m][0] = factor[m][1] = has_values ? s.drop_scale : s.scale;
  StoreRows<kDim, kM>(d_qkv[row0 + warp_key] + (has_values ? s.value_column(g) : s.key_column(g)), d_qkv.stride,
                      s.sequence - warp_key, s.head_dim, rows, sums, factor);
}

// --- dQ --------------------------------------------------------------------------------------------------------------

template <int kDim>
struct QueriesPlan {
  static constexpr int kM = kDim <= 128 ? 2 : 1;
  static constexpr int kQueries = kWarps * 16 * kM;
  static constexpr int kKeys = kDim <= 64 ? 64 : 32;
  static constexpr int kBlocks = kDim <= 128 ? 2 : 1;  // of a multiprocessor

  static constexpr int kQueryBytes = kQueries * Tile<kDim>::kRowBytes;
  static constexpr int kKeyBytes = kKeys * Tile<kDim>::kRowBytes;
  static constexpr int kStageBytes = 2 * kKeyBytes;  // keys and values
  static constexpr int kSharedBytes = 2 * kQueryBytes + 2 * kStageBytes;
  static_assert(kBlocks * (kSharedBytes + 1024) <= 228 << 10);
  static_assert(AttentionStats::kMultiple % kQueries == 0);
};

template <int kDim, bool kDrops, class Sizes>
__global__ void __launch_bounds__(kThreads, QueriesPlan<kDim>::kBlocks)
    QueriesKernel(Rows<Bf16> d_qkv, Rows<const Bf16> d_out, Rows<const Bf16> qkv, AttentionStats stats, int tiles,
                  int num_heads, Sizes all) {
  using P = QueriesPlan<kDim>;
  constexpr int kM = P::kM, kN = P::kKeys / 8;
  constexpr Place kQueryTile = 0, kGradientTile = P::kQueryBytes, kStages = 2 * P::kQueryBytes;

  const int bh = static_cast<int>(blockIdx.x) % num_heads, b = bh / all.heads, h = bh % all.heads;
  const auto& s = all.OfSequence(b);
  const int query0 = (tiles - 1 - static_cast<int>(blockIdx.x) / num_heads) * P::kQueries;  // the longest first
  const int first_tile = s.first_key(query0) / P::kKeys;
  const int end_tile = (s.end_key(query0 + P::kQueries - 1) + P::kKeys - 1) / P::kKeys;
  const int64_t row0 = int64_t{b} * s.sequence;

  const TileCopy<kDim, P::kQueries, kThreads> q_copy(qkv[row0] + s.query_column(h), qkv.stride, s.head_dim);
  const TileCopy<kDim, P::kQueries, kThreads> do_copy(d_out[row0] + s.query_column(h), d_out.stride, s.head_dim);
  const TileCopy<kDim, P::kKeys, kThreads> k_copy(qkv[row0] + s.key_column(h / s.group()), qkv.stride, s.head_dim);
  const auto copy_keys = [&](int tile) {
    const Place stage = kStages + tile % 2 * P::kStageBytes;
    k_copy.Start(stage, tile * P::kKeys, s.sequence);
    k_copy.Start(stage + P::kKeyBytes, tile * P::kKeys, s.sequence, s.kv_heads * s.head_dim);
  };
  q_copy.Start(kQueryTile, query0, s.sequence);
  do_copy.Start(kGradientTile, query0, s.sequence);
  copy_keys(first_tile);
  AsyncCopiesEndGroup();

  const int lane = static_cast<int>(LaneId());
  const int warp_row = static_cast<int>(threadIdx.x) / kWarpSize * 16 * kM, warp_query = query0 + warp_row;
  const int lane_query = warp_query + lane / 4, lane_key = 2 * (lane % 4);
  const Place q_rows = kQueryTile + warp_row * Tile<kDim>::kRowBytes;
  const Place do_rows = kGradientTile + warp_row * Tile<kDim>::kRowBytes;
  const RowStats<kM> row(stats, bh, lane_query);
  float sums[kM][kDim / 8][4];
  Clear<kM, kDim / 8>(sums);
  for (int tile = first_tile; tile < end_tile; ++tile) {
    AsyncCopiesWait<0>();
    __syncthreads();  // all have this tile, and none still reads the one before
    if (tile + 1 < end_tile) copy_keys(tile + 1);
    AsyncCopiesEndGroup();
    const int key0 = tile * P::kKeys;
    const int last_query = warp_query + 16 * kM - 1;
    if (key0 >= s.end_key(last_query) || key0 + P::kKeys <= s.first_key(warp_query)) continue;  // nothing they see
    const Place stage = kStages + tile % 2 * P::kStageBytes;

    float scores[kM][kN][4], dp[kM][kN][4];
    MultiplyTransposed<kDim, kM, kN>(scores, q_rows, stage);
    MultiplyTransposed<kDim, kM, kN>(dp, do_rows, stage + P::kKeyBytes);
    const bool some_hidden = key0 + P::kKeys > s.end_key(warp_query) || key0 < s.first_key(last_query);
    Probabilities<kM, kN>(scores, row, s, some_hidden, lane_query, key0 + lane_key);
    Differentiate<kDrops, kM, kN>(scores, dp, row, s, s.first_element(bh), lane_query, key0 + lane_key);
#pragma unroll
    for (int k = 0; k < kN / 2; ++k) {
      uint32_t gradients[kM][4];
      PackOperand<kM, kN>(gradients, scores, k);
      MultiplyAdd<kDim, kM>(sums, gradients, stage + 16 * k * Tile<kDim>::kRowBytes);
    }
  }

  float factor[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) factor[m][0] = factor[m][1] = s.scale;
  StoreRows<kDim, kM>(d_qkv[row0 + warp_query] + s.query_column(h), d_qkv.stride, s.sequence - warp_query, s.head_dim,
                      q_rows, sums, factor);
}

// --- calls -----------------------------------------------------------------------------------------------------------

template <int kDim>
void Queue(CudaQueue& queue, const AttentionBackwardCall& call) {
  WithVariant(call.sizes, [&](auto drops, auto sizes) {
    using K = KeysPlan<kDim, drops.value>;
    using Q = QueriesPlan<kDim>;
    QueueAttentionBackward(queue, call, {K::kKeys, kThreads, K::kSharedBytes},
                           KeysKernel<kDim, drops.value, decltype(sizes)>, {Q::kQueries, kThreads, Q::kSharedBytes},
                           QueriesKernel<kDim, drops.value, decltype(sizes)>);
  });
}

/// The forward pass takes less.
template <int kDim>
constexpr size_t kMostSharedBytes = std::max(KeysPlan<kDim, false>::kSharedBytes, QueriesPlan<kDim>::kSharedBytes);

}  // namespace

// Rows of bf16 heads, whose size is a multiple of 8, are always such as tensor cores take.
size_t AttentionSharedBytes(DType dtype, int64_t head_dim) {
  if (dtype == DType::kF32) return AttentionGeneralSharedBytes(head_dim);
  if (head_dim <= 64) return kMostSharedBytes<64>;
  if (head_dim <= 96) return kMostSharedBytes<96>;
  return head_dim <= 128 ? kMostSharedBytes<128> : kMostSharedBytes<256>;
}

void CudaOps::AttentionBackward(Matrix d_qkv, ConstMatrix d_out, ConstMatrix out, const float* lse, ConstMatrix qkv,
                                const AttentionShape& shape) {
  const int stride = AttentionStats::StrideOf(shape.sequence);
  const int64_t count = shape.batch * shape.num_heads * stride;
  auto* const memory = static_cast<float*>(queue_.Scratch(static_cast<size_t>(2 * count) * sizeof(float)));
  if (memory == nullptr) return;
  const AttentionStats stats = {memory, memory + count, stride};
  const AttentionBackwardCall call = {d_qkv, d_out, qkv, stats, static_cast<int>(shape.batch), PackedSizes(shape)};
  if (!FitsTensorCores(qkv) || !FitsTensorCores(d_qkv) || !FitsTensorCores(d_out) || !FitsTensorCores(out)) {
    WithElement(qkv.dtype, [&](auto element) { QueueStats<decltype(element), 1>(queue_, call, out, lse, 1.0f); });
    return AttentionBackwardGeneral(queue_, call);
  }
  QueueStats<Bf16, 8>(queue_, call, out, lse, kLog2E);
  if (hopper_ && FitsHopper(call.sizes.head_dim)) return AttentionBackwardHopper(queue_, call);
  if (shape.head_dim <= 64) return Queue<64>(queue_, call);
  if (shape.head_dim <= 96) return Queue<96>(queue_, call);
  if (shape.head_dim <= 128) return Queue<128>(queue_, call);
  Queue<256>(queue_, call);
}

}  // namespace holdfast::kernels
