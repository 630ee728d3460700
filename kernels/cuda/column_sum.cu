#include "kernels/cuda/column_sum.cuh"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/launch.cuh"

namespace holdfast::kernels {
namespace {

constexpr int kWarps = 8;      // of a block that reads rows
constexpr int kSumWarps = 16;  // of a block that adds partial sums

// Block (x, y): 32 packets of columns, rows y * rows_of_block and on. Reads the matrix once.
template <typename T, bool whole>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    ColumnSumKernel(float* partials, Rows<const T> in, int64_t rows, int64_t cols, int64_t rows_of_block) {
  constexpr int n = kPacket<T>;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int64_t col = (static_cast<int64_t>(blockIdx.x) * kWarpSize + lane) * n, count = cols - col;
  const int64_t first = blockIdx.y * rows_of_block;
  const int64_t end = first + rows_of_block < rows ? first + rows_of_block : rows;
  float sum[n];
  SumRows<kWarps, whole>(sum, in, first, end, col, count, NoWeights());
  if (warp == 0 && count > 0) StorePacket<whole>(partials + blockIdx.y * cols + col, sum, count);
}

// A block: 32 columns.
__global__ void __launch_bounds__(kSumWarps* kWarpSize) SumPartialsKernel(PartialSums sums) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int64_t col = static_cast<int64_t>(blockIdx.x) * kWarpSize + lane;
  float sum[1] = {};
  if (col < sums.width) {
#pragma unroll 8
    for (int64_t i = warp; i < sums.count; i += kSumWarps) sum[0] += sums.data[i * sums.width + col];
  }
  SumWarps<1, kSumWarps>(sum);
  float* out = col < sums.cols ? sums.out[0] : sums.out[1];
  if (warp == 0 && col < sums.width && out != nullptr) out[col < sums.cols ? col : col - sums.cols] = sum[0];
}

/// Rows of a block: at least 64, and so many that there are some 2048 blocks at most, which keep any GPU busy.
int64_t RowsOfBlock(int64_t rows, int64_t blocks_across) {
  return std::max<int64_t>(64, Blocks(rows, std::max<int64_t>(1, 2048 / blocks_across)));
}

}  // namespace

void QueueSum(CudaQueue& queue, const char* operation, const PartialSums& sums) {
  Launch(queue, operation, {.blocks = Blocks(sums.width, kWarpSize), .threads = kSumWarps * kWarpSize},
         SumPartialsKernel, sums);
}

void CudaOps::ColumnSum(float* out, ConstMatrix in) {
  WithElement(in.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int n = kPacket<T>;
    const unsigned across = Blocks(in.cols, n * kWarpSize);
    if (across == 0) return;
    const int64_t rows_of_block = RowsOfBlock(in.rows, across);
    const unsigned down = std::max(Blocks(in.rows, rows_of_block), 1u);
    auto* partials = static_cast<float*>(queue_.Scratch(static_cast<size_t>(down * in.cols) * sizeof(float)));
    if (partials == nullptr) return;
    const auto from = RowsOf<T>(in);
    WithFlag(AllWhole<n>(in.cols, from), [&](auto whole) {
      Launch(queue_, "ColumnSum", {.blocks = {across, down}, .threads = kWarps * kWarpSize},
             ColumnSumKernel<T, whole.value>, partials, from, in.rows, in.cols, rows_of_block);
    });
    QueueSum(queue_, "ColumnSum",
             {.data = partials, .count = down, .width = in.cols, .out = {out, nullptr}, .cols = in.cols});
  });
}

}  // namespace holdfast::kernels
