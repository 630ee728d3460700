#pragma once
// Tiles of bf16 in shared memory and their products on tensor cores.
//
// A warp works on 16 kM rows of a product. Fragments are those of tensor_core.cuh; the product's element
// c[m][n][2 * half + i] of lane l is row 16 m + 8 half + l / 4, column 8 n + 2 (l % 4) + i.

#include <cstdint>

#include "kernels/cuda/dynamic_shared.cuh"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace holdfast::kernels {

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

/// Writes c (16 kM, kDim) times factor[m][half], rounded to bf16, to `rows` rows of `cols` from `first` on. `tile` is
/// this warp's own to pass them through, for whole 16-byte writes.
template <int kDim, int kM>
__device__ __forceinline__ void StoreRows(Bf16* first, int64_t stride, int rows, int cols, Place tile,
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
    if (static_cast<int>(row) >= rows || static_cast<int>(chunk) * 8 >= cols) continue;
    *reinterpret_cast<uint4*>(first + row * stride + chunk * 8) =
        *reinterpret_cast<const uint4*>(Shared(tile + T::Offset(row, chunk)));
  }
}

}  // namespace holdfast::kernels
