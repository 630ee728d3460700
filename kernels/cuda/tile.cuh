#pragma once
// Operations on each element of a matrix: a thread does one packet of columns in a few rows. First it loads them all,
// so that enough of memory's latency is under way at once, then it computes and stores.

#include "kernels/cuda/launch.cuh"

namespace holdfast::kernels {

inline constexpr int kTileRows = 4;  // of a thread

struct Tile {
  int64_t rows, cols;
  int packet;        // columns of a thread
  int across, down;  // threads of a block: along a row, and rows

  Grid grid() const {
    return {.blocks = {Blocks(rows, int64_t{kTileRows} * down), Blocks(cols, int64_t{packet} * across)},
            .threads = Blocks(across * down, 32) * 32};
  }
};

/// About 256 threads a block, as few as can be without a packet.
inline Tile TileOf(int64_t rows, int64_t cols, int packet) {
  constexpr int64_t kThreads = 256;
  const int64_t packets = std::max<int64_t>(Blocks(cols, packet), 1);
  const int64_t across = Blocks(packets, Blocks(packets, kThreads));
  return {rows, cols, packet, static_cast<int>(across), static_cast<int>(kThreads / across)};
}

/// This thread's part of a tile.
class TileThread {
 public:
  __device__ __forceinline__ explicit TileThread(const Tile& tile) : rows_(tile.rows), down_(tile.down) {
    const int x = static_cast<int>(threadIdx.x) % tile.across, y = static_cast<int>(threadIdx.x) / tile.across;
    row_ = int64_t{blockIdx.x} * kTileRows * down_ + y;
    col_ = (int64_t{blockIdx.y} * tile.across + x) * tile.packet;
    count_ = tile.cols - col_;
    is_empty_ = y >= down_ || row_ >= rows_ || count_ <= 0;
  }

  __device__ __forceinline__ bool is_empty() const { return is_empty_; }
  __device__ __forceinline__ int64_t col() const { return col_; }      // the packet's first
  __device__ __forceinline__ int64_t count() const { return count_; }  // columns from there to the row's end

  /// Calls op(k, row) for the thread's k-th row; the last row takes the place of those beyond.
  template <typename Op>
  __device__ __forceinline__ void ForLoads(Op op) const {
#pragma unroll
    for (int k = 0; k < kTileRows; ++k) {
      const int64_t row = row_ + k * down_;
      op(k, row < rows_ ? row : rows_ - 1);
    }
  }

  /// The same without those beyond.
  template <typename Op>
  __device__ __forceinline__ void ForStores(Op op) const {
#pragma unroll
    for (int k = 0; k < kTileRows; ++k) {
      const int64_t row = row_ + k * down_;
      if (row < rows_) op(k, row);
    }
  }

 private:
  int64_t rows_, row_, col_, count_;
  int down_;
  bool is_empty_;
};

}  // namespace holdfast::kernels
