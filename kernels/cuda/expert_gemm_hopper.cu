// Products of all experts of a layer by Hopper's own matrix instructions. A block stays on its multiprocessor and does
// one tile of C after the other, 128 x 256 elements, of which each of its two warpgroups has 64 rows. Operands arrive
// in steps of 64 k, two steps ahead and across the ends of tiles, and a step's products begin before those of the step
// before have ended: the tensor cores wait for nothing but sums on their way out.
//
// As in expert_product.cuh an element has one chain of sums, up over k.

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/expert_gemm_hopper.h"
#include "kernels/cuda/expert_product.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/warpgroup.cuh"

namespace holdfast::kernels {
namespace {

constexpr int kRows = 128, kCols = 256, kDepth = 64;  // of a tile, and of a step
constexpr int kThreads = 256;

/// One operand: how its steps lie in shared memory, and how they get there. That is kSize rows of 64 k, or where k goes
/// down kDepth rows in parts of 64 columns, one after the other.
template <bool down, int kSize>
class Operand {
 public:
  static constexpr int kBytes = kSize * kDepth * 2;
  static constexpr BLayout kLayout = down ? BLayout::kRows : BLayout::kColumns;

  __device__ __forceinline__ explicit Operand(int64_t stride) : stride_(stride) {}

  /// What is copied next is of the operand's rows (where k goes down: columns) from `first` on, of `end`.
  __device__ __forceinline__ void Begin(const Bf16* data, int first, int end, int depth) {
    from_ = down ? data + Row() * stride_ + first + Chunk() * 8 : data + (first + Row()) * stride_ + Chunk() * 8;
    across_ = end - first - (down ? Chunk() * 8 : Row());
    depth_ = depth - (down ? Row() : Chunk() * 8);
  }

  /// Starts copying the next step; zeros beyond the operand's ends.
  __device__ __forceinline__ void CopyStep(Place to) {
    const Place at = to + Chunk() / 8 * kPartBytes + T::Offset(Row(), Chunk() % 8);
    const Bf16* from = from_;
    const int rows = down ? (across_ > 0 ? depth_ : 0) : (depth_ > 0 ? across_ : 0);
#pragma unroll
    for (int i = 0; i < kCopyRows; i += kStep) {
      AsyncCopy16(Shared(at + static_cast<Place>(i) * T::kRowBytes), from, i < rows);
      from += kStep * stride_;
    }
    from_ += down ? kDepth * stride_ : kDepth;
    depth_ -= kDepth;
  }

  /// Of the step at `at`, from its row (where k goes down: column) `first` on, a multiple of 64.
  static __device__ __forceinline__ uint64_t Descriptor(Place at, int first) {
    return MatrixDescriptor(Shared(at + static_cast<Place>(first / 64 * kPartBytes)), down ? kPartBytes : 0);
  }
  /// From one 16 k to the next.
  static constexpr uint32_t kNext = 16 * (down ? static_cast<uint32_t>(Tile<64>::kRowBytes) : 2);

 private:
  using T = Tile<64>;
  static constexpr int kPartBytes = 64 * static_cast<int>(T::kRowBytes);  // 64 columns of kDepth rows, or 64 rows
  static constexpr int kCopyRows = down ? kDepth : kSize, kChunks = down ? kSize / 8 : kDepth / 8;
  static constexpr int kStep = kThreads / kChunks;
  static_assert(kStep % 8 == 0);  // so that all chunks of a thread are permuted alike
  static __device__ __forceinline__ int Chunk() { return static_cast<int>(threadIdx.x) % kChunks; }
  static __device__ __forceinline__ int Row() { return static_cast<int>(threadIdx.x) / kChunks; }

  int64_t stride_;
  const Bf16* from_ = nullptr;
  int across_ = 0, depth_ = 0;  // how many there are from this thread's next chunk on
};

// Two stages are read, by the products of this step and of the one before; the others are copied into.
constexpr int kStages = 4, kAhead = kStages - 2;
constexpr int kStageBytes = (kRows + kCols) * kDepth * 2;
constexpr Place kCounts = kStages * kStageBytes;  // where tiles have room of their own

/// A tile of one expert's product, which begins at (row, col).
template <typename Out>
struct TileOf {
  OneProduct<Bf16, Out> p;
  int row, col;
};

/// Blocks that run at the same time share what they read: tiles are numbered down kTogether of them, then on to the
/// next columns. 132 tiles read least as 16 x 8, or nearly.
constexpr int kTogether = 16;

struct RowAndColumn {
  int row, col;
};
__device__ __forceinline__ RowAndColumn PlaceOf(int number, int row_tiles, int col_tiles) {
  const int first = number / (kTogether * col_tiles) * kTogether;
  const int place = number - first * col_tiles, down = min(kTogether, row_tiles - first);
  return {first + place % down, place / down};
}

/// The tiles of a product for each expert's rows. They are counted first, so that each block gets as many as any other.
template <typename T>
struct GemmTiles {
  using Out = T;
  OneProduct<Bf16, Out> all;
  int64_t b_step, bias_step;
  Segments segments;
  int col_tiles;

  /// tiles_before()[e]: how many tiles of rows the experts before e have. The first warp counts.
  __device__ __forceinline__ void Count() const {
    const int lane = static_cast<int>(LaneId());
    if (threadIdx.x >= kWarpSize) return;
    int before = 0;
    for (int first = 0; first < segments.num_experts; first += kWarpSize) {
      const int e = first + lane;
      const bool is_one = e < segments.num_experts;
      int tiles = is_one ? (segments.offsets[e + 1] - segments.offsets[e] + kRows - 1) / kRows : 0;
#pragma unroll
      for (int offset = 1; offset < kWarpSize; offset *= 2) {
        const int lower = __shfl_up_sync(kWholeWarp, tiles, offset);
        if (lane >= offset) tiles += lower;
      }
      if (is_one) tiles_before()[e + 1] = before + tiles;
      before += __shfl_sync(kWholeWarp, tiles, kWarpSize - 1);
    }
    if (lane == 0) tiles_before()[0] = 0;
  }

  __device__ __forceinline__ int count() const { return tiles_before()[segments.num_experts] * col_tiles; }

  /// Whole warps call it.
  __device__ __forceinline__ TileOf<Out> operator[](int number) const {
    const int* before = tiles_before();
    const RowAndColumn at = PlaceOf(number, before[segments.num_experts], col_tiles);
    const int expert = LastAtMost(segments.num_experts, at.row, [&](int e) { return before[e]; });
    const int slot = segments.offsets[expert];
    TileOf<Out> tile = {all, (at.row - before[expert]) * kRows, at.col * kCols};
    tile.p.a.data = all.a[slot];
    tile.p.b.data += expert * b_step;
    tile.p.c.data = all.c[slot];
    if (all.bias != nullptr) tile.p.bias += expert * bias_step;
    if (all.bias_weights != nullptr) tile.p.choices += slot;
    tile.p.rows = segments.offsets[expert + 1] - slot;
    return tile;
  }

 private:
  static __device__ __forceinline__ int* tiles_before() { return reinterpret_cast<int*>(Shared(kCounts)); }
};

/// The tiles of each expert's gradient.
struct GradientTiles {
  using Out = float;
  OneProduct<Bf16, float> all;
  int64_t c_step;
  Segments segments;
  int row_tiles, col_tiles;

  __device__ __forceinline__ void Count() const {}
  __host__ __device__ __forceinline__ int count() const { return segments.num_experts * row_tiles * col_tiles; }

  __device__ __forceinline__ TileOf<float> operator[](int number) const {
    const int expert = number / (row_tiles * col_tiles), slot = segments.offsets[expert];
    const RowAndColumn at = PlaceOf(number - expert * row_tiles * col_tiles, row_tiles, col_tiles);
    TileOf<float> tile = {all, at.row * kRows, at.col * kCols};
    tile.p.a.data = all.a[slot];
    tile.p.b.data = all.b[slot];
    tile.p.c.data += expert * c_step;
    tile.p.depth = segments.offsets[expert + 1] - slot;
    return tile;
  }
};

/// Of a product: at least one, of zeros where nothing is to be summed.
template <typename Out>
__device__ __forceinline__ int StepsOf(const TileOf<Out>& tile) {
  return max((tile.p.depth + kDepth - 1) / kDepth, 1);
}

/// Copies the steps of a block's tiles into one stage after the other.
template <class Layout, class Tiles>
class Copies {
 public:
  using A = Operand<Layout::kDownA, kRows>;
  using B = Operand<Layout::kDownB, kCols>;
  static_assert(A::kBytes + B::kBytes == kStageBytes);

  __device__ __forceinline__ explicit Copies(const Tiles& tiles)
      : tiles_(tiles), end_(tiles.count()), a_(tiles.all.a.stride), b_(tiles.all.b.stride) {}

  /// Starts copying the next step, if there is one; always a group of copies.
  __device__ __forceinline__ void Next() {
    if (steps_ == 0 && number_ < end_) {
      const auto tile = tiles_[number_];
      a_.Begin(tile.p.a.data, tile.row, tile.p.rows, tile.p.depth);
      b_.Begin(tile.p.b.data, tile.col, tile.p.cols, tile.p.depth);
      steps_ = StepsOf(tile);
      number_ += static_cast<int>(gridDim.x);
    }
    if (steps_ > 0) {
      a_.CopyStep(stage_);
      b_.CopyStep(stage_ + A::kBytes);
      --steps_;
      stage_ = stage_ == (kStages - 1) * kStageBytes ? 0 : stage_ + kStageBytes;
    }
    AsyncCopiesEndGroup();
  }

 private:
  const Tiles& tiles_;
  int end_, number_ = static_cast<int>(blockIdx.x), steps_ = 0;  // of the next tile; left of this one
  A a_;
  B b_;
  Place stage_ = 0;
};

/// The four lanes that have a row's columns, two of each eight, exchange them so that each can write 16 bytes; or the
/// other way round what it has read, which is the same exchange.
template <typename Out>
struct Quad {
  static constexpr int kParts = sizeof(Out) == 2 ? 4 : 2, kPacket = 2 * kParts;  // eights of columns; elements
  using Packet = Values<Out, kPacket>;

  /// Of this lane's packet in the eights.
  static __device__ __forceinline__ int Column() {
    const int t = static_cast<int>(LaneId()) % 4;
    return sizeof(Out) == 2 ? 8 * t : 8 * (t % 2) + 4 * (t / 2);
  }

  static __device__ __forceinline__ void Exchange(Packet& x) {
    if constexpr (sizeof(Out) == 2) {
      Swap(x.words[0], x.words[1], 1);
      Swap(x.words[2], x.words[3], 1);
      Swap(x.words[0], x.words[2], 2);
      Swap(x.words[1], x.words[3], 2);
    } else {
      Swap(x.words[0], x.words[2], 1);
      Swap(x.words[1], x.words[3], 1);
    }
  }

 private:
  /// A lane's second for the first of the lane `bit` above.
  static __device__ __forceinline__ void Swap(uint32_t& first, uint32_t& second, unsigned bit) {
    const bool upper = (LaneId() & bit) != 0;
    const uint32_t got = __shfl_xor_sync(kWholeWarp, upper ? first : second, static_cast<int>(bit));
    (upper ? first : second) = got;
  }
};

/// Adds the bias to a tile's sums.
template <typename Out>
__device__ __forceinline__ void AddBias(const TileOf<Out>& tile, float (&c)[kCols / 8][4]) {
  const int lane = static_cast<int>(LaneId()), end = tile.p.rows;
  const int row = tile.row + static_cast<int>(threadIdx.x) / kWarpSize * kWarpRows + lane / 4;
  const int lane_col = tile.col + 2 * (lane % 4);
  const float weights[2] = {row < end ? tile.p.BiasWeight(row) : 0.0f,
                            row + 8 < end ? tile.p.BiasWeight(row + 8) : 0.0f};
  constexpr int kLoads = 8;  // under way at once
#pragma unroll
  for (int j = 0; j < kCols / 8; j += kLoads) {
    Values<float, 2> bias[kLoads] = {};
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int col = lane_col + 8 * (j + i);
      if (col < tile.p.cols) bias[i] = LoadPacket<true, 2>(tile.p.bias + col, 2);
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
#pragma unroll
      for (int k = 0; k < 4; ++k) c[j + i][k] = fmaf(weights[k / 2], bias[i][k % 2], c[j + i][k]);
    }
  }
}

/// Writes a tile's sums.
template <typename Out>
__device__ __forceinline__ void Write(const TileOf<Out>& tile, float (&c)[kCols / 8][4]) {
  using Q = Quad<Out>;
  const int warp_row = tile.row + static_cast<int>(threadIdx.x) / kWarpSize * kWarpRows;
  if (warp_row >= tile.p.rows) return;
  const int lane_row = warp_row + static_cast<int>(LaneId()) / 4, lane_col = tile.col + Q::Column();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = lane_row + 8 * half;
    Out* const at = tile.p.c[row] + lane_col;
    const int cols = row < tile.p.rows ? tile.p.cols - lane_col : 0;  // that there are from `at` on
    if (tile.p.accumulate) {
      constexpr int kLoads = 4;  // under way at once
#pragma unroll
      for (int j = 0; j < kCols / 8; j += kLoads * Q::kParts) {
        typename Q::Packet held[kLoads] = {};
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
          const int col = 8 * (j + i * Q::kParts);
          if (col < cols) held[i] = LoadPacket<true, Q::kPacket>(at + col, Q::kPacket);
        }
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
          Q::Exchange(held[i]);
#pragma unroll
          for (int k = 0; k < Q::kPacket; ++k) c[j + i * Q::kParts + k / 2][2 * half + k % 2] += held[i][k];
        }
      }
    }
#pragma unroll
    for (int j = 0; j < kCols / 8; j += Q::kParts) {
      float sums[Q::kPacket];
#pragma unroll
      for (int k = 0; k < Q::kPacket; ++k) sums[k] = c[j + k / 2][2 * half + k % 2];
      typename Q::Packet packet = ValuesOf<Out>(sums);
      Q::Exchange(packet);
      if (8 * j < cols) StoreValues<true>(at + 8 * j, packet, Q::kPacket);
    }
  }
}

template <class Layout, class Tiles>
__global__ void __launch_bounds__(kThreads, 1) HopperExpertsKernel(Tiles tiles) {
  using A = typename Copies<Layout, Tiles>::A;
  using B = typename Copies<Layout, Tiles>::B;
  tiles.Count();
  __syncthreads();
  int number = static_cast<int>(blockIdx.x);
  const int last = tiles.count() - 1;
  if (number > last) return;

  Copies<Layout, Tiles> copies(tiles);
#pragma unroll 1
  for (int i = 0; i < kAhead; ++i) copies.Next();
  const int group_row = Warpgroup() * kWarpgroupRows;
  Place stage = 0;
  auto tile = tiles[number];
  float c[kCols / 8][4];
  while (number <= last) {
    const int steps = StepsOf(tile);
    const bool has_rows = tile.row + group_row < tile.p.rows;
    WarpgroupArrive(c);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      AsyncCopiesWait<kAhead - 1>();
      ShowToWarpgroups();
      __syncthreads();  // all have this step, and the products of the last but one have ended
      const uint64_t a = A::Descriptor(stage, group_row), b = B::Descriptor(stage + A::kBytes, 0);
      if (has_rows) {
        WarpgroupArrive();
#pragma unroll
        for (int k = 0; k < kDepth / 16; ++k) {
          WarpgroupMultiply<A::kLayout, B::kLayout>(c, Further(a, k * A::kNext), Further(b, k * B::kNext),
                                                    step > 0 || k > 0);
        }
        WarpgroupEndGroup();
      }
      stage = stage == (kStages - 1) * kStageBytes ? 0 : stage + kStageBytes;
      copies.Next();
      WarpgroupWaitFor<1>();
    }
    number += static_cast<int>(gridDim.x);
    const auto next = tiles[min(number, last)];  // while the last products are on their way
    WarpgroupWaitFor<0>(c);
    if (tile.p.bias != nullptr) AddBias(tile, c);
    Write(tile, c);
    tile = next;
  }
}

/// `most`: tiles that there may be. `counted`: experts whose tiles are counted, each in an int.
template <class Layout, class Tiles>
void Queue(CudaQueue& queue, const char* operation, const Tiles& tiles, int64_t most, int counted) {
  const size_t counts = counted > 0 ? (static_cast<size_t>(counted) + 1) * sizeof(int) : 0;
  Launch(queue, operation,
         {.blocks = static_cast<unsigned>(std::min(most, Multiprocessors(queue))),
          .threads = kThreads,
          .shared_bytes = kCounts + counts},
         HopperExpertsKernel<Layout, Tiles>, tiles);
}

template <class Layout, typename Out>
void QueueGemm(CudaQueue& queue, const ExpertGemmArgs& args, const ExpertRows& rows) {
  const GemmTiles<Out> tiles = {.all = {.a = RowsOf<Bf16>(args.a),
                                        .b = RowsOf<Bf16>(args.b),
                                        .c = RowsOf<Out>(args.c),
                                        .rows = 0,
                                        .cols = static_cast<int>(args.c.cols),
                                        .depth = static_cast<int>(args.a.cols),
                                        .accumulate = args.accumulate,
                                        .bias = args.bias,
                                        .bias_weights = args.bias_weights,
                                        .choices = rows.choices},
                                .b_step = args.b_step,
                                .bias_step = args.bias_step,
                                .segments = {rows.offsets, static_cast<int>(rows.num_experts)},
                                .col_tiles = static_cast<int>(Blocks(args.c.cols, kCols))};
  const int64_t most = (rows.slots / kRows + rows.num_experts) * tiles.col_tiles;
  Queue<Layout>(queue, "ExpertGemm", tiles, most, tiles.segments.num_experts);
}

template <class Layout>
void QueueLayout(CudaQueue& queue, const ExpertGemmArgs& args, const ExpertRows& rows) {
  args.c.dtype == DType::kF32 ? QueueGemm<Layout, float>(queue, args, rows)
                              : QueueGemm<Layout, Bf16>(queue, args, rows);
}

}  // namespace

void ExpertGemmHopper(CudaQueue& queue, const ExpertGemmArgs& args, const ExpertRows& rows) {
  args.transpose_b ? QueueLayout<ForwardLayout>(queue, args, rows)
                   : QueueLayout<InputGradientLayout>(queue, args, rows);
}

void ExpertGradientHopper(CudaQueue& queue, const ExpertGradientArgs& args, const ExpertRows& rows) {
  const GradientTiles tiles = {.all = {.a = RowsOf<Bf16>(args.a),
                                       .b = RowsOf<Bf16>(args.b),
                                       .c = RowsOf<float>(args.c),
                                       .rows = static_cast<int>(args.c.rows),
                                       .cols = static_cast<int>(args.c.cols),
                                       .depth = 0,
                                       .accumulate = false,
                                       .bias = nullptr,
                                       .bias_weights = nullptr,
                                       .choices = nullptr},
                               .c_step = args.c_step,
                               .segments = {rows.offsets, static_cast<int>(rows.num_experts)},
                               .row_tiles = static_cast<int>(Blocks(args.c.rows, kRows)),
                               .col_tiles = static_cast<int>(Blocks(args.c.cols, kCols))};
  Queue<WeightGradientLayout>(queue, "ExpertGradient", tiles, tiles.count(), 0);
}

}  // namespace holdfast::kernels
