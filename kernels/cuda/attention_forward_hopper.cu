// The forward pass on Hopper's own matrix instructions: as in attention_forward.cu, but the products of 64 queries are
// those of a warpgroup, which read keys and values from shared memory by themselves, once for all of them. Two
// warpgroups share a tile; while one does its softmax, products of the other run, and of the other block.

#include "kernels/cuda/attention_hopper.cuh"
#include "kernels/cuda/attention_hopper.h"
#include "kernels/cuda/attention_queue.cuh"
#include "kernels/cuda/attention_softmax.cuh"

namespace holdfast::kernels {
namespace {

constexpr int kWarpgroups = 2;
constexpr int kThreads = kWarpgroups * 128;

template <int kDim>
struct Plan {
  static constexpr int kQueries = kWarpgroups * kWarpgroupRows;
  static constexpr int kKeys = kDim <= 64 ? 64 : 128;
  static constexpr int kBlocks = kDim <= 64 ? 2 : 1;  // of a multiprocessor

  static constexpr int kKeyBytes = kTileBytes<kKeys, kDim>;
  static constexpr int kStageBytes = 2 * kKeyBytes;  // keys and values
  static constexpr int kStages = kTileBytes<kQueries, kDim>;
  static constexpr int kSharedBytes = kStages + 2 * kStageBytes;
  static_assert(kBlocks * (kSharedBytes + 1024) <= 228 << 10);
};

template <int kDim, bool kDrops, class Sizes>
__global__ void __launch_bounds__(kThreads, Plan<kDim>::kBlocks)
    HopperForwardKernel(Rows<Bf16> out, float* lse, Rows<const Bf16> qkv, int tiles, int num_heads, Sizes all) {
  using P = Plan<kDim>;
  constexpr int kKeys = P::kKeys, kN = kKeys / 8;

  // The longest blocks first. Neighbours share keys and values.
  const int bh = static_cast<int>(blockIdx.x) % num_heads, b = bh / all.heads, h = bh % all.heads;
  const auto& s = all.OfSequence(b);
  const int query0 = (tiles - 1 - static_cast<int>(blockIdx.x) / num_heads) * P::kQueries;
  const int last_query = min(query0 + P::kQueries, s.sequence) - 1;
  const int first_tile = s.first_key(query0) / kKeys;
  const int end_tile = (s.end_key(last_query) + kKeys - 1) / kKeys;
  const int64_t row0 = int64_t{b} * s.sequence;

  const PartsCopy<kDim, kKeys, kThreads> k_copy(qkv[row0] + s.key_column(h / s.group()), qkv.stride);
  const auto copy_keys = [&](int tile) {
    const Place stage = P::kStages + tile % 2 * P::kStageBytes;
    k_copy.Start(stage, tile * kKeys, s.sequence);
    k_copy.Start(stage + P::kKeyBytes, tile * kKeys, s.sequence, s.kv_heads * kDim);
  };
  const PartsCopy<kDim, P::kQueries, kThreads> q_copy(qkv[row0] + s.query_column(h), qkv.stride);
  q_copy.Start(0, query0, s.sequence);
  copy_keys(first_tile);
  AsyncCopiesEndGroup();

  const int lane = static_cast<int>(LaneId()), warp_row = static_cast<int>(threadIdx.x) / kWarpSize * kWarpRows;
  const int warp_query = query0 + warp_row, lane_query = warp_query + lane / 4, lane_key = 2 * (lane % 4);
  const int group_row = Warpgroup() * kWarpgroupRows, group_query = query0 + group_row;  // the warpgroup's first
  // Every product reads them from there. Registers that hold operands for the whole loop ptxas 13.0 also gives to the
  // probabilities, which destroy them (seen in its code, and as wrong sums on an H200).
  const Place queries = kPartBytes<1> * group_row;

  const float scale_log2 = s.scale * kLog2E;
  Softmax<1> softmax;
  Fragments<1, kDim / 8> sums;
  Clear<1, kDim / 8>(sums);
  for (int tile = first_tile; tile < end_tile; ++tile) {
    AsyncCopiesWait<0>();
    ShowToWarpgroups();
    __syncthreads();  // all have this tile, and none still reads the one before
    if (tile + 1 < end_tile) copy_keys(tile + 1);
    AsyncCopiesEndGroup();
    const int key0 = tile * kKeys;
    // Nothing that this warpgroup's queries see.
    if (key0 >= s.end_key(group_query + kWarpgroupRows - 1) || key0 + kKeys <= s.first_key(group_query)) continue;
    const Place stage = P::kStages + tile % 2 * P::kStageBytes;

    Fragments<1, kN> scores;
    WarpgroupArrive();
    BeginTransposed<kDim, P::kQueries, kN>(scores[0], queries, stage);
    WarpgroupWait(scores[0]);
    if (key0 + kKeys > s.end_key(warp_query) || key0 < s.first_key(warp_query + kWarpRows - 1)) {
      HideKeys<1, kN>(scores, s, lane_query, key0 + lane_key);
    }
    softmax.template Raise<kN, kDim / 8>(scores, sums, scale_log2);
    uint32_t probabilities[kKeys / 16][4];
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
      softmax.template Exponentials<kN>(scores, k, scale_log2);
      if (kDrops) Drop<1, kN>(scores, k, s, s.first_element(bh), lane_query, key0 + lane_key);
      uint32_t packed[1][4];
      PackOperand<1, kN>(packed, scores, k);
#pragma unroll
      for (int i = 0; i < 4; ++i) probabilities[k][i] = packed[0][i];
    }
    WarpgroupArrive(sums[0], probabilities);
    BeginAdd<kDim, kKeys>(sums[0], probabilities, stage + P::kKeyBytes);
    WarpgroupWait(sums[0], probabilities);
  }

  softmax.SumLanes();
  float normalize[1][2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = lane_query + 8 * half;
    normalize[0][half] = (kDrops ? s.drop_scale : 1.0f) / softmax.sum[0][half];
    if (query < s.sequence && lane % 4 == 0) {
      lse[int64_t{bh} * s.sequence + query] = fmaf(softmax.max[0][half], s.scale, logf(softmax.sum[0][half]));
    }
  }
  __syncthreads();  // the queries are read by nobody any more: their memory is each warp's own
  StoreRows<kDim, 1>(out[row0 + warp_query] + s.query_column(h), out.stride, s.sequence - warp_query, kDim,
                     static_cast<Place>(warp_row * Tile<kDim>::kRowBytes), sums, normalize);
}

template <int kDim>
void Queue(CudaQueue& queue, const AttentionForwardCall& call) {
  WithVariant(call.sizes, [&](auto drops, auto sizes) {
    using P = Plan<kDim>;
    QueueAttentionForward(queue, call, {P::kQueries, kThreads, P::kSharedBytes},
                          HopperForwardKernel<kDim, drops.value, decltype(sizes)>);
  });
}

}  // namespace

bool HasHopperAttention(CudaQueue& queue) {
  queue.stream();  // makes its GPU the thread's
  cudaFuncAttributes attributes{};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, HopperForwardKernel<64, false, AttentionSizes>);
  if (error != cudaSuccess) cudaGetLastError();  // is no error of what comes next
  if (error == cudaErrorMemoryAllocation) queue.Fail("loading attention's kernels", cudaGetErrorString(error));
  return error == cudaSuccess;
}

void AttentionForwardHopper(CudaQueue& queue, const AttentionForwardCall& call) {
  call.sizes.head_dim == 64 ? Queue<64>(queue, call) : Queue<128>(queue, call);
}

}  // namespace holdfast::kernels
