#pragma once
// Tiles of bf16 in shared memory and their products on tensor cores, for attention.
//
// A warp works on 16 kM rows of a product. Fragments are those of tensor_core.cuh; the product's element
// c[m][n][2 * half + i] of lane l is row 16 m + 8 half + l / 4, column 8 n + 2 (l % 4) + i. Such an accumulator,
// rounded to bf16, is already the A operand of the next product, so probabilities never leave registers.

#include <cstdint>

#include "kernels/cuda/attention_call.h"
#include "kernels/cuda/attention_ptx.cuh"
#include "kernels/cuda/dynamic_shared.cuh"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace holdfast::kernels {

inline constexpr float kLog2E = 1.4426950408889634f;

/// A place in dynamic shared memory, in bytes; tiles begin at multiples of 128.
using Place = uint32_t;

__device__ __forceinline__ unsigned char* Shared(Place at) { return DynamicShared<unsigned char>() + at; }

/// Rows of kDim bf16. The 16-byte chunks of a row are permuted by the row's number, so that eight rows' chunks of one
/// column lie in different banks: a row is a multiple of 64 bytes, and of 128 for most kDim. What begins at a multiple
/// of eight rows is a tile, too.
template <int kDim>
struct Tile {
  static_assert(kDim % 32 == 0);
  static constexpr uint32_t kRowBytes = kDim * 2;
  static constexpr uint32_t kChunks = kDim / 8;
  static constexpr uint32_t kSwapped = kRowBytes % 128 == 0 ? 7 : 3;  // bits of a chunk's number

  static __device__ __forceinline__ Place Offset(uint32_t row, uint32_t chunk) {
    const uint32_t swap = kSwapped == 7 ? row & 7 : row >> 1 & 3;
    return row * kRowBytes + ((chunk ^ swap) << 4);
  }

  /// From the place of a chunk 0 or 1 to that `chunk` (even) further. Constants, so that one lane's places in a tile
  /// cost few registers: most of it goes into the instruction.
  static __device__ __forceinline__ Place Move(Place at, uint32_t chunk) {
    return (at ^ (chunk & kSwapped) << 4) + ((chunk & ~kSwapped) << 4);
  }
};

__device__ __forceinline__ uint32_t LaneId() { return threadIdx.x % kWarpSize; }

/// Where a lane of ldmatrix points in a 16 x 16 part of a tile, so that the four matrices are its quarters in the order
/// (rows 0, chunk 0), (rows 8, chunk 0), (rows 0, chunk 1), (rows 8, chunk 1): an A operand, or transposed a B operand.
template <int kDim>
__device__ __forceinline__ Place LaneByRows() {
  return Tile<kDim>::Offset(LaneId() % 16, LaneId() / 16);
}
/// The second and third exchanged: a B operand.
template <int kDim>
__device__ __forceinline__ Place LaneByChunks() {
  return Tile<kDim>::Offset(LaneId() / 16 * 8 + LaneId() % 8, LaneId() / 8 % 2);
}

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
    if (Chunk() >= static_cast<int>(T::kChunks)) return;
    const Bf16* from = from_ + (first * stride_ + columns);
    const int rows = end - first - row_;
#pragma unroll
    for (int i = 0; i < kRows; i += kStep) {
      AsyncCopy16(Shared(tile + T::Offset(Row() + i, Chunk())), from, i < rows);
      from += kStep * stride_;
    }
  }

 private:
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

template <int kM, int kN>
using Fragments = float[kM][kN][4];

template <int kM, int kN>
__device__ __forceinline__ void Clear(Fragments<kM, kN>& c) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) c[m][n][i] = 0;
    }
  }
}

/// c[.][n] and c[.][n + 1] += a b, with b as one load of four matrices brings it.
template <int kM, int kN>
__device__ __forceinline__ void MmaTwoColumns(Fragments<kM, kN>& c, int n, const uint32_t (&a)[kM][4],
                                              const uint32_t (&b)[4]) {
  const uint32_t left[2] = {b[0], b[1]}, right[2] = {b[2], b[3]};
#pragma unroll
  for (int m = 0; m < kM; ++m) {
    MmaBf16(c[m][n], a[m], left);
    MmaBf16(c[m][n + 1], a[m], right);
  }
}

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

/// Writes c (16 kM, kDim) times factor[m][half], rounded to bf16, to `rows` rows from `first` on. `tile` is this
/// warp's own to pass them through, for whole 16-byte writes.
template <int kDim, int kM>
__device__ __forceinline__ void StoreRows(Bf16* first, int64_t stride, int rows, int head_dim, Place tile,
                                          const Fragments<kM, kDim / 8>& c, const float (&factor)[kM][2]) {
  using T = Tile<kDim>;
  const uint32_t lane = LaneId();
  __syncwarp();  // of what the tile held, everybody has read
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float x = factor[m][half];
        const uint32_t pair = PackBf16(c[m][n][2 * half] * x, c[m][n][2 * half + 1] * x);
        const Place at = tile + T::Offset(16 * m + 8 * half + lane / 4, n) + lane % 4 * 4;
        *reinterpret_cast<uint32_t*>(Shared(at)) = pair;
      }
    }
  }
  __syncwarp();
  for (uint32_t i = lane; i < 16 * kM * T::kChunks; i += kWarpSize) {
    const uint32_t row = i / T::kChunks, chunk = i % T::kChunks;
    if (static_cast<int>(row) >= rows || static_cast<int>(chunk) * 8 >= head_dim) continue;
    *reinterpret_cast<uint4*>(first + row * stride + chunk * 8) =
        *reinterpret_cast<const uint4*>(Shared(tile + T::Offset(row, chunk)));
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
