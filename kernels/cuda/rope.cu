#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/packet.cuh"
#include "kernels/cuda/tile.cuh"

namespace holdfast::kernels {
namespace {

// A tile's columns are the pairs of all heads, (H D / 2), D columns of each being turned. (a, b) = (x[i], x[i + D/2])
// becomes (a cos - b sin, b cos + a sin); the inverse has -sin. A packet lies in one head if it divides D/2; otherwise
// it is one pair.
template <typename T, bool whole, int n>
__global__ void RopeKernel(Rows<T> x, const float* cos_sin, Tile tile, int64_t half, int64_t width, Positions positions,
                           float sign) {
  const TileThread at(tile);
  if (at.is_empty()) return;
  const int64_t head = static_cast<uint32_t>(at.col()) / static_cast<uint32_t>(half), i = at.col() - head * half;
  const int64_t col = head * width + i;
  Values<T, n> first[kTileRows], second[kTileRows];
  at.ForLoads([&](int k, int64_t row) {
    first[k] = LoadPacket<whole, n>(x[row] + col, n);
    second[k] = LoadPacket<whole, n>(x[row] + col + half, n);
  });
  at.ForStores([&](int k, int64_t row) {
    const float* table = cos_sin + PositionOf(positions, row) * 2 * half + i;
    const auto cosine = LoadPacket<whole, n>(table, n), sine = LoadPacket<whole, n>(table + half, n);
    float a[n], b[n];
#pragma unroll
    for (int j = 0; j < n; ++j) {
      const float from_a = first[k][j], from_b = second[k][j], s = sine[j] * sign;
      a[j] = fmaf(-from_b, s, from_a * cosine[j]);
      b[j] = fmaf(from_a, s, from_b * cosine[j]);
    }
    StorePacket<whole>(x[row] + col, a, n);
    StorePacket<whole>(x[row] + col + half, b, n);
  });
}

}  // namespace

void CudaOps::Rope(Matrix x, const float* cos_sin, const RotaryHeads& heads, const Positions& positions, bool inverse) {
  WithElement(x.dtype, [&](auto element) {
    using T = decltype(element);
    const auto rows = RowsOf<T>(x);
    const int64_t half = heads.turned / 2, width = heads.width;
    const bool fits = width % kPacket<T> == 0 && AllWhole<kPacket<T>>(half, rows, OneRow(cos_sin));
    WithFlag(fits, [&](auto whole) {
      constexpr int n = whole.value ? kPacket<T> : 1;
      const Tile tile = TileOf(x.rows, heads.count * half, n);
      Launch(queue_, "Rope", tile.grid(), RopeKernel<T, whole.value, n>, rows, cos_sin, tile, half, width, positions,
             inverse ? -1.0f : 1.0f);
    });
  });
}

}  // namespace holdfast::kernels
