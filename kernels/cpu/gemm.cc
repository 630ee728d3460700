// The matrix product, after Goto & van de Geijn 2008 and the BLIS papers: operands are packed into panels, tiles of C
// stay in registers. Work is cut like this:
//
//   blocks of rows of op(A), one after the other: packed once, in parallel, into shared scratch (third-level cache)
//     tasks = stripes of columns (x parts of the rows where there are many threads):
//       for each block of kKc of k: pack the stripe of op(B) into the thread's scratch (second-level cache)
//         for each chunk of rows (second-level cache), each panel of B (first-level cache), each panel of A: Multiply
//
// Sums of earlier k blocks wait in the thread's scratch; the last block's tiles go through WriteTile to C. The cutting
// may depend on the number of threads because an element's bits do not depend on the cutting (microkernel-inl.h).

#include <algorithm>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm.cc"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/foreach_target.h"
#include "kernels/cpu/gemm_epilogue-inl.h"
#include "kernels/cpu/microkernel-inl.h"
#include "kernels/cpu/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

constexpr int64_t kPanelA = kKc * kMr + kPanelPad;     // floats of one packed A panel
constexpr int64_t kPanelB = kKc * kNr + kPanelPad;     // and of a B panel
constexpr int64_t kChunkPanels = 96 / kMr;             // 96 rows x kKc = 96 KiB of A beside 64 KiB of B
constexpr int64_t kStripeColumns = 64;                 // columns of a task
constexpr int64_t kBlockRowsMax = 1032;                // rows of A packed at a time: B is packed again for each block,
constexpr int64_t kBlockBytesMax = int64_t{16} << 20;  // which costs 2% at this height
constexpr int64_t kPackPanels = 8;                     // panels packed by one task

/// How one call is cut. Rows are counted in panels of kMr.
struct Cutting {
  int64_t k_blocks;
  int64_t block_panels;   // packed at a time
  int64_t part_panels;    // of one task
  int64_t stripe_panels;  // B panels of one task
  int64_t stripes;
};

Cutting Cut(const GemmArgs& args, int64_t k, int num_threads) {
  const int64_t m = args.c.rows, n = args.c.cols;
  Cutting cut;
  cut.k_blocks = std::max<int64_t>(CeilDiv(k, kKc), 1);
  const int64_t panels = CeilDiv(m, kMr);
  const int64_t most_panels =
      std::clamp<int64_t>(kBlockBytesMax / (kPanelA * 4 * cut.k_blocks), kChunkPanels, kBlockRowsMax / kMr);
  cut.block_panels = CeilDiv(panels, CeilDiv(panels, most_panels));
  cut.stripe_panels = kStripeColumns / kNr;
  cut.stripes = CeilDiv(n, cut.stripe_panels * kNr);
  const int64_t tasks_wanted = 3 * num_threads;
  const int64_t parts =
      std::clamp<int64_t>(CeilDiv(tasks_wanted, cut.stripes), 1, CeilDiv(cut.block_panels, kChunkPanels));
  cut.part_panels = num_threads == 1 ? cut.block_panels : CeilDiv(cut.block_panels, parts);
  return cut;
}

int64_t BlockDepth(int64_t k, int64_t block) { return std::min(kKc, k - block * kKc); }

/// Packs panels [panel0, panel0 + count) of one k block of op(A).
void PackRows(const GemmArgs& args, int64_t k, int64_t k_block, int64_t panel0, int64_t count, float* out) {
  const int64_t row0 = panel0 * kMr, rows = std::min(count * kMr, args.c.rows - row0);
  PackPanels<kMr>(args.a.data, args.a.dtype == DType::kBF16, args.transpose_a, args.a.stride, row0, k_block * kKc, rows,
                  BlockDepth(k, k_block), out, kPanelA);
}

/// Packs one stripe of one k block of op(B); returns the number of panels.
int64_t PackStripe(const GemmArgs& args, const Cutting& cut, int64_t k, int64_t k_block, int64_t stripe, float* out) {
  const int64_t col0 = stripe * cut.stripe_panels * kNr;
  const int64_t cols = std::min(cut.stripe_panels * kNr, args.c.cols - col0);
  PackPanels<kNr>(args.b.data, args.b.dtype == DType::kBF16, !args.transpose_b, args.b.stride, col0, k_block * kKc,
                  cols, BlockDepth(k, k_block), out, kPanelB);
  return CeilDiv(cols, kNr);
}

/// One task: rows [panel0, panel_end) of the packed block that starts at panel `base`, times one stripe.
struct Task {
  const float* packed_a;  // [k block][panel of the block]
  int64_t base, block_panels;
  int64_t panel0, panel_end;  // within the block
  int64_t stripe;
};

/// Rows of C lie too far apart for the hardware to foresee: asks for them a whole Multiply before they are needed.
HWY_INLINE void PrefetchTile(const Matrix& c, int64_t row0, int64_t col0, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) __builtin_prefetch(ElementAt(c, row0 + r, col0), 1);
}

/// The tiles of one chunk of rows in one k block.
void MultiplyChunk(const GemmArgs& args, const Cutting& cut, const Task& task, int64_t k_block, int64_t depth,
                   int64_t chunk0, int64_t chunk_end, int64_t b_panels, const float* packed_b, float* sums) {
  const bool first = k_block == 0, last = k_block + 1 == cut.k_blocks;
  alignas(64) float tile[kMr * kNr];
  for (int64_t j = 0; j < b_panels; ++j) {
    const int64_t col0 = (task.stripe * cut.stripe_panels + j) * kNr;
    for (int64_t p = chunk0; p < chunk_end; ++p) {
      const int64_t row0 = (task.base + p) * kMr;
      const int64_t rows = std::min<int64_t>(kMr, args.c.rows - row0);
      const float* a = task.packed_a + (k_block * task.block_panels + p) * kPanelA;
      float* waiting = sums + ((p - task.panel0) * cut.stripe_panels + j) * kMr * kNr;
      float* out = last ? tile : waiting;
      if (last) PrefetchTile(args.c, row0, col0, rows);
      MultiplyFor(rows)(depth, a, packed_b + j * kPanelB, first ? nullptr : waiting, out, kNr);
      if (last) WriteTile(args, tile, row0, col0, rows, std::min<int64_t>(kNr, args.c.cols - col0));
    }
  }
}

void RunTask(Executor& executor, const GemmArgs& args, const Cutting& cut, int64_t k, const Task& task, int thread) {
  const int64_t b_floats = cut.stripe_panels * kPanelB;
  const int64_t sum_floats = cut.k_blocks == 1 ? 0 : (task.panel_end - task.panel0) * cut.stripe_panels * kMr * kNr;
  float* packed_b =
      static_cast<float*>(executor.Scratch(thread, static_cast<size_t>(b_floats + sum_floats) * sizeof(float)));
  for (int64_t k_block = 0; k_block < cut.k_blocks; ++k_block) {
    const int64_t b_panels = PackStripe(args, cut, k, k_block, task.stripe, packed_b);
    for (int64_t p = task.panel0; p < task.panel_end; p += kChunkPanels) {
      MultiplyChunk(args, cut, task, k_block, BlockDepth(k, k_block), p, std::min(p + kChunkPanels, task.panel_end),
                    b_panels, packed_b, packed_b + b_floats);
    }
  }
}

void GemmBlock(Executor& executor, const GemmArgs& args, const Cutting& cut, int64_t k, int64_t base, int64_t panels,
               float* packed_a) {
  const int64_t groups = CeilDiv(panels, kPackPanels);
  ParallelFor(executor, groups * cut.k_blocks, [&](int64_t task, int) {
    const int64_t k_block = task / groups, first = task % groups * kPackPanels;
    PackRows(args, k, k_block, base + first, std::min(kPackPanels, panels - first),
             packed_a + (k_block * panels + first) * kPanelA);
  });
  const int64_t parts = CeilDiv(panels, cut.part_panels);
  ParallelFor(executor, parts * cut.stripes, [&](int64_t task, int thread) {
    const int64_t part = task % parts, first = part * cut.part_panels;
    RunTask(executor, args, cut, k,
            {packed_a, base, panels, first, std::min(first + cut.part_panels, panels), task / parts}, thread);
  });
}

void Gemm(Executor& executor, const GemmArgs& args) {
  const int64_t k = args.transpose_a ? args.a.rows : args.a.cols;
  if (args.c.rows <= 0 || args.c.cols <= 0) return;
  const Cutting cut = Cut(args, k, executor.num_threads());
  const int64_t panels = CeilDiv(args.c.rows, kMr);
  const size_t bytes = static_cast<size_t>(cut.k_blocks * cut.block_panels * kPanelA) * sizeof(float);
  float* packed_a = static_cast<float*>(executor.Scratch(Executor::kShared, bytes));
  for (int64_t base = 0; base < panels; base += cut.block_panels) {
    GemmBlock(executor, args, cut, k, base, std::min(cut.block_panels, panels - base), packed_a);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace holdfast::kernels {

HWY_EXPORT(Gemm);

void CpuOps::Gemm(const GemmArgs& args) { HWY_DYNAMIC_DISPATCH(Gemm)(executor_, args); }

}  // namespace holdfast::kernels
#endif
