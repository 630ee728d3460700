#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/packet.cuh"
#include "kernels/cuda/tile.cuh"
#include "kernels/philox.h"

namespace holdfast::kernels {
namespace {

template <typename T, bool whole>
__global__ void JitterKernel(Rows<float> out, Rows<const T> in, Tile tile, RandomKey key, float range) {
  constexpr int n = kPacket<T>;
  const TileThread at(tile);
  if (at.is_empty()) return;
  Values<T, n> x[kTileRows];
  at.ForLoads([&](int k, int64_t row) { x[k] = LoadPacket<whole, n>(in[row] + at.col(), at.count()); });
  at.ForStores([&](int k, int64_t row) {
    float y[n];
#pragma unroll
    for (int i = 0; i < n; i += 4) {
      const auto e = static_cast<uint64_t>(row * tile.cols + at.col() + i);
      Philox4 words;
      if constexpr (whole) {  // packets start at a multiple of four
        words = Philox(key, e / 4);
      } else {
        for (int j = 0; j < 4; ++j) words.v[j] = PhiloxWord(key, e + static_cast<uint64_t>(j));
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) y[i + j] = x[k][i + j] * JitterFactor(words.v[j], range);
    }
    StorePacket<whole>(out[row] + at.col(), y, at.count());
  });
}

}  // namespace

void CudaOps::Jitter(Matrix out, ConstMatrix in, float range, const RandomKey& key) {
  WithElement(in.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int n = kPacket<T>;
    const auto to = RowsOf<float>(out);
    const auto from = RowsOf<T>(in);
    const Tile tile = TileOf(in.rows, in.cols, n);
    WithFlag(AllWhole<n>(in.cols, to, from), [&](auto whole) {
      Launch(queue_, "Jitter", tile.grid(), JitterKernel<T, whole.value>, to, from, tile, key, range);
    });
  });
}

}  // namespace holdfast::kernels
