#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/packet.cuh"
#include "kernels/cuda/tile.cuh"

namespace holdfast::kernels {
namespace {

template <typename T, bool whole>
__global__ void ClipKernel(Rows<T> out, Rows<const T> in, Tile tile, float limit) {
  constexpr int n = kPacket<T>;
  const TileThread at(tile);
  if (at.is_empty()) return;
  Values<T, n> x[kTileRows];
  at.ForLoads([&](int k, int64_t row) { x[k] = LoadPacket<whole, n>(in[row] + at.col(), at.count()); });
  at.ForStores([&](int k, int64_t row) {
    float y[n];
#pragma unroll
    for (int i = 0; i < n; ++i) y[i] = x[k][i] > limit ? limit : x[k][i] < -limit ? -limit : x[k][i];
    StorePacket<whole>(out[row] + at.col(), y, at.count());
  });
}

template <typename T, bool whole>
__global__ void ClipBackwardKernel(Rows<T> d, Rows<const T> in, Tile tile, float limit) {
  constexpr int n = kPacket<T>;
  const TileThread at(tile);
  if (at.is_empty()) return;
  Values<T, n> x[kTileRows], dy[kTileRows];
  at.ForLoads([&](int k, int64_t row) {
    x[k] = LoadPacket<whole, n>(in[row] + at.col(), at.count());
    dy[k] = LoadPacket<whole, n>(d[row] + at.col(), at.count());
  });
  at.ForStores([&](int k, int64_t row) {
    float dx[n];
#pragma unroll
    for (int i = 0; i < n; ++i) dx[i] = fabsf(x[k][i]) < limit ? dy[k][i] : 0.0f;
    StorePacket<whole>(d[row] + at.col(), dx, at.count());
  });
}

/// Calls launch(element type, whether rows are whole packets).
template <typename LaunchOne>
void ForElements(const Matrix& out, const ConstMatrix& in, LaunchOne&& launch) {
  WithElement(in.dtype, [&](auto element) {
    using T = decltype(element);
    WithFlag(AllWhole<kPacket<T>>(in.cols, RowsOf<T>(out), RowsOf<T>(in)), [&](auto whole) { launch(element, whole); });
  });
}

}  // namespace

void CudaOps::Clip(Matrix out, ConstMatrix in, float limit) {
  ForElements(out, in, [&](auto element, auto whole) {
    using T = decltype(element);
    const Tile tile = TileOf(in.rows, in.cols, kPacket<T>);
    Launch(queue_, "Clip", tile.grid(), ClipKernel<T, whole.value>, RowsOf<T>(out), RowsOf<T>(in), tile, limit);
  });
}

void CudaOps::ClipBackward(Matrix d, ConstMatrix in, float limit) {
  ForElements(d, in, [&](auto element, auto whole) {
    using T = decltype(element);
    const Tile tile = TileOf(in.rows, in.cols, kPacket<T>);
    Launch(queue_, "ClipBackward", tile.grid(), ClipBackwardKernel<T, whole.value>, RowsOf<T>(d), RowsOf<T>(in), tile,
           limit);
  });
}

}  // namespace holdfast::kernels
