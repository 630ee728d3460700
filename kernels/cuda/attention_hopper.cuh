#pragma once
// Products of tiles by warpgroups, as attention needs them. A tile of kRows rows of a head lies in shared memory in
// parts of 64 columns, one after the other; a lane has fragments as it has of a warp's own products
// (attention_tile.cuh) with kM = 1.

#include <cstdint>

#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/warpgroup.cuh"

namespace holdfast::kernels {

template <int kRows>
inline constexpr int kPartBytes = kRows* static_cast<int>(Tile<64>::kRowBytes);
template <int kRows, int kDim>
inline constexpr int kTileBytes = kDim / 64 * kPartBytes<kRows>;

/// Copies tiles of a head of kDim columns, by a block of kThreads.
template <int kDim, int kRows, int kThreads>
class PartsCopy {
 public:
  /// `head` is the head's first element in row 0.
  __device__ __forceinline__ PartsCopy(const Bf16* head, int64_t stride) : copy_(head, stride, 64) {}

  /// As TileCopy's.
  __device__ __forceinline__ void Start(Place tile, int first, int end, int columns = 0) const {
#pragma unroll
    for (int part = 0; part < kDim / 64; ++part) {
      copy_.Start(tile + part * kPartBytes<kRows>, first, end, columns + 64 * part);
    }
  }

  __device__ __forceinline__ void Move(int64_t elements) { copy_.Move(elements); }
  __device__ __forceinline__ void StartHere(Place tile, int rows, int columns = 0) const {
#pragma unroll
    for (int part = 0; part < kDim / 64; ++part) {
      copy_.StartHere(tile + part * kPartBytes<kRows>, rows, columns + 64 * part);
    }
  }

 private:
  TileCopy<64, kRows, kThreads> copy_;
};

/// Begins c (64, 8 kN) = a (64, kDim) b^T, b (8 kN, kDim) a tile and a the rows from `a` on, a place in a tile of
/// kRows.
template <int kDim, int kRows, int kN>
__device__ __forceinline__ void BeginTransposed(float (&c)[kN][4], Place a, Place tile) {
  const uint64_t left = MatrixDescriptor(Shared(a), 0), right = MatrixDescriptor(Shared(tile), 0);
#pragma unroll
  for (int k = 0; k < kDim / 16; ++k) {
    WarpgroupMultiply(c, Further(left, k / 4 * kPartBytes<kRows> + k % 4 * 32),
                      Further(right, k / 4 * kPartBytes<8 * kN> + k % 4 * 32), k > 0);
  }
}

/// Begins c (64, kDim) += a (64, kRows) b, b (kRows, kDim) a tile.
template <int kDim, int kRows>
__device__ __forceinline__ void BeginAdd(float (&c)[kDim / 8][4], const uint32_t (&a)[kRows / 16][4], Place tile) {
  const uint64_t b = MatrixDescriptor(Shared(tile), kPartBytes<kRows>);
#pragma unroll
  for (int k = 0; k < kRows / 16; ++k) {
    WarpgroupMultiply<BLayout::kRows>(c, a[k], Further(b, kPartBytes<16> * k), true);
  }
}

}  // namespace holdfast::kernels
