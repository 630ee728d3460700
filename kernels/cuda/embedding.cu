#include <cstdint>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/dropout.cuh"
#include "kernels/cuda/packet.cuh"
#include "kernels/cuda/tile.cuh"

namespace holdfast::kernels {
namespace {

template <typename T, typename Table>
struct ForwardArgs {
  Rows<T> out;
  const int32_t* tokens;
  Rows<const Table> token_table, position_table;
  Positions positions;
  float scale;
};

// Packets of eight, whatever the types.
template <typename T, typename Table, bool whole>
__global__ void EmbeddingForwardKernel(ForwardArgs<T, Table> a, Tile tile, DropoutMask mask) {
  constexpr int n = kPacket<Bf16>;
  const TileThread at(tile);
  if (at.is_empty()) return;
  int32_t tokens[kTileRows];
  Values<Table, n> token[kTileRows], position[kTileRows] = {};
  at.ForLoads([&](int k, int64_t row) { tokens[k] = a.tokens[row]; });
  at.ForLoads(
      [&](int k, int64_t) { token[k] = LoadPacket<whole, n>(a.token_table[tokens[k]] + at.col(), at.count()); });
  const bool adds = a.position_table.data != nullptr;
  if (adds) {
    at.ForLoads([&](int k, int64_t row) {
      position[k] = LoadPacket<whole, n>(a.position_table[PositionOf(a.positions, row)] + at.col(), at.count());
    });
  }
  at.ForStores([&](int k, int64_t row) {
    float x[n];
#pragma unroll
    for (int i = 0; i < n; ++i) x[i] = adds ? fmaf(token[k][i], a.scale, position[k][i]) : token[k][i] * a.scale;
    Drop<whole>(mask, row * tile.cols + at.col(), x);
    StorePacket<whole>(a.out[row] + at.col(), x, at.count());
  });
}

}  // namespace

void CudaOps::EmbeddingForward(Matrix out, const int32_t* tokens, ConstMatrix token_table, ConstMatrix position_table,
                               const Positions& positions, const Dropout& dropout, float scale) {
  WithElement(out.dtype, [&](auto out_element) {
    WithElement(token_table.dtype, [&](auto table_element) {
      using T = decltype(out_element);
      using Table = decltype(table_element);
      const ForwardArgs<T, Table> args = {
          RowsOf<T>(out), tokens, RowsOf<Table>(token_table), RowsOf<Table>(position_table), positions, scale};
      constexpr int n = kPacket<Bf16>;
      const Tile tile = TileOf(out.rows, out.cols, n);
      WithFlag(AllWhole<n>(out.cols, args.out, args.token_table, args.position_table), [&](auto whole) {
        Launch(queue_, "EmbeddingForward", tile.grid(), EmbeddingForwardKernel<T, Table, whole.value>, args, tile,
               MaskOf(dropout));
      });
    });
  });
}

}  // namespace holdfast::kernels
