// Products of all experts of a layer in one launch. How many rows an expert has only the GPU knows: the grid has room
// for any distribution of the rows, and a block finds out from the offsets what is its own, if anything. Hopper does
// large ones another way (expert_gemm_hopper.cu).

#include <cstdint>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/expert_gemm_hopper.h"
#include "kernels/cuda/expert_product.cuh"
#include "kernels/cuda/launch.cuh"

namespace holdfast::kernels {
namespace {

/// Blocks that run at the same time share what they read: they are numbered through kTogether tiles of rows, then on to
/// the next columns.
constexpr int kTogether = 8;

template <class Block, typename Out>
__global__ void __launch_bounds__(Block::kThreads, 2)
    ExpertGemmKernel(OneProduct<typename Block::In, Out> all, int64_t b_step, int64_t bias_step, Segments segments,
                     int col_tiles) {
  const int group = static_cast<int>(blockIdx.x) / (kTogether * col_tiles);
  const int place = static_cast<int>(blockIdx.x) % (kTogether * col_tiles);
  const RowTile tile = FindTile(segments, group * kTogether + place % kTogether, Block::kSize);
  if (tile.first >= tile.count) return;
  const int slot = segments.offsets[tile.expert];
  OneProduct<typename Block::In, Out> one = all;
  one.a.data = all.a[slot];
  one.b.data += tile.expert * b_step;
  one.c.data = all.c[slot];
  if (all.bias != nullptr) one.bias += tile.expert * bias_step;
  if (all.bias_weights != nullptr) one.choices += slot;
  one.rows = tile.count;
  Block::Run(one, tile.first, place / kTogether * Block::kSize);
}

template <class Block>
__global__ void __launch_bounds__(Block::kThreads, 2)
    ExpertGradientKernel(OneProduct<typename Block::In, float> all, int64_t c_step, Segments segments, int row_tiles,
                         int col_tiles) {
  const int tiles = row_tiles * col_tiles;
  const int expert = static_cast<int>(blockIdx.x) / tiles, tile = static_cast<int>(blockIdx.x) % tiles;
  const int slot = segments.offsets[expert];
  OneProduct<typename Block::In, float> one = all;
  one.a.data = all.a[slot];
  one.b.data = all.b[slot];
  one.c.data += expert * c_step;
  one.depth = segments.offsets[expert + 1] - slot;
  Block::Run(one, tile % row_tiles * Block::kSize, tile / row_tiles * Block::kSize);
}

template <class Block, typename Out>
void QueueGemm(CudaQueue& queue, const ExpertGemmArgs& args, const ExpertRows& rows) {
  using T = typename Block::In;
  const OneProduct<T, Out> all = {.a = RowsOf<T>(args.a),
                                  .b = RowsOf<T>(args.b),
                                  .c = RowsOf<Out>(args.c),
                                  .rows = 0,
                                  .cols = static_cast<int>(args.c.cols),
                                  .depth = static_cast<int>(args.a.cols),
                                  .accumulate = args.accumulate,
                                  .bias = args.bias,
                                  .bias_weights = args.bias_weights,
                                  .choices = rows.choices};
  const unsigned col_tiles = Blocks(args.c.cols, Block::kSize);
  const unsigned groups = Blocks(MostTiles(rows, Block::kSize), kTogether);
  Launch(queue, "ExpertGemm",
         {.blocks = groups * kTogether * col_tiles, .threads = Block::kThreads, .shared_bytes = Block::kSharedBytes},
         ExpertGemmKernel<Block, Out>, all, args.b_step, args.bias_step, SegmentsOf(rows), static_cast<int>(col_tiles));
}

template <class Block>
void QueueGradient(CudaQueue& queue, const ExpertGradientArgs& args, const ExpertRows& rows) {
  using T = typename Block::In;
  const OneProduct<T, float> all = {.a = RowsOf<T>(args.a),
                                    .b = RowsOf<T>(args.b),
                                    .c = RowsOf<float>(args.c),
                                    .rows = static_cast<int>(args.c.rows),
                                    .cols = static_cast<int>(args.c.cols),
                                    .depth = 0,
                                    .accumulate = false,
                                    .bias = nullptr,
                                    .bias_weights = nullptr,
                                    .choices = nullptr};
  const unsigned row_tiles = Blocks(args.c.rows, Block::kSize), col_tiles = Blocks(args.c.cols, Block::kSize);
  Launch(queue, "ExpertGradient",
         {.blocks = static_cast<unsigned>(rows.num_experts) * row_tiles * col_tiles,
          .threads = Block::kThreads,
          .shared_bytes = Block::kSharedBytes},
         ExpertGradientKernel<Block>, all, args.c_step, SegmentsOf(rows), static_cast<int>(row_tiles),
         static_cast<int>(col_tiles));
}

template <class Layout, typename Out>
void QueueBf16(CudaQueue& queue, const ExpertGemmArgs& args, const ExpertRows& rows, bool hopper) {
  const bool whole = args.a.cols % 8 == 0 && args.c.cols % 8 == 0 && args.b_step % 8 == 0 &&
                     AllWhole<8>(0, RowsOf<Bf16>(args.a), RowsOf<Bf16>(args.b), RowsOf<Out>(args.c)) &&
                     AllWhole<2>(0, Rows<const float>{args.bias, args.bias_step});
  if (whole && hopper && FitsHopper(args)) return ExpertGemmHopper(queue, args, rows);
  whole ? QueueGemm<TensorCoreBlock<Layout, Out>, Out>(queue, args, rows)
        : QueueGemm<Fp32Block<Layout, Bf16, Out>, Out>(queue, args, rows);
}

template <class Layout>
void QueueLayout(CudaQueue& queue, const ExpertGemmArgs& args, const ExpertRows& rows, bool hopper) {
  if (args.a.dtype == DType::kF32) return QueueGemm<Fp32Block<Layout, float, float>, float>(queue, args, rows);
  args.c.dtype == DType::kF32 ? QueueBf16<Layout, float>(queue, args, rows, hopper)
                              : QueueBf16<Layout, Bf16>(queue, args, rows, hopper);
}

}  // namespace

void CudaOps::ExpertGemm(const ExpertGemmArgs& args, const ExpertRows& rows) {
  if (rows.slots == 0) return;
  args.transpose_b ? QueueLayout<ForwardLayout>(queue_, args, rows, hopper_)
                   : QueueLayout<InputGradientLayout>(queue_, args, rows, hopper_);
}

void CudaOps::ExpertGradient(const ExpertGradientArgs& args, const ExpertRows& rows) {
  using Layout = WeightGradientLayout;
  if (args.a.dtype == DType::kF32) return QueueGradient<Fp32Block<Layout, float, float>>(queue_, args, rows);
  const Rows<float> c = RowsOf<float>(args.c);
  const bool whole = args.a.cols % 8 == 0 && args.b.cols % 8 == 0 && args.c_step % 2 == 0 &&
                     AllWhole<8>(0, RowsOf<Bf16>(args.a), RowsOf<Bf16>(args.b)) && AllWhole<2>(0, c);
  if (whole && hopper_ && args.c_step % 4 == 0 && AllWhole<4>(0, c) && FitsHopper(args)) {
    return ExpertGradientHopper(queue_, args, rows);
  }
  whole ? QueueGradient<TensorCoreBlock<Layout, float>>(queue_, args, rows)
        : QueueGradient<Fp32Block<Layout, Bf16, float>>(queue_, args, rows);
}

}  // namespace holdfast::kernels
