// The backward pass on Hopper's own matrix instructions: the two kernels of attention_backward.cu, but the products of
// 64 keys or queries are those of a warpgroup, and one warpgroup does all four of its keys: their sums fit its
// registers, so that nothing is passed between warps.

#include "kernels/cuda/attention_gradients.cuh"
#include "kernels/cuda/attention_hopper.cuh"
#include "kernels/cuda/attention_hopper.h"
#include "kernels/cuda/attention_queue.cuh"

namespace holdfast::kernels {
namespace {

constexpr int kWarpgroups = 2;
constexpr int kThreads = kWarpgroups * 128;

// --- dK and dV -------------------------------------------------------------------------------------------------------

template <int kDim>
struct KeysPlan {
  static constexpr int kKeys = kWarpgroups * kWarpgroupRows;
  static constexpr int kQueries = kDim <= 64 ? 64 : 32;

  static constexpr int kKeyBytes = kTileBytes<kKeys, kDim>, kQueryBytes = kTileBytes<kQueries, kDim>;
  static constexpr int kStatsBytes = kQueries * 4;
  static constexpr int kStageBytes =
      2 * kQueryBytes + 1024;  // Q, dO, lse and delta; a tile begins at multiples of 1024
  static constexpr int kStages = 2 * kKeyBytes;
  static constexpr int kSharedBytes = kStages + 2 * kStageBytes;
  static_assert(2 * kStatsBytes <= 1024 && AttentionStats::kMultiple % kQueries == 0);
};

/// Operands of 16 kN / 2 queries: probabilities that are kept, and gradients of scores, from probabilities and dP^T.
template <bool kDrops, int kN>
__device__ __forceinline__ void PackGradients(uint32_t (&kept)[kN / 2][4], uint32_t (&gradients)[kN / 2][4],
                                              const Fragments<1, kN>& probabilities, const Fragments<1, kN>& dp,
                                              Place delta, const AttentionSizes& s, uint64_t first, int key,
                                              int query) {
#pragma unroll
  for (int k = 0; k < kN / 2; ++k) {
    uint32_t marked[1][4], of_values[1][4], of_scores[1][4];
    PackOperand<1, kN>(marked, probabilities, k);
    PackOperand<1, kN>(of_values, probabilities, k);
    if (kDrops) DropTransposed<1>(marked, of_values, s, first, key, query + 16 * k);
    ScoreGradients<kDrops, 1, kN>(of_scores, dp, k, marked, delta, s.drop_scale);
#pragma unroll
    for (int i = 0; i < 4; ++i) kept[k][i] = of_values[0][i], gradients[k][i] = of_scores[0][i];
  }
}

template <int kDim, bool kDrops, class Sizes>
__global__ void __launch_bounds__(kThreads, 1)
    HopperKeysKernel(Rows<Bf16> d_qkv, Rows<const Bf16> d_out, Rows<const Bf16> qkv, AttentionStats stats,
                     int num_heads, Sizes all) {
  using P = KeysPlan<kDim>;
  constexpr int kN = P::kQueries / 8;
  constexpr Place kKeyTile = 0, kValueTile = P::kKeyBytes;

  // The keys that most queries see first. Neighbours share no keys but read the same queries.
  const int bg = static_cast<int>(blockIdx.x) % num_heads, b = bg / all.kv_heads, g = bg % all.kv_heads;
  const auto& s = all.OfSequence(b);
  const int key0 = static_cast<int>(blockIdx.x) / num_heads * P::kKeys;
  const int64_t row0 = int64_t{b} * s.sequence;
  const int first_tile = s.first_query(key0) / P::kQueries;
  const int end_tile = (s.end_query(key0 + P::kKeys - 1) + P::kQueries - 1) / P::kQueries;

  const auto copy_queries = [&](int h, int tile, Place stage) {
    const int query0 = tile * P::kQueries;
    using Copy = PartsCopy<kDim, P::kQueries, kThreads>;
    Copy(qkv[row0] + s.query_column(h), qkv.stride).Start(stage, query0, s.sequence);
    Copy(d_out[row0] + s.query_column(h), d_out.stride).Start(stage + P::kQueryBytes, query0, s.sequence);
    constexpr int kChunks = P::kStatsBytes / 16;
    const int i = static_cast<int>(threadIdx.x);
    if (i >= 2 * kChunks) return;
    const float* row = (i < kChunks ? stats.lse : stats.delta) + (int64_t{b} * s.heads + h) * stats.stride;
    AsyncCopy16(Shared(stage + 2 * P::kQueryBytes + i * 16), row + query0 + i % kChunks * 4, true);
  };
  const PartsCopy<kDim, P::kKeys, kThreads> k_copy(qkv[row0] + s.key_column(g), qkv.stride);
  k_copy.Start(kKeyTile, key0, s.sequence);
  k_copy.Start(kValueTile, key0, s.sequence, s.kv_heads * kDim);
  copy_queries(g * s.group(), first_tile, P::kStages);
  AsyncCopiesEndGroup();

  const int lane = static_cast<int>(LaneId()), warp_row = static_cast<int>(threadIdx.x) / kWarpSize * kWarpRows;
  const int group_row = warp_row / kWarpgroupRows * kWarpgroupRows;
  const int group_key = key0 + group_row, last_key = group_key + kWarpgroupRows - 1;  // of the warpgroup
  const int lane_key = key0 + warp_row + lane / 4, lane_query = 2 * (lane % 4);
  const Place keys = kKeyTile + kPartBytes<1> * group_row, values = kValueTile + kPartBytes<1> * group_row;
  const float scale_log2 = s.scale * kLog2E;
  Fragments<1, kDim / 8> d_keys, d_values;
  Clear<1, kDim / 8>(d_keys);
  Clear<1, kDim / 8>(d_values);
  int h = g * s.group(), tile = first_tile;
  for (Place stage = P::kStages, other = P::kStages + P::kStageBytes; h < (g + 1) * s.group();) {
    AsyncCopiesWait<0>();
    ShowToWarpgroups();
    __syncthreads();  // all have this tile, and none still reads the one before
    const int this_h = h, query0 = tile * P::kQueries;
    if (++tile == end_tile) tile = first_tile, ++h;
    if (h < (g + 1) * s.group()) copy_queries(h, tile, other);
    AsyncCopiesEndGroup();
    const Place q = stage, d_o = stage + P::kQueryBytes, lse = stage + 2 * P::kQueryBytes;
    const Place delta = lse + P::kStatsBytes;
    stage = other, other = q;
    // None of these queries sees a key of this warpgroup.
    if (query0 + P::kQueries <= s.first_query(group_key) || query0 >= s.end_query(last_key)) continue;

    Fragments<1, kN> probabilities, dp;
    WarpgroupArrive();
    BeginTransposed<kDim, P::kKeys, kN>(probabilities[0], keys, q);
    BeginTransposed<kDim, P::kKeys, kN>(dp[0], values, d_o);
    WarpgroupWait(probabilities[0]);
    WarpgroupWait(dp[0]);
    Probabilities<1, kN>(probabilities, lse, scale_log2);
    if (query0 < s.first_query(last_key) || query0 + P::kQueries > s.end_query(group_key)) {
      HideQueries<1, kN>(probabilities, s, lane_key, query0 + lane_query);
    }
    uint32_t kept[kN / 2][4], gradients[kN / 2][4];
    PackGradients<kDrops, kN>(kept, gradients, probabilities, dp, delta, s, s.first_element(b * s.heads + this_h),
                              lane_key, query0 + lane_query);
    WarpgroupArrive(d_values[0], d_keys[0], kept, gradients);
    BeginAdd<kDim, P::kQueries>(d_values[0], kept, d_o);
    BeginAdd<kDim, P::kQueries>(d_keys[0], gradients, q);
    WarpgroupWait(d_values[0], kept);
    WarpgroupWait(d_keys[0], gradients);
  }

  // Keys and values are read by nobody any more when all have met: their memory is each warp's own.
  __syncthreads();
  const float of_keys[1][2] = {{s.scale, s.scale}}, of_values[1][2] = {{s.drop_scale, s.drop_scale}};
  Bf16* const to = d_qkv[row0 + key0 + warp_row];
  const int rows = s.sequence - key0 - warp_row;
  const auto own = static_cast<Place>(kWarpRows * Tile<kDim>::kRowBytes) * (threadIdx.x / kWarpSize);
  StoreRows<kDim, 1>(to + s.key_column(g), d_qkv.stride, rows, kDim, kKeyTile + own, d_keys, of_keys);
  StoreRows<kDim, 1>(to + s.value_column(g), d_qkv.stride, rows, kDim, kValueTile + own, d_values, of_values);
}

// --- dQ --------------------------------------------------------------------------------------------------------------

template <int kDim, bool kDrops>
struct QueriesPlan {
  static constexpr int kQueries = kWarpgroups * kWarpgroupRows;
  static constexpr int kKeys = kDim <= 64 ? 64 : 32;
  static constexpr int kBlocks = kDim <= 64 && !kDrops ? 2 : 1;  // of a multiprocessor

  static constexpr int kQueryBytes = kTileBytes<kQueries, kDim>, kKeyBytes = kTileBytes<kKeys, kDim>;
  static constexpr int kStageBytes = 2 * kKeyBytes;  // keys and values
  static constexpr int kStages = 2 * kQueryBytes;
  static constexpr int kSharedBytes = kStages + 2 * kStageBytes;
  static_assert(kBlocks * (kSharedBytes + 1024) <= 228 << 10);
  static_assert(AttentionStats::kMultiple % kQueries == 0);
};

template <int kDim, bool kDrops, class Sizes>
__global__ void __launch_bounds__(kThreads, QueriesPlan<kDim, kDrops>::kBlocks)
    HopperQueriesKernel(Rows<Bf16> d_qkv, Rows<const Bf16> d_out, Rows<const Bf16> qkv, AttentionStats stats, int tiles,
                        int num_heads, Sizes all) {
  using P = QueriesPlan<kDim, kDrops>;
  constexpr int kN = P::kKeys / 8;
  constexpr Place kQueryTile = 0, kGradientTile = P::kQueryBytes;

  const int bh = static_cast<int>(blockIdx.x) % num_heads, b = bh / all.heads, h = bh % all.heads;
  const auto& s = all.OfSequence(b);
  const int query0 = (tiles - 1 - static_cast<int>(blockIdx.x) / num_heads) * P::kQueries;  // the longest first
  const int first_tile = s.first_key(query0) / P::kKeys;
  const int end_tile = (s.end_key(query0 + P::kQueries - 1) + P::kKeys - 1) / P::kKeys;
  const int64_t row0 = int64_t{b} * s.sequence;

  const PartsCopy<kDim, P::kKeys, kThreads> k_copy(qkv[row0] + s.key_column(h / s.group()), qkv.stride);
  const auto copy_keys = [&](int tile) {
    const Place stage = P::kStages + tile % 2 * P::kStageBytes;
    k_copy.Start(stage, tile * P::kKeys, s.sequence);
    k_copy.Start(stage + P::kKeyBytes, tile * P::kKeys, s.sequence, s.kv_heads * kDim);
  };
  using Copy = PartsCopy<kDim, P::kQueries, kThreads>;
  Copy(qkv[row0] + s.query_column(h), qkv.stride).Start(kQueryTile, query0, s.sequence);
  Copy(d_out[row0] + s.query_column(h), d_out.stride).Start(kGradientTile, query0, s.sequence);
  copy_keys(first_tile);
  AsyncCopiesEndGroup();

  const int lane = static_cast<int>(LaneId()), warp_row = static_cast<int>(threadIdx.x) / kWarpSize * kWarpRows;
  const int group_row = warp_row / kWarpgroupRows * kWarpgroupRows;
  const int group_query = query0 + group_row, last_query = group_query + kWarpgroupRows - 1;  // of the warpgroup
  const int lane_query = query0 + warp_row + lane / 4, lane_key = 2 * (lane % 4);
  const Place queries = kQueryTile + kPartBytes<1> * group_row, d_o = kGradientTile + kPartBytes<1> * group_row;
  const RowStats<1> row(stats, bh, lane_query);
  Fragments<1, kDim / 8> sums;
  Clear<1, kDim / 8>(sums);
  for (int tile = first_tile; tile < end_tile; ++tile) {
    AsyncCopiesWait<0>();
    ShowToWarpgroups();
    __syncthreads();  // all have this tile, and none still reads the one before
    if (tile + 1 < end_tile) copy_keys(tile + 1);
    AsyncCopiesEndGroup();
    const int key0 = tile * P::kKeys;
    if (key0 >= s.end_key(last_query) || key0 + P::kKeys <= s.first_key(group_query)) continue;  // nothing they see
    const Place stage = P::kStages + tile % 2 * P::kStageBytes;

    Fragments<1, kN> scores, dp;
    WarpgroupArrive();
    BeginTransposed<kDim, P::kQueries, kN>(scores[0], queries, stage);
    BeginTransposed<kDim, P::kQueries, kN>(dp[0], d_o, stage + P::kKeyBytes);
    WarpgroupWait(scores[0]);
    WarpgroupWait(dp[0]);
    const bool some_hidden = key0 + P::kKeys > s.end_key(group_query) || key0 < s.first_key(last_query);
    Differentiate<kDrops, 1, kN>(scores, dp, row, s, s.first_element(bh), some_hidden, lane_query, key0 + lane_key);
    uint32_t gradients[kN / 2][4];
#pragma unroll
    for (int k = 0; k < kN / 2; ++k) {
      uint32_t packed[1][4];
      PackOperand<1, kN>(packed, scores, k);
#pragma unroll
      for (int i = 0; i < 4; ++i) gradients[k][i] = packed[0][i];
    }
    WarpgroupArrive(sums[0], gradients);
    BeginAdd<kDim, P::kKeys>(sums[0], gradients, stage);
    WarpgroupWait(sums[0], gradients);
  }

  __syncthreads();  // the queries are read by nobody any more: their memory is each warp's own
  const float factor[1][2] = {{s.scale, s.scale}};
  const auto own = static_cast<Place>(kWarpRows * Tile<kDim>::kRowBytes) * (threadIdx.x / kWarpSize);
  StoreRows<kDim, 1>(d_qkv[row0 + query0 + warp_row] + s.query_column(h), d_qkv.stride, s.sequence - query0 - warp_row,
                     kDim, kQueryTile + own, sums, factor);
}

// --- calls -----------------------------------------------------------------------------------------------------------

template <int kDim>
void Queue(CudaQueue& queue, const AttentionBackwardCall& call) {
  WithVariant(call.sizes, [&](auto drops, auto sizes) {
    using K = KeysPlan<kDim>;
    using Q = QueriesPlan<kDim, drops.value>;
    QueueAttentionBackward(
        queue, call, {K::kKeys, kThreads, K::kSharedBytes}, HopperKeysKernel<kDim, drops.value, decltype(sizes)>,
        {Q::kQueries, kThreads, Q::kSharedBytes}, HopperQueriesKernel<kDim, drops.value, decltype(sizes)>);
  });
}

}  // namespace

void AttentionBackwardHopper(CudaQueue& queue, const AttentionBackwardCall& call) {
  call.sizes.head_dim == 64 ? Queue<64>(queue, call) : Queue<128>(queue, call);
}

}  // namespace holdfast::kernels
