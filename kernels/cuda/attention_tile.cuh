#pragma once
// Products of tiles as attention needs them. An accumulator, rounded to bf16, is already the A operand of the next
// product, so probabilities never leave registers.

#include <cstdint>

#include "kernels/cuda/attention_call.h"
#include "kernels/cuda/attention_ptx.cuh"
#include "kernels/cuda/matrix_tile.cuh"

namespace holdfast::kernels {

inline constexpr float kLog2E = 1.4426950408889634f;

/// Copies tiles of kRows rows of one head of a matrix into shared memory, by a block of kThreads.
template <int kDim, int kRows, int kThreads>
class TileCopy {
 public:
  /// `head` is the head's first element in row 0.
  __device__ __forceinline__ TileCopy(const Bf16* head, int64_t stride, int head_dim)
      : from_(head + Row() * stride + Chunk() * 8), stride_(stride), row_(Chunk() * 8 < head_dim ? Row() : kNone) {}

  /// Starts copying rows from `first` on, of the head `columns` further; what is beyond row `end` or the head's size
  /// becomes 0.
  __device__ __forceinline__ void Start(Place tile, int first, int end, int columns = 0) const {
    StartFrom(from_ + (first * stride_ + columns), tile, end - first);
  }

  /// Moves on by `elements`: StartHere copies what it has come to, of which there are `rows`.
  __device__ __forceinline__ void Move(int64_t elements) { from_ += elements; }
  __device__ __forceinline__ void StartHere(Place tile, int rows, int columns = 0) const {
    StartFrom(from_ + columns, tile, rows);
  }

 private:
  __device__ __forceinline__ void StartFrom(const Bf16* from, Place tile, int rows) const {
    if (Chunk() >= static_cast<int>(T::kChunks)) return;
    rows -= row_;
#pragma unroll
    for (int i = 0; i < kRows; i += kStep) {
      AsyncCopy16(Shared(tile + T::Offset(Row() + i, Chunk())), from, i < rows);
      from += kStep * stride_;
    }
  }

  using T = Tile<kDim>;
  static constexpr int kLanes = T::kChunks <= 8 ? 8 : T::kChunks <= 16 ? 16 : 32;  // of a row; at kDim = 96 some idle
  static constexpr int kStep = kThreads / kLanes;
  static constexpr int kNone = 1 << 30;
  static_assert(kRows % kStep == 0);

  static __device__ __forceinline__ int Chunk() { return static_cast<int>(threadIdx.x) % kLanes; }
  static __device__ __forceinline__ int Row() { return static_cast<int>(threadIdx.x) / kLanes; }

  const Bf16* from_;
  int64_t stride_;
  int row_;  // of this thread's first chunk; kNone if it is beyond the head's size
};

/// c (16 kM, 8 kN) = a (16 kM, kDim) b (8 kN, kDim)^T, both tiles.
template <int kDim, int kM, int kN>
__device__ __forceinline__ void MultiplyTransposed(Fragments<kM, kN>& c, Place a, Place b) {
  using T = Tile<kDim>;
  a = Opaque(a + LaneByRows<kDim>());
  b += LaneByChunks<kDim>();
  Clear<kM, kN>(c);
#pragma unroll
  for (int k = 0; k < kDim / 16; ++k) {
    uint32_t rows[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) LoadMatrices(rows[m], Shared(T::Move(a, 2 * k) + 16 * m * T::kRowBytes));
#pragma unroll
    for (int n = 0; n < kN; n += 2) {
      uint32_t columns[4];
      LoadMatrices(columns, Shared(T::Move(b, 2 * k) + 8 * n * T::kRowBytes));
      MmaTwoColumns<kM, kN>(c, n, rows, columns);
    }
  }
}

/// c (16 kM, kDim) += a (16 kM, 16) b (16, kDim), b sixteen rows of a tile.
template <int kDim, int kM>
__device__ __forceinline__ void MultiplyAdd(Fragments<kM, kDim / 8>& c, const uint32_t (&a)[kM][4], Place b) {
  b += LaneByRows<kDim>();
#pragma unroll
  for (int n = 0; n < kDim / 8; n += 2) {
    uint32_t columns[4];
    LoadMatricesTransposed(columns, Shared(Tile<kDim>::Move(b, n)));
    MmaTwoColumns<kM, kDim / 8>(c, n, a, columns);
  }
}

/// Columns 16 k .. 16 k + 15 of c as an A operand.
template <int kM, int kN>
__device__ __forceinline__ void PackOperand(uint32_t (&a)[kM][4], const Fragments<kM, kN>& c, int k) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const float(&from)[4] = c[m][2 * k + r / 2];
      a[m][r] = PackBf16(from[r % 2 * 2], from[r % 2 * 2 + 1]);
    }
  }
}

/// Bit i says whether element i of four consecutive ones is kept; `element` is a multiple of 4.
__device__ __forceinline__ unsigned KeepsFour(const AttentionSizes& s, uint64_t element) {
  const Philox4 words = Philox(s.drop_key, element / 4);
  unsigned bits = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) bits |= words.v[i] >= s.drop_threshold ? 1u << i : 0u;
  return bits;
}

/// Bit 0: element `element` is kept.
__device__ __forceinline__ unsigned Keeps(const AttentionSizes& s, uint64_t element) {
  return KeepsFour(s, element / 4 * 4) >> (element % 4) & 1u;
}

/// Bit i says whether element i of a lane's fragment is kept, whose rows are queries: (query, key), (query, key + 1),
/// (query + 8, key), (query + 8, key + 1). `first` is the head's first element. Whole warps call it.
///
/// Where blocks of random numbers do not straddle rows, two neighbouring lanes share the two blocks of their elements:
/// each computes one.
__device__ __forceinline__ unsigned KeepsOfQueryRows(const AttentionSizes& s, uint64_t first, int query, int key) {
  const auto element = [&](int i, int j) {
    return first + static_cast<uint64_t>(i) * static_cast<uint64_t>(s.sequence) + static_cast<uint64_t>(j);
  };
  if (s.sequence % 4 != 0) {
    unsigned bits = 0;
#pragma unroll 1
    for (int i = 0; i < 4; ++i) bits |= Keeps(s, element(query + i / 2 * 8, key + i % 2)) << i;
    return bits;
  }
  const bool odd = LaneId() % 2 != 0;
  const unsigned mine = KeepsFour(s, odd ? element(query + 8, key - 2) : element(query, key));
  const unsigned other = __shfl_xor_sync(kWholeWarp, mine, 1);
  return odd ? other >> 2 | (mine & 12u) : (mine & 3u) | (other & 3u) << 2;
}

/// The same for a fragment whose rows are keys: (key, query), (key, query + 1), (key + 8, query), (key + 8, query + 1).
/// Here four lanes share the four blocks of their elements.
__device__ __forceinline__ unsigned KeepsOfKeyRows(const AttentionSizes& s, uint64_t first, int key, int query) {
  const auto element = [&](int i, int j) {
    return first + static_cast<uint64_t>(i) * static_cast<uint64_t>(s.sequence) + static_cast<uint64_t>(j);
  };
  if (s.sequence % 4 != 0) {
    unsigned bits = 0;
#pragma unroll 1
    for (int i = 0; i < 4; ++i) bits |= Keeps(s, element(query + i % 2, key + i / 2 * 8)) << i;
    return bits;
  }
  const int place = static_cast<int>(LaneId()) / 4 % 4;  // among the four, and in each block
  unsigned all = KeepsFour(s, element(query + place % 2, key - place + place / 2 * 8)) << 4 * place;
  all |= __shfl_xor_sync(kWholeWarp, all, 4);
  all |= __shfl_xor_sync(kWholeWarp, all, 8);
  unsigned bits = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) bits |= (all >> (4 * i + place) & 1u) << i;
  return bits;
}

}  // namespace holdfast::kernels
