// The matrix product of few rows, as sampling has them: what takes time is to read B once. So a panel of B is packed
// and multiplied block of k by block of k while it lies in the first-level cache, where the large product
// (gemm_product-inl.h) packs whole stripes for many rows. Packing, multiplying and writing are those of the large one,
// and so are the bits. A single row multiplies B as it is read, without a panel in between: in that a value of B is
// used once, so that writing it and reading it again takes as long as its product.
//
// Included once per instruction set, after hwy/foreach_target.h; see gemm.cc.

#if defined(HOLDFAST_KERNELS_CPU_GEMM_FEW_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLDFAST_KERNELS_CPU_GEMM_FEW_ROWS_INL_H_
#undef HOLDFAST_KERNELS_CPU_GEMM_FEW_ROWS_INL_H_
#else
#define HOLDFAST_KERNELS_CPU_GEMM_FEW_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/gemm_epilogue-inl.h"
#include "kernels/cpu/gemm_product-inl.h"
#include "kernels/cpu/microkernel-inl.h"
#include "kernels/executor.h"
#include "kernels/ops.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

/// Beyond it a panel of B is used often enough to be packed for all rows at once.
constexpr int64_t kFewRows = 24;

/// The rows of A are those of memory.
inline bool HasFewRows(const GemmArgs& args) { return args.c.rows <= kFewRows && !args.transpose_a; }

/// out (kNr) = previous + a B, of kNr columns of B whose values of k lie behind each other, as many as fill whole cache
/// lines. `Kernel` as of Product; `a` is a row of its A panel.
template <class Kernel, class T, class Word = typename Kernel::Word>
HWY_NOINLINE void MultiplyRow(const T* HWY_RESTRICT b, int64_t stride, int64_t depth, const Word* HWY_RESTRICT a,
                              const float* previous, float* out) {
  constexpr int kGroups = Kernel::kNr / 8, kStep = 32 / sizeof(T);  // k of a vector
  constexpr int kWords = kStep / Kernel::kValues / 8;               // of A for each lane of it
  const Tag8 d;
  hn::Vec<Tag8> sum[kGroups];
#pragma GCC unroll 4
  for (int g = 0; g < kGroups; ++g) sum[g] = hn::Zero(d);
  for (int64_t k = 0; k < depth; k += kStep, a += 8 * kWords) {
    const T* corner = b + k;
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g, corner += 8 * stride) {
      const T* half[2] = {corner, corner + 4 * stride};
      asm("" : "+r"(half[0]), "+r"(half[1]));  // else GCC computes all rows' addresses ahead and runs out of registers
      const auto row = [&](int c) HWY_ATTR { return half[c / 4] + c % 4 * stride; };
      if (k % kLine<T> == 0) {
#pragma GCC unroll 8
        for (int c = 0; c < 8; ++c) Fetch(row(c) + kLinesAhead * kLine<T>);
      }
      hn::Vec<TagU8> v[8];
      LoadTransposed([&](int c) HWY_ATTR { return reinterpret_cast<const uint32_t*>(row(c)); }, 8, v);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) Kernel::template AddProducts<T>(a + i * kWords, v[i], &sum[g]);
    }
  }
#pragma GCC unroll 4
  for (int g = 0; g < kGroups; ++g) {
    const auto value = previous == nullptr ? sum[g] : hn::Add(hn::LoadU(d, previous + 8 * g), sum[g]);
    hn::StoreU(value, d, out + 8 * g);
  }
}

/// `Kernel` as of Product.
template <class Kernel>
class FewRowsProduct {
 public:
  using Word = typename Kernel::Word;

  FewRowsProduct(Executor& executor, const ProductArgs& args)
      : executor_(executor),
        args_(args),
        k_(args.a.cols),
        blocks_(std::max<int64_t>(CeilDiv(k_, kBlock), 1)),
        row_panels_(CeilDiv(args.c.rows, kMr)) {}

  /// Of the executor's shared scratch memory.
  size_t SharedBytes() const { return static_cast<size_t>(blocks_ * row_panels_ * kPanelA) * sizeof(Word); }

  /// Of that of each thread.
  size_t ThreadBytes() const {
    return kPanelB * sizeof(Word) + static_cast<size_t>(row_panels_ * kTileSize) * sizeof(float);
  }

  void Run() {
    packed_a_ = static_cast<Word*>(executor_.Scratch(Executor::kShared, SharedBytes()));
    ParallelFor(executor_, 1, [&](int64_t, int) {  // nothing is touched if no task is run
      for (int64_t block = 0; block < blocks_; ++block) {
        Kernel::CopyRows(args_.a, 0, args_.c.rows, block * kBlock, Depth(block),
                         packed_a_ + block * row_panels_ * kPanelA, kPanelA);
      }
    });
    const int64_t panels = CeilDiv(args_.c.cols, kNr);
    const int64_t tasks = std::min(panels, kTasksPerThread * executor_.num_threads());
    ParallelForWithScratch(executor_, tasks, ThreadBytes(), [&](int64_t task, void* memory) {
      auto* const b = static_cast<Word*>(memory);
      auto* const tiles = reinterpret_cast<float*>(b + kPanelB);
      for (int64_t panel = panels * task / tasks; panel < panels * (task + 1) / tasks; ++panel) {
        MultiplyPanel(panel * kNr, b, tiles);
      }
    });
  }

 private:
  static constexpr int64_t kMr = Kernel::kMr, kNr = Kernel::kNr, kTileSize = kMr * kNr, kBlock = Kernel::kBlock;
  static constexpr int64_t kPanelA = Kernel::kRowWords * kMr;
  static constexpr int64_t kPanelB = kBlock / Kernel::kValues * kNr + kPanelPad;
  static constexpr int64_t kTasksPerThread = 4;

  int64_t Depth(int64_t block) const { return std::clamp<int64_t>(k_ - block * kBlock, 0, kBlock); }

  static constexpr bool kMultipliesRows = requires(Word a, hn::Vec<TagU8> b, hn::Vec<Tag8> sum) {
    Kernel::template AddProducts<uint16_t>(&a, b, &sum);
  };

  /// Whether MultiplyRow takes these columns.
  bool IsRowTimesLines(int64_t cols) const {
    const int64_t line = 64 / static_cast<int64_t>(SizeOf(args_.b.dtype));
    return args_.c.rows == 1 && args_.transpose_b && cols == kNr && k_ > 0 && k_ % line == 0;
  }

  template <class T>
  void MultiplyRowBy(int64_t col0, float* tile) const {
    const T* b = static_cast<const T*>(args_.b.data) + col0 * args_.b.stride;
    for (int64_t block = 0; block < blocks_; ++block) {
      MultiplyRow<Kernel>(b + block * kBlock, args_.b.stride, Depth(block), packed_a_ + block * row_panels_ * kPanelA,
                          block == 0 ? nullptr : tile, tile);
    }
  }

  void MultiplyPanel(int64_t col0, Word* b, float* tiles) {
    const int64_t cols = std::min(kNr, args_.c.cols - col0);
    if constexpr (kMultipliesRows) {
      if (IsRowTimesLines(cols)) {
        if (args_.b.dtype == DType::kBF16) {
          MultiplyRowBy<uint16_t>(col0, tiles);
        } else if constexpr (Kernel::kValues == 1) {
          MultiplyRowBy<float>(col0, tiles);
        }
        return WriteTile<kNr>(args_, tiles, 0, col0, 1, cols);
      }
    }
    for (int64_t block = 0; block < blocks_; ++block) {
      Kernel::PackB(args_.b, !args_.transpose_b, col0, cols, block * kBlock, Depth(block), b, kPanelB);
      for (int64_t p = 0; p < row_panels_; ++p) {
        const Word* a = packed_a_ + (block * row_panels_ + p) * kPanelA;
        float* tile = tiles + p * kTileSize;
        const Ahead ahead = {.panel = reinterpret_cast<const char*>(a), .tile = reinterpret_cast<const char*>(tile)};
        Kernel::Multiply(true, args_.c.rows - p * kMr, CeilDiv(Depth(block), Kernel::kValues), a, b,
                         block == 0 ? nullptr : tile, {tile, kNr}, ahead);
      }
    }
    for (int64_t p = 0; p < row_panels_; ++p) {
      const int64_t row0 = p * kMr;
      WriteTile<kNr>(args_, tiles + p * kTileSize, row0, col0, std::min(kMr, args_.c.rows - row0), cols);
    }
  }

  Executor& executor_;
  const ProductArgs& args_;
  int64_t k_, blocks_, row_panels_;
  Word* packed_a_ = nullptr;  // [k block][panel], by rows
};

/// Calls body with the product for as many rows.
template <class Kernel, class Body>
void WithProduct(Executor& executor, const ProductArgs& args, const Body& body) {
  if (HasFewRows(args)) return body(FewRowsProduct<Kernel>(executor, args));
  body(Product<Kernel>(executor, args));
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard, per target
