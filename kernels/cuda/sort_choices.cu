// The choices of all rows in the order of their experts: a stable counting sort. Blocks count the experts of their
// part of the choices; one block makes of that where each part's choices of each expert begin; each block places its
// own. Only integers are added by atomics, so the order they come in decides nothing. Where experts have a capacity,
// each choice then finds its rank among those of its expert, and all are sorted again, with one expert more that takes
// what is dropped.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/dynamic_shared.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"

namespace holdfast::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kPart = 4 * kThreads;  // choices of a block
constexpr int kPartsAhead = 16;

struct Sorting {
  SortedChoices out;
  const int32_t* experts;
  int32_t* counts;  // (parts, E): of each expert in a part, then how many there are in the parts before it
  int num_choices, num_experts, parts;
  bool last_drops;  // the last expert takes what is dropped
};

__global__ void CountKernel(Sorting s) {
  auto* counts = DynamicShared<int>();  // (E)
  const int first = static_cast<int>(blockIdx.x) * kPart, thread = static_cast<int>(threadIdx.x);
  for (int e = thread; e < s.num_experts; e += kThreads) counts[e] = 0;
  __syncthreads();
  for (int c = first + thread; c < min(first + kPart, s.num_choices); c += kThreads) {
    atomicAdd(&counts[s.experts[c]], 1);
  }
  __syncthreads();
  int32_t* out = s.counts + int64_t{blockIdx.x} * s.num_experts;
  for (int e = thread; e < s.num_experts; e += kThreads) out[e] = counts[e];
}

/// Sum of the values of the threads before this one; `total` of all. Any block of kThreads; all call it.
__device__ __forceinline__ int SumBefore(int value, int& total) {
  __shared__ int of_warp[kWarps];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  int up_to_here = value;
  for (int offset = 1; offset < kWarpSize; offset *= 2) {
    const int below = __shfl_up_sync(kWholeWarp, up_to_here, static_cast<unsigned>(offset));
    if (lane >= offset) up_to_here += below;
  }
  __syncthreads();  // of an earlier call everybody has read
  if (lane == kWarpSize - 1) of_warp[warp] = up_to_here;
  __syncthreads();
  int before = up_to_here - value;
  total = 0;
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) before += of_warp[w];
    total += of_warp[w];
  }
  return before;
}

// One block.
__global__ void OffsetsKernel(Sorting s) {
  int before = 0;  // choices of the experts of earlier rounds
  for (int first = 0; first < s.num_experts; first += kThreads) {
    const int e = first + static_cast<int>(threadIdx.x);
    int count = 0;
    if (e < s.num_experts) {
      for (int first_part = 0; first_part < s.parts; first_part += kPartsAhead) {
        int here[kPartsAhead];  // loaded before any is written, or each would wait for the one before
#pragma unroll
        for (int k = 0; k < kPartsAhead; ++k) {
          here[k] = first_part + k < s.parts ? s.counts[int64_t{first_part + k} * s.num_experts + e] : 0;
        }
#pragma unroll
        for (int k = 0; k < kPartsAhead; ++k) {
          if (first_part + k < s.parts) s.counts[int64_t{first_part + k} * s.num_experts + e] = count;
          count += here[k];
        }
      }
    }
    int total = 0;
    const int offset = before + SumBefore(count, total);
    if (e < s.num_experts) s.out.offsets[e] = offset;
    if (e < s.num_experts && s.out.counts != nullptr) s.out.counts[e] = count;
    before += total;
  }
  if (threadIdx.x == 0 && !s.last_drops) s.out.offsets[s.num_experts] = before;
}

// Warps take turns, so that choices are placed in their order.
__global__ void PlaceKernel(Sorting s) {
  auto* next = DynamicShared<int>();  // (E): the slot of the next choice
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarpSize, warp = thread / kWarpSize;
  const int32_t* earlier = s.counts + int64_t{blockIdx.x} * s.num_experts;
  for (int e = thread; e < s.num_experts; e += kThreads) next[e] = s.out.offsets[e] + earlier[e];
  const int first = static_cast<int>(blockIdx.x) * kPart, end = min(first + kPart, s.num_choices);
  for (int turn = 0; turn < kPart / kWarpSize; ++turn) {
    __syncthreads();  // what the warp before has placed is counted
    const int start = first + turn * kWarpSize;
    if (start >= end) return;  // the whole block
    if (turn % kWarps != warp) continue;
    const int c = start + lane, expert = c < end ? s.experts[c] : s.num_experts;
    const unsigned same = __match_any_sync(kWholeWarp, expert);
    const int rank = __popc(same & ((1u << lane) - 1));
    const int slot = c < end ? next[expert] + rank : 0;
    __syncwarp();  // all have read
    if (c >= end) continue;
    s.out.choices[slot] = c;
    s.out.slot_of[c] = slot;
    if (same >> lane == 1) next[expert] = slot + 1;  // its last one
  }
}

__device__ __forceinline__ float WeightRank(float weight) { return weight == weight ? weight : -INFINITY; }

/// The expert of each choice into `kept`, or where it has no room the number after the last one's. What comes before a
/// choice has a larger weight, or the same and a lower slot.
__global__ void DropKernel(Sorting s, int32_t* kept, const float* weights, int capacity) {
  const int slot = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (slot >= s.num_choices) return;
  const int c = s.out.choices[slot], expert = s.experts[c];
  const int first = s.out.offsets[expert], end = s.out.offsets[expert + 1];
  int before = 0;
  if (end - first > capacity) {
    const float weight = WeightRank(weights[c]);
    for (int other = first; other < end; ++other) {
      const float rank = WeightRank(weights[s.out.choices[other]]);
      before += rank > weight || (rank == weight && other < slot) ? 1 : 0;
    }
  }
  kept[c] = before < capacity ? expert : s.num_experts;
}

void Sort(CudaQueue& queue, const Sorting& sorting) {
  const Grid grid = {.blocks = static_cast<unsigned>(sorting.parts),
                     .threads = kThreads,
                     .shared_bytes = static_cast<size_t>(sorting.num_experts) * sizeof(int32_t)};
  Launch(queue, "SortChoices", grid, CountKernel, sorting);
  Launch(queue, "SortChoices", {.blocks = 1, .threads = kThreads}, OffsetsKernel, sorting);
  Launch(queue, "SortChoices", grid, PlaceKernel, sorting);
}

}  // namespace

void CudaOps::SortChoices(const SortedChoices& out, const int32_t* experts, const float* weights, int64_t rows,
                          const RouterShape& shape) {
  const int64_t num_choices = rows * shape.chosen, words = shape.num_experts + (shape.capacity > 0 ? 1 : 0);
  const int64_t parts = std::max<int64_t>(Blocks(num_choices, kPart), 1);
  auto* counts = static_cast<int32_t*>(
      queue_.Scratch(static_cast<size_t>(parts * words + (shape.capacity > 0 ? num_choices : 0)) * sizeof(int32_t)));
  if (counts == nullptr) return;
  Sorting sorting = {.out = out,
                     .experts = experts,
                     .counts = counts,
                     .num_choices = static_cast<int>(num_choices),
                     .num_experts = static_cast<int>(shape.num_experts),
                     .parts = static_cast<int>(parts),
                     .last_drops = false};
  Sort(queue_, sorting);
  if (shape.capacity == 0 || num_choices == 0) return;
  int32_t* kept = counts + parts * words;
  Launch(queue_, "SortChoices", {.blocks = Blocks(num_choices, kThreads), .threads = kThreads}, DropKernel, sorting,
         kept, weights, static_cast<int>(std::min(shape.capacity, num_choices)));
  sorting.experts = kept;
  sorting.out.counts = nullptr;
  ++sorting.num_experts;
  sorting.last_drops = true;
  Sort(queue_, sorting);
}

}  // namespace holdfast::kernels
