// The matrix product, after Goto & van de Geijn 2008 and the BLIS papers: operands are packed into panels, tiles of C
// stay in registers. Work is cut like this:
//
//   blocks of rows of op(A), and of k where there is much of it: packed once, in parallel, into shared scratch
//     tasks = stripes of columns (x parts of the rows where there are many threads):
//       for each few blocks of k: pack the stripe of op(B) into the thread's scratch (second-level cache)
//         for each chunk of rows (second-level cache), each panel of B, each panel of A, each block of k: Multiply
//
// Sums of earlier k blocks stay in the first-level cache or, from one few to the next, in scratch; the last block's
// are written to C by the microkernel where C is just that, else through WriteTile. The cutting may depend on the
// number of threads because an element's bits do not depend on the cutting (microkernel-inl.h).
//
// Included once per instruction set, after hwy/foreach_target.h; see gemm.cc.

#if defined(HOLDFAST_KERNELS_CPU_GEMM_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLDFAST_KERNELS_CPU_GEMM_PRODUCT_INL_H_
#undef HOLDFAST_KERNELS_CPU_GEMM_PRODUCT_INL_H_
#else
#define HOLDFAST_KERNELS_CPU_GEMM_PRODUCT_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/gemm_epilogue-inl.h"
#include "kernels/cpu/microkernel-inl.h"
#include "kernels/cpu/pack-inl.h"
#include "kernels/executor.h"
#include "kernels/ops.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

constexpr int64_t kDepthBlocks = 4;      // of a stripe: 256 words each
constexpr int64_t kStripePanels = 4;     // 64 columns on AVX2, 128 on AVX-512: up to 256 or 512 KiB
constexpr int64_t kBlockRowsMax = 4128;  // rows of A packed at a time: B is packed again for each block
constexpr int64_t kBlockBytesMax = int64_t{16} << 20;
constexpr int64_t kDepthBytes = int64_t{4} << 20;  // of A packed at a time where k is cut: each stripe reads it again
constexpr int64_t kChunkRows = 98;                 // x 256 words = 98 KiB of A beside the stripe of B

/// Up to so many rows B, which may come from memory, is asked for while the stripe before is multiplied.
constexpr int64_t kRowsThatFetchB = 1024;

/// One call on one microkernel. `Kernel` says how large its tiles are (kMr, kNr), what a word of its panels is and how
/// many values of k it holds (Word, kValues), how much of k it sums up in one chain (kBlock), how much room a row
/// of A takes when packed (kRowWords) and whether panels of A are by rows (kPacksByRow); it packs and multiplies. See
/// Fp32Kernel.
template <class Kernel>
class Product {
 public:
  using Word = typename Kernel::Word;

  Product(Executor& executor, const ProductArgs& args)
      : executor_(executor),
        args_(args),
        sums_to_c_(IsWrittenAtOnce(args)),
        streams_c_(StreamsC(args)),
        c_as_(streams_c_                    ? TileOut::As::kF32PastCaches
              : args.accumulate             ? TileOut::As::kF32Added
              : args.c.dtype == DType::kF32 ? TileOut::As::kF32
                                            : TileOut::As::kBF16),
        k_(args.transpose_a ? args.a.rows : args.a.cols) {
    const int64_t panels = CeilDiv(args.c.rows, kMr);
    const int64_t k_blocks = std::max<int64_t>(CeilDiv(k_, Kernel::kBlock), 1);
    constexpr int64_t kBlockBytes = kPanelA * int64_t{sizeof(Word)};
    stripes_ = CeilDiv(args.c.cols, kStripePanels * kNr);
    int64_t most_panels = kBlockRowsMax / kMr;
    depth_blocks_ = k_blocks;
    if (std::min(panels, most_panels) * k_blocks * kBlockBytes > kBlockBytesMax) {
      const int64_t sum_bytes = std::min(panels, most_panels) * stripes_ * kStripePanels * kTileSize * 4;
      if (sum_bytes <= kBlockBytesMax) {
        depth_blocks_ = std::max<int64_t>(kDepthBytes / (std::min(panels, most_panels) * kBlockBytes), 1);
      } else {
        most_panels = std::max(kBlockBytesMax / (kBlockBytes * k_blocks), kPartPanelsMin);
      }
    }
    row_panels_ = CeilDiv(panels, CeilDiv(panels, most_panels));
    const int64_t threads = executor.num_threads();
    const int64_t parts =
        threads == 1 ? 1 : std::clamp<int64_t>(CeilDiv(3 * threads, stripes_), 1, CeilDiv(row_panels_, kPartPanelsMin));
    part_panels_ = CeilDiv(row_panels_, parts);
    fetches_b_ = kFetchesSource && args.c.rows <= kRowsThatFetchB;
    k_blocks_ = k_blocks;
  }

  /// Of the executor's shared scratch memory.
  size_t SharedBytes() const { return a_words() * sizeof(Word) + sum_floats() * sizeof(float); }

  /// Of that of each thread.
  size_t ThreadBytes() const {
    const int64_t blocks = std::min(depth_blocks_, k_blocks_);
    return std::max(ThreadBytes(blocks), ThreadBytes(k_blocks_ % blocks));
  }

  /// `b`: of the product of the same shape that this thread computes next.
  void FetchNext(const void* b) { next_b_ = b; }

  void Run() {
    const int64_t panels = CeilDiv(args_.c.rows, kMr);
    packed_a_ = static_cast<Word*>(executor_.Scratch(Executor::kShared, SharedBytes()));
    shared_sums_ = sum_floats() > 0 ? reinterpret_cast<float*>(packed_a_ + a_words()) : nullptr;
    for (base_ = 0; base_ < panels; base_ += row_panels_) {
      panels_ = std::min(row_panels_, panels - base_);
      for (first_block_ = 0; first_block_ < k_blocks_; first_block_ += depth_blocks_) {
        end_block_ = std::min(first_block_ + depth_blocks_, k_blocks_);
        PackRows();
        MultiplyBlock();
      }
    }
  }

 private:
  static constexpr int64_t kMr = Kernel::kMr, kNr = Kernel::kNr, kTileSize = kMr * kNr;
  static constexpr int64_t kPartPanelsMin = kChunkRows / kMr;
  static constexpr int64_t kPackPanels = kChunkRows / kMr;     // packed by one task
  static constexpr int64_t kBlock = Kernel::kBlock;            // of k, not of words
  static constexpr int64_t kPanelA = Kernel::kRowWords * kMr;  // words of one packed block
  static constexpr int64_t kPanelB = kBlock / Kernel::kValues * kNr + kPanelPad;
  static constexpr int64_t kStripeBlock = kStripePanels * kPanelB;

  /// A stripe of C, rows [panel0, panel_end) of the block of rows.
  struct Task {
    int64_t stripe, panel0, panel_end;
    int64_t next_stripe;       // which this thread will take if all are as fast
    Word* packed_b = nullptr;  // [k block][panel]
    float* sums = nullptr;     // tiles of the task
  };

  /// What is packed next of B.
  struct Source {
    const void* b;
    int64_t stripe, block, block_end;
    int64_t later = 0;    // calls of the microkernel that come first: what is there too early is pushed out again
    int64_t fetched = 0;  // parts of it
  };

  size_t a_words() const { return static_cast<size_t>(std::min(depth_blocks_, k_blocks_) * row_panels_ * kPanelA); }
  /// Sums that stay from one block of k to the next, on their own.
  size_t sum_floats() const {
    const bool stay = depth_blocks_ < k_blocks_;
    return stay ? static_cast<size_t>(row_panels_ * stripes_ * kStripePanels * kTileSize) : 0;
  }

  /// Blocks of k of B that are packed at a time, where so many are multiplied.
  static int64_t Step(int64_t blocks) { return CeilDiv(blocks, std::max<int64_t>(CeilDiv(blocks, kDepthBlocks), 1)); }
  size_t ThreadBytes(int64_t blocks) const {
    const bool has_sums = Step(blocks) < blocks && sum_floats() == 0;
    const int64_t floats = has_sums ? part_panels_ * kStripePanels * kTileSize : 0;
    return static_cast<size_t>(Step(blocks) * kStripeBlock) * sizeof(Word) +
           static_cast<size_t>(floats) * sizeof(float);
  }

  int64_t Depth(int64_t block) const { return std::clamp<int64_t>(k_ - block * kBlock, 0, kBlock); }

  const Word* PanelOf(int64_t p, int64_t block) const {
    return packed_a_ + ((block - first_block_) * panels_ + p) * kPanelA;
  }

  /// Parts of a block of what is packed next of B, those beside each other and all.
  int64_t SourcePartsAcross() const {
    return args_.transpose_b ? 1 : kStripePanels * kNr * static_cast<int64_t>(SizeOf(args_.b.dtype)) / 256;
  }
  int64_t SourceParts() const {
    return args_.transpose_b ? kStripePanels * kNr / kRowsFetched : kBlock / 16 * SourcePartsAcross();
  }

  /// Asks for the next part of what is packed next of B: 64 lines, of four rows of memory where k runs along them, else
  /// of sixteen.
  void FetchSource(Source& source, Ahead& ahead) const {
    ahead.source = nullptr;
    if (source.later > 0) return void(--source.later);
    const int64_t size = static_cast<int64_t>(SizeOf(args_.b.dtype)), row_bytes = args_.b.stride * size;
    const int64_t across = SourcePartsAcross(), parts = SourceParts();
    const int64_t block = source.block + source.fetched / parts, part = source.fetched % parts;
    if (block >= source.block_end) return;
    ++source.fetched;
    const int64_t col0 = source.stripe * kStripePanels * kNr;
    const char* b = static_cast<const char*>(source.b);
    if (args_.transpose_b) {
      ahead.source = b + (col0 + part * kRowsFetched) * row_bytes + block * kBlock * size;
      ahead.source_row_stride = row_bytes;
      ahead.source_line_stride = 64;
    } else {
      ahead.source = b + (block * kBlock + part / across * 16) * row_bytes + col0 * size + part % across * 256;
      ahead.source_row_stride = 64;
      ahead.source_line_stride = row_bytes;
    }
  }

  void PackRows() {
    const int64_t groups = CeilDiv(panels_, kPackPanels);
    ParallelFor(executor_, groups * (end_block_ - first_block_), [&](int64_t task, int) {
      const int64_t i = task / groups, block = first_block_ + i, first = task % groups * kPackPanels;
      const int64_t row0 = (base_ + first) * kMr;
      const int64_t rows = std::min(std::min(kPackPanels, panels_ - first) * kMr, args_.c.rows - row0);
      Kernel::PackA(args_.a, args_.transpose_a, row0, rows, block * kBlock, Depth(block),
                    packed_a_ + (i * panels_ + first) * kPanelA, kPanelA);
    });
  }

  void MultiplyBlock() {
    const int64_t parts = CeilDiv(panels_, part_panels_);
    const int64_t blocks = end_block_ - first_block_, step = Step(blocks);
    ParallelForWithScratch(executor_, parts * stripes_, ThreadBytes(blocks), [&](int64_t index, void* memory) {
      Task task{.stripe = index / parts,
                .panel0 = index % parts * part_panels_,
                .panel_end = std::min(index % parts * part_panels_ + part_panels_, panels_),
                .next_stripe = (index + executor_.num_threads()) / parts};
      task.packed_b = static_cast<Word*>(memory);
      task.sums = shared_sums_ == nullptr
                      ? reinterpret_cast<float*>(task.packed_b + step * kStripeBlock)
                      : shared_sums_ + (task.stripe * row_panels_ + task.panel0) * kStripePanels * kTileSize;
      for (int64_t block = first_block_; block < end_block_; block += step) {
        const int64_t block_end = std::min(block + step, end_block_);
        const bool goes_on = block_end < end_block_;
        Source source{args_.b.data, task.stripe, block_end, std::min(block_end + step, end_block_)};
        if (!goes_on) {
          const bool ends = next_b_ != nullptr && task.next_stripe >= stripes_;
          source = {ends ? next_b_ : args_.b.data, ends ? 0 : task.next_stripe, first_block_,
                    std::min(first_block_ + step, end_block_)};
        }
        RunTask(task, block, block_end, source);
      }
      if (streams_c_) hwy::FlushStream();
    });
  }

  static constexpr bool kCanPackOnTheWay = requires { &Kernel::MultiplyAndPack; };

  /// Whether a task's first tile of a whole panel of B packs it while it multiplies. Else all are packed before.
  bool PacksOnTheWay() const { return kCanPackOnTheWay && !args_.transpose_b; }

  /// Blocks [block0, block_end) of k.
  void RunTask(const Task& task, int64_t block0, int64_t block_end, Source source) {
    const int64_t col0 = task.stripe * kStripePanels * kNr;
    const int64_t cols = std::min(kStripePanels * kNr, args_.c.cols - col0);
    const int64_t later = PacksOnTheWay() ? cols / kNr : 0;  // panels
    for (int64_t block = block0; block < block_end && later * kNr < cols; ++block) {
      Kernel::PackB(args_.b, !args_.transpose_b, col0 + later * kNr, cols - later * kNr, block * kBlock, Depth(block),
                    task.packed_b + (block - block0) * kStripeBlock + later * kPanelB, kPanelB);
    }
    const int64_t calls = (task.panel_end - task.panel0) * CeilDiv(cols, kNr) * (block_end - block0);
    source.later = calls - SourceParts() * (source.block_end - source.block);
    const int64_t chunk = std::max<int64_t>(kChunkRows / kMr / (block_end - block0), 1);
    for (int64_t chunk0 = task.panel0; chunk0 < task.panel_end; chunk0 += chunk) {
      const int64_t chunk_end = std::min(chunk0 + chunk, task.panel_end);
      for (int64_t j = 0; j * kNr < cols; ++j) {
        for (int64_t p = chunk0; p < chunk_end; ++p) {
          // The same panel of the next chunk comes from further away than this one.
          MultiplyTile(task, p, j, std::min(p + chunk, task.panel_end - 1), block0, block_end, source);
        }
      }
    }
  }

  /// The tile of panel p of A and panel j of the stripe. `next`: a panel of A that is needed soon.
  void MultiplyTile(const Task& task, int64_t p, int64_t j, int64_t next, int64_t block0, int64_t block_end,
                    Source& source) {
    const int64_t row0 = (base_ + p) * kMr, rows = std::min<int64_t>(kMr, args_.c.rows - row0);
    const int64_t col0 = (task.stripe * kStripePanels + j) * kNr;
    float* sum = task.sums + ((p - task.panel0) * kStripePanels + j) * kTileSize;
    alignas(64) float tile[kTileSize];
    const bool ends = block_end == k_blocks_;
    Ahead ahead{};
    const bool to_c = ends && !streams_c_;
    ahead.tile = to_c ? ElementAt(args_.c, row0, col0) : reinterpret_cast<const char*>(ends ? tile : sum);
    ahead.tile_stride = to_c ? args_.c.stride * static_cast<int64_t>(SizeOf(args_.c.dtype)) : kNr * sizeof(float);
    const int64_t cols = std::min<int64_t>(kNr, args_.c.cols - col0);
    const bool packs_b = p == task.panel0 && cols == kNr && PacksOnTheWay();
    const bool end_in_c = ends && sums_to_c_ && rows == kMr && cols == kNr;
    const TileOut last =
        end_in_c ? TileOut{ElementAt(args_.c, row0, col0), args_.c.stride, c_as_} : TileOut{ends ? tile : sum, kNr};
    for (int64_t block = block0; block < block_end; ++block) {
      const int64_t words = CeilDiv(Depth(block), Kernel::kValues);
      // A part of the panel, as many as a stripe has panels of B.
      ahead.panel = reinterpret_cast<const char*>(PanelOf(next, block) + j * words * kMr / kStripePanels);
      if (fetches_b_) FetchSource(source, ahead);
      const float* previous = block == 0 ? nullptr : block == block0 ? sum : tile;
      Word* const packed_b = task.packed_b + (block - block0) * kStripeBlock + j * kPanelB;
      const TileOut out = block + 1 < block_end ? TileOut{tile, kNr} : last;
      if constexpr (kCanPackOnTheWay) {
        if (packs_b) {
          Kernel::MultiplyAndPack(args_.b, block * kBlock, col0, words, PanelOf(p, block), packed_b, previous, out,
                                  ahead);
          continue;
        }
      }
      Kernel::Multiply(Kernel::kPacksByRow, rows, words, PanelOf(p, block), packed_b, previous, out, ahead);
    }
    if (ends && !end_in_c) WriteTile<kNr>(args_, tile, row0, col0, rows, cols);
  }

  Executor& executor_;
  const ProductArgs& args_;
  bool sums_to_c_;  // whole tiles are written by the microkernel
  bool streams_c_;  // past the caches
  TileOut::As c_as_;
  int64_t k_;
  bool fetches_b_;  // while the stripe before is multiplied
  const void* next_b_ = nullptr;
  int64_t k_blocks_;
  int64_t stripes_;
  int64_t row_panels_;    // packed at a time
  int64_t depth_blocks_;  // blocks of k packed at a time
  int64_t part_panels_;   // of one task

  int64_t base_, panels_;            // the block of rows being worked on
  int64_t first_block_, end_block_;  // and of k
  Word* packed_a_;                   // [k block][panel]
  float* shared_sums_;               // [stripe][panel][panel of the stripe]; null where a task sees all of k
};

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard, per target
