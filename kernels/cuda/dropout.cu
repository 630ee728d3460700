#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/dropout.cuh"
#include "kernels/cuda/packet.cuh"
#include "kernels/cuda/tile.cuh"

namespace holdfast::kernels {
namespace {

template <typename T, bool whole, bool add>
__global__ void DropoutKernel(Rows<T> out, Rows<const T> in, Tile tile, DropoutMask mask) {
  constexpr int n = kPacket<T>;
  const TileThread at(tile);
  if (at.is_empty()) return;
  Values<T, n> x[kTileRows], sum[kTileRows];
  at.ForLoads([&](int k, int64_t row) {
    x[k] = LoadPacket<whole, n>(in[row] + at.col(), at.count());
    if (add) sum[k] = LoadPacket<whole, n>(out[row] + at.col(), at.count());
  });
  at.ForStores([&](int k, int64_t row) {
    float y[n];
    ToFloats(y, x[k]);
    Drop<whole>(mask, row * tile.cols + at.col(), y);
    if (add) {
#pragma unroll
      for (int i = 0; i < n; ++i) y[i] += sum[k][i];
    }
    StorePacket<whole>(out[row] + at.col(), y, at.count());
  });
}

template <bool add>
void LaunchDropout(CudaQueue& queue, const char* name, const Matrix& out, const ConstMatrix& in,
                   const Dropout& dropout) {
  WithElement(in.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int n = kPacket<T>;
    const auto to = RowsOf<T>(out);
    const auto from = RowsOf<T>(in);
    const Tile tile = TileOf(in.rows, in.cols, n);
    WithFlag(AllWhole<n>(in.cols, to, from), [&](auto whole) {
      Launch(queue, name, tile.grid(), DropoutKernel<T, whole.value, add>, to, from, tile, MaskOf(dropout));
    });
  });
}

}  // namespace

void CudaOps::ApplyDropout(Matrix out, ConstMatrix in, const Dropout& dropout) {
  LaunchDropout<false>(queue_, "ApplyDropout", out, in, dropout);
}

void CudaOps::AddDropout(Matrix sum, ConstMatrix in, const Dropout& dropout) {
  LaunchDropout<true>(queue_, "AddDropout", sum, in, dropout);
}

}  // namespace holdfast::kernels
