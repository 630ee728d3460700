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
  static constexpr int kSharedBytes = kStages + 3 * kStageBytes;
  static_assert(2 * kStatsBytes <= 1024 && AttentionStats::kMultiple % kQueries == 0);
};

/// Operands of 16 kN / 2 queries: the probabilities that are kept, and all, `marked` where they are dropped.
template <bool kDrops, int kN>
__device__ __forceinline__ void PackProbabilities(uint32_t (&marked)[kN / 2][4], uint32_t (&kept)[kN / 2][4],
                                                  const Fragments<1, kN>& probabilities, const AttentionSizes& s,
                                                  uint64_t first, int key, int query) {
#pragma unroll
  for (int k = 0; k < kN / 2; ++k) {
    uint32_t every[1][4], left_in[1][4];
    PackOperand<1, kN>(every, probabilities, k);
    PackOperand<1, kN>(left_in, probabilities, k);
    if (kDrops) DropTransposed<1>(every, left_in, s, first, key, query + 16 * k);
#pragma unroll
    for (int i = 0; i < 4; ++i) marked[k][i] = every[0][i], kept[k][i] = left_in[0][i];
  }
}

/// Operands of 16 kN / 2 queries: gradients of scores, from dP^T and probabilities.
template <bool kDrops, int kN>
__device__ __forceinline__ void PackGradients(uint32_t (&gradients)[kN / 2][4], const Fragments<1, kN>& dp,
                                              const uint32_t (&marked)[kN / 2][4], Place delta, float drop_scale) {
#pragma unroll
  for (int k = 0; k < kN / 2; ++k) {
    const uint32_t probabilities[1][4] = {{marked[k][0], marked[k][1], marked[k][2], marked[k][3]}};
    uint32_t packed[1][4];
    ScoreGradients<kDrops, 1, kN>(packed, dp, k, probabilities, delta, drop_scale);
#pragma unroll
    for (int i = 0; i < 4; ++i) gradients[k][i] = packed[0][i];
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

  // Copies the tiles one after the other: of each head, those from the first to the last.
  using Copy = PartsCopy<kDim, P::kQueries, kThreads>;
  const int first_head = g * s.group(), tiles = end_tile - first_tile, first_query = first_tile * P::kQueries;
  constexpr int kChunks = P::kStatsBytes / 16;
  const int chunk = static_cast<int>(threadIdx.x);  // of lse and delta
  Copy q_copy(qkv[row0 + first_query] + s.query_column(first_head), qkv.stride);
  Copy o_copy(d_out[row0 + first_query] + s.query_column(first_head), d_out.stride);
  const float* stats_from = (chunk < kChunks ? stats.lse : stats.delta) +
                            (int64_t{b} * s.heads + first_head) * stats.stride + first_query + chunk % kChunks * 4;
  int heads_left = s.group(), tiles_left = tiles;
  const auto copy_queries = [&](Place stage) {
    if (heads_left > 0) {
      const int rows = s.sequence - (end_tile - tiles_left) * P::kQueries;
      q_copy.StartHere(stage, rows);
      o_copy.StartHere(stage + P::kQueryBytes, rows);
      if (chunk < 2 * kChunks) AsyncCopy16(Shared(stage + 2 * P::kQueryBytes + chunk * 16), stats_from, true);
      q_copy.Move(P::kQueries * qkv.stride);
      o_copy.Move(P::kQueries * d_out.stride);
      stats_from += P::kQueries;
      if (--tiles_left == 0) {
        tiles_left = tiles, --heads_left;
        q_copy.Move(kDim - tiles * P::kQueries * qkv.stride);
        o_copy.Move(kDim - tiles * P::kQueries * d_out.stride);
        stats_from += stats.stride - tiles * P::kQueries;
      }
    }
    AsyncCopiesEndGroup();
  };
  const PartsCopy<kDim, P::kKeys, kThreads> k_copy(qkv[row0] + s.key_column(g), qkv.stride);
  k_copy.Start(kKeyTile, key0, s.sequence);
  k_copy.Start(kValueTile, key0, s.sequence, s.kv_heads * kDim);
  copy_queries(P::kStages);
  copy_queries(P::kStages + P::kStageBytes);

  const int lane = static_cast<int>(LaneId()), warp_row = static_cast<int>(threadIdx.x) / kWarpSize * kWarpRows;
  const int group_row = Warpgroup() * kWarpgroupRows;
  const int group_key = key0 + group_row, last_key = group_key + kWarpgroupRows - 1;  // of the warpgroup
  const int lane_key = key0 + warp_row + lane / 4, lane_query = 2 * (lane % 4);
  const Place keys = kKeyTile + kPartBytes<1> * group_row, values = kValueTile + kPartBytes<1> * group_row;
  const float scale_log2 = s.scale * kLog2E;
  Fragments<1, kDim / 8> d_keys, d_values;
  Clear<1, kDim / 8>(d_keys);
  Clear<1, kDim / 8>(d_values);

  // While a tile's softmax is computed, products of the tile before and after it run, in this order: ..., dP(i),
  // dV(i), S(i + 1), dK(i), dP(i + 1), ...
  Fragments<1, kN> scores, dp;
  uint32_t kept[kN / 2][4], gradients[kN / 2][4];  // probabilities and gradients of scores, as operands
  const auto begin_scores = [&](Place q) {
    WarpgroupArrive(scores[0]);
    BeginTransposed<kDim, P::kKeys, kN>(scores[0], keys, q);
    WarpgroupEndGroup();
  };
  const auto next_stage = [](Place stage) {
    return stage + P::kStageBytes == P::kSharedBytes ? Place{P::kStages} : stage + P::kStageBytes;
  };
  AsyncCopiesWait<1>();
  ShowToWarpgroups();
  __syncthreads();
  Clear<1, kN>(scores);
  begin_scores(P::kStages);
  WarpgroupWaitFor<0>(scores[0]);
  Place stage = P::kStages;
  int h = first_head, tile = first_tile;
  for (int left = s.group() * tiles; left > 0; --left) {
    const Place q = stage, d_o = stage + P::kQueryBytes, lse = stage + 2 * P::kQueryBytes;
    const Place delta = lse + P::kStatsBytes;
    const int query0 = tile * P::kQueries;
    WarpgroupArrive();
    BeginTransposed<kDim, P::kKeys, kN>(dp[0], values, d_o);
    WarpgroupEndGroup();
    Probabilities<1, kN>(scores, lse, scale_log2);
    if (query0 < s.first_query(last_key) || query0 + P::kQueries > s.end_query(group_key)) {
      HideQueries<1, kN>(scores, s, lane_key, query0 + lane_query);
    }
    uint32_t marked[kN / 2][4];
    PackProbabilities<kDrops, kN>(marked, kept, scores, s, s.first_element(b * s.heads + h), lane_key,
                                  query0 + lane_query);
    WarpgroupArrive(d_values[0], kept);
    BeginAdd<kDim, P::kQueries>(d_values[0], kept, d_o);
    WarpgroupEndGroup();
    WarpgroupWaitFor<1>(dp[0], d_keys[0], gradients);

    AsyncCopiesWait<0>();
    ShowToWarpgroups();
    __syncthreads();  // all have the next tile, and none still reads the one before this
    stage = next_stage(stage);
    begin_scores(stage);  // of what was there before, after the last
    copy_queries(next_stage(stage));

    PackGradients<kDrops, kN>(gradients, dp, marked, delta, s.drop_scale);
    WarpgroupArrive(d_keys[0], gradients);
    BeginAdd<kDim, P::kQueries>(d_keys[0], gradients, q);
    WarpgroupEndGroup();
    WarpgroupWaitFor<1>(scores[0], d_values[0], kept);
    if (++tile == end_tile) tile = first_tile, ++h;
  }
  WarpgroupWaitFor<0>(d_keys[0], gradients);

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
  static constexpr int kBlocks = kDrops ? 1 : 2;  // of a multiprocessor

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

  PartsCopy<kDim, P::kKeys, kThreads> k_copy(qkv[row0 + first_tile * P::kKeys] + s.key_column(h / s.group()),
                                             qkv.stride);
  const auto copy_keys = [&](int tile, Place stage) {
    k_copy.StartHere(stage, s.sequence - tile * P::kKeys);
    k_copy.StartHere(stage + P::kKeyBytes, s.sequence - tile * P::kKeys, s.kv_heads * kDim);
    k_copy.Move(P::kKeys * qkv.stride);
  };
  using Copy = PartsCopy<kDim, P::kQueries, kThreads>;
  Copy(qkv[row0] + s.query_column(h), qkv.stride).Start(kQueryTile, query0, s.sequence);
  Copy(d_out[row0] + s.query_column(h), d_out.stride).Start(kGradientTile, query0, s.sequence);
  copy_keys(first_tile, P::kStages);
  AsyncCopiesEndGroup();

  const int lane = static_cast<int>(LaneId()), warp_row = static_cast<int>(threadIdx.x) / kWarpSize * kWarpRows;
  const int group_row = Warpgroup() * kWarpgroupRows;
  const int group_query = query0 + group_row, last_query = group_query + kWarpgroupRows - 1;  // of the warpgroup
  const int lane_query = query0 + warp_row + lane / 4, lane_key = 2 * (lane % 4);
  const Place queries = kQueryTile + kPartBytes<1> * group_row, d_o = kGradientTile + kPartBytes<1> * group_row;
  const RowStats<1> row(stats, bh, lane_query);
  Fragments<1, kDim / 8> sums;
  Clear<1, kDim / 8>(sums);
  Place stage = P::kStages, other = P::kStages + P::kStageBytes;
  for (int tile = first_tile; tile < end_tile; ++tile) {
    AsyncCopiesWait<0>();
    ShowToWarpgroups();
    __syncthreads();  // all have this tile, and none still reads the one before
    if (tile + 1 < end_tile) copy_keys(tile + 1, other);
    AsyncCopiesEndGroup();
    const int key0 = tile * P::kKeys;
    const Place keys = stage;
    stage = other, other = keys;
    if (key0 >= s.end_key(last_query) || key0 + P::kKeys <= s.first_key(group_query)) continue;  // nothing they see

    Fragments<1, kN> scores, dp;
    WarpgroupArrive();
    BeginTransposed<kDim, P::kQueries, kN>(scores[0], queries, keys);
    WarpgroupEndGroup();
    BeginTransposed<kDim, P::kQueries, kN>(dp[0], d_o, keys + P::kKeyBytes);
    WarpgroupEndGroup();
    WarpgroupWaitFor<1>(scores[0]);
    const bool some_hidden = key0 + P::kKeys > s.end_key(group_query) || key0 < s.first_key(last_query);
    Probabilities<1, kN>(scores, row, s, some_hidden, lane_query, key0 + lane_key);
    WarpgroupWaitFor<0>(dp[0]);
    Differentiate<kDrops, 1, kN>(scores, dp, row, s, s.first_element(bh), lane_query, key0 + lane_key);
    uint32_t gradients[kN / 2][4];
#pragma unroll
    for (int k = 0; k < kN / 2; ++k) {
      uint32_t packed[1][4];
      PackOperand<1, kN>(packed, scores, k);
#pragma unroll
      for (int i = 0; i < 4; ++i) gradients[k][i] = packed[0][i];
    }
    WarpgroupArrive(sums[0], gradients);
    BeginAdd<kDim, P::kKeys>(sums[0], gradients, keys);
    WarpgroupEndGroup();
    WarpgroupWaitFor<0>(sums[0], gradients);
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
