#pragma once
// Blocks of the products of experts: one block of threads computes kSize x kSize of one expert's C = op(A) op(B), going
// up over k in one chain of sums for each element. What an element's bits are depends on k and on its own row and
// column alone: there is no split of k, and a row may lie anywhere in a block.

#include <cstdint>

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/matrix_tile.cuh"
#include "kernels/cuda/packet.cuh"
#include "kernels/experts.h"

namespace holdfast::kernels {

/// C (rows, cols) = A (rows, depth) B (depth, cols). Either may lie transposed, as the kernel knows; k then is what
/// goes along A's rows, or down B's.
template <typename In, typename Out>
struct OneProduct {
  Rows<const In> a, b;
  Rows<Out> c;
  int rows, cols, depth;
  bool accumulate;  // add to what c holds
  // (cols) optional: c = fma(weight, bias, sum), of a row weight bias_weights[choices[row]], or 1 without weights.
  const float *bias, *bias_weights;
  const int32_t* choices;

  __device__ __forceinline__ float BiasWeight(int row) const {
    return bias_weights == nullptr ? 1.0f : bias_weights[choices[row]];
  }
};

/// Rows of the experts: expert e's are offsets[e] to offsets[e + 1] - 1.
struct Segments {
  const int32_t* offsets;  // (E + 1)
  int num_experts;
};
inline Segments SegmentsOf(const ExpertRows& rows) { return {rows.offsets, static_cast<int>(rows.num_experts)}; }

/// The last of `count` experts whose first_of is at most `number`; that of expert 0 is, and none is less than the one
/// before. A warp searches together, each step narrowing the experts to a 32nd.
template <typename FirstOf>
__device__ __forceinline__ int LastAtMost(int count, int number, FirstOf first_of) {
  const int lane = static_cast<int>(LaneId());
  int begin = 0, end = count;  // the expert is one of these
  while (end - begin > 1) {
    const int step = (end - begin + kWarpSize - 1) / kWarpSize;
    const int e = begin + lane * step;
    const unsigned before = __ballot_sync(kWholeWarp, e < end && first_of(e) <= number);  // the lower lanes
    begin += (__popc(before) - 1) * step;
    end = min(begin + step, end);
  }
  return begin;
}

/// Up to `size` rows of one expert, from `first` of its own on; `count` is all that it has.
struct RowTile {
  int expert, first, count;
};

/// Expert e's tiles are numbered from here on. There is room up to the next one's, whatever the offsets are, so none
/// has to be counted; numbers that are left over have no rows.
__device__ __forceinline__ int FirstTile(const Segments& segments, int e, int size) {
  return segments.offsets[e] / size + e;
}
/// Tiles that there may be.
inline int64_t MostTiles(const ExpertRows& rows, int size) { return rows.slots / size + rows.num_experts; }

__device__ __forceinline__ RowTile FindTile(const Segments& segments, int number, int size) {
  const auto first_of = [&](int e) { return FirstTile(segments, e, size); };
  const int e = LastAtMost(segments.num_experts, number, first_of);
  return {e, (number - first_of(e)) * size, segments.offsets[e + 1] - segments.offsets[e]};
}

/// How A and B lie in memory: k goes down the rows of the matrix, or along them.
struct ForwardLayout {  // a (rows, depth), b (cols, depth)
  static constexpr bool kDownA = false, kDownB = false;
};
struct InputGradientLayout {  // a (rows, depth), b (depth, cols)
  static constexpr bool kDownA = false, kDownB = true;
};
struct WeightGradientLayout {  // a (depth, rows), b (depth, cols)
  static constexpr bool kDownA = true, kDownB = true;
};

/// bf16 whose rows can be read 16 bytes at a time, on tensor cores: four warps of 64 x 64 each, operands arriving in
/// shared memory three stages ahead.
template <class Layout, typename Out>
class TensorCoreBlock {
 public:
  using In = Bf16;
  static constexpr int kSize = 128, kThreads = 128;
  static constexpr int kSharedBytes = 4 * 2 * kSize * 32 * 2;

  static __device__ __forceinline__ void Run(const OneProduct<Bf16, Out>& p, int row0, int col0) {
    const Copy<Layout::kDownA> copy_a(p.a, row0, p.rows, p.depth);
    const Copy<Layout::kDownB> copy_b(p.b, col0, p.cols, p.depth);
    const auto copy = [&](int step) {
      const Place stage = static_cast<Place>(step % kStages) * 2 * kOperandBytes;
      copy_a.Start(stage, step * kDepth);
      copy_b.Start(stage + kOperandBytes, step * kDepth);
    };
    const int steps = (p.depth + kDepth - 1) / kDepth;
    for (int step = 0; step < kStages - 1; ++step) {
      if (step < steps) copy(step);
      AsyncCopiesEndGroup();
    }

    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
    const int warp_row = warp / 2 * kWarpTile, warp_col = warp % 2 * kWarpTile;
    const bool has_rows = row0 + warp_row < p.rows && col0 + warp_col < p.cols;
    const Place lane_a = LanePlace<Layout::kDownA, true>(warp_row);
    const Place lane_b = LanePlace<Layout::kDownB, false>(warp_col);
    float c[kM][kN][4];
    Clear<kM, kN>(c);
    for (int step = 0; step < steps; ++step) {
      AsyncCopiesWait<kStages - 2>();
      __syncthreads();  // all have this stage, and none still reads the one before
      if (step + kStages - 1 < steps) copy(step + kStages - 1);
      AsyncCopiesEndGroup();
      const Place stage = static_cast<Place>(step % kStages) * 2 * kOperandBytes;
      if (has_rows) Multiply(c, stage + lane_a, stage + kOperandBytes + lane_b);
    }
    __syncthreads();  // stages become room for results
    if (!has_rows) return;
    if (p.accumulate) AddHeld(p, row0 + warp_row, col0 + warp_col, c);
    if (p.bias != nullptr) AddBias(p, row0 + warp_row, col0 + warp_col, c);
    Write(p, row0 + warp_row, col0 + warp_col, warp, c);
  }

 private:
  static constexpr int kDepth = 32, kStages = 4, kWarpTile = 64, kM = kWarpTile / 16, kN = kWarpTile / 8;
  static constexpr Place kOperandBytes = kSize * kDepth * 2;
  static_assert(kSharedBytes == kStages * 2 * kOperandBytes);

  /// The tile of one operand: kSize rows of kDepth, or where k goes down kDepth rows of kSize.
  template <bool down>
  using OperandTile = Tile<down ? kSize : kDepth>;

  /// Copies tiles of an operand, from its row (where k goes down: column) `first` of `end` on; zeros beyond.
  template <bool down>
  class Copy {
   public:
    __device__ __forceinline__ Copy(const Rows<const Bf16>& m, int first, int end, int depth)
        : from_(down ? m[Row()] + first + Chunk() * 8 : m[first + Row()] + Chunk() * 8),
          stride_(m.stride),
          across_(end - first - (down ? Chunk() * 8 : Row())),
          depth_(depth - (down ? Row() : Chunk() * 8)) {}

    __device__ __forceinline__ void Start(Place tile, int k0) const {
      const Bf16* from = from_ + (down ? k0 * stride_ : k0);
#pragma unroll
      for (int i = 0; i < kRows; i += kStep) {
        const bool inside = down ? across_ > 0 && k0 + i < depth_ : i < across_ && k0 < depth_;
        AsyncCopy16(Shared(tile + T::Offset(Row() + i, Chunk())), from, inside);
        from += kStep * stride_;
      }
    }

   private:
    using T = OperandTile<down>;
    static constexpr int kRows = down ? kDepth : kSize;
    static constexpr int kChunks = static_cast<int>(T::kChunks), kStep = kThreads / kChunks;
    static __device__ __forceinline__ int Chunk() { return static_cast<int>(threadIdx.x) % kChunks; }
    static __device__ __forceinline__ int Row() { return static_cast<int>(threadIdx.x) / kChunks; }

    const Bf16* from_;
    int64_t stride_;
    int across_, depth_;  // how many there are from this thread's first chunk on
  };

  /// Of a lane in the tile of an operand, for the warp's part that starts at `first`.
  template <bool down, bool is_a>
  static __device__ __forceinline__ Place LanePlace(int first) {
    constexpr int kDim = down ? kSize : kDepth;
    const Place lane = down == is_a ? LaneByChunks<kDim>() : LaneByRows<kDim>();
    return lane + static_cast<Place>(first) * (down ? sizeof(Bf16) : OperandTile<down>::kRowBytes);
  }

  /// Sixteen rows (or columns) of the product from 16 `part` on, sixteen k from 16 k on.
  template <bool down>
  static __device__ __forceinline__ void LoadPart(uint32_t (&r)[4], Place at, int part, int k) {
    using T = OperandTile<down>;
    if constexpr (down) {
      LoadMatricesTransposed(r, Shared(T::Move(at, 2 * part) + 16 * k * T::kRowBytes));
    } else {
      LoadMatrices(r, Shared(T::Move(at, 2 * k) + 16 * part * T::kRowBytes));
    }
  }

  static __device__ __forceinline__ void Multiply(Fragments<kM, kN>& c, Place a, Place b) {
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k) {
      uint32_t rows[kM][4];
#pragma unroll
      for (int m = 0; m < kM; ++m) LoadPart<Layout::kDownA>(rows[m], a, m, k);
#pragma unroll
      for (int n = 0; n < kN; n += 2) {
        uint32_t columns[4];
        LoadPart<Layout::kDownB>(columns, b, n / 2, k);
        MmaTwoColumns<kM, kN>(c, n, rows, columns);
      }
    }
  }

  /// To the warp's part of C, which starts at (row, col).
  static __device__ __forceinline__ void AddHeld(const OneProduct<Bf16, Out>& p, int row, int col,
                                                 Fragments<kM, kN>& c) {
    const int lane = static_cast<int>(LaneId());
    row += lane / 4;
    col += 2 * (lane % 4);
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int n = 0; n < kN; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int r = row + 16 * m + 8 * (i / 2), at = col + 8 * n + i % 2;
          if (r < p.rows && at < p.cols) c[m][n][i] += ToFloat(p.c[r][at]);
        }
      }
    }
  }

  static __device__ __forceinline__ void AddBias(const OneProduct<Bf16, Out>& p, int row, int col,
                                                 Fragments<kM, kN>& c) {
    const int lane = static_cast<int>(LaneId());
    row += lane / 4;
    col += 2 * (lane % 4);
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int r = row + 16 * m + 8 * half;
        if (r >= p.rows) continue;
        const float weight = p.BiasWeight(r);
#pragma unroll
        for (int n = 0; n < kN; ++n) {
          if (col + 8 * n >= p.cols) continue;
          const auto bias = LoadPacket<true, 2>(p.bias + col + 8 * n, 2);
#pragma unroll
          for (int i = 0; i < 2; ++i) c[m][n][2 * half + i] = fmaf(weight, bias[i], c[m][n][2 * half + i]);
        }
      }
    }
  }

  /// The warp's part of C, which starts at (row, col).
  static __device__ __forceinline__ void Write(const OneProduct<Bf16, Out>& p, int row, int col, int warp,
                                               const Fragments<kM, kN>& c) {
    if constexpr (sizeof(Out) == 2) {
      float ones[kM][2];
#pragma unroll
      for (int m = 0; m < kM; ++m) ones[m][0] = ones[m][1] = 1;
      const Place tile = static_cast<Place>(warp * kWarpTile) * Tile<kWarpTile>::kRowBytes;
      StoreRows<kWarpTile, kM>(p.c[row] + col, p.c.stride, p.rows - row, p.cols - col, tile, c, ones);
    } else {
      const int lane = static_cast<int>(LaneId());
      row += lane / 4;
      col += 2 * (lane % 4);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int r = row + 16 * m + 8 * half;
          if (r >= p.rows) continue;
#pragma unroll
          for (int n = 0; n < kN; ++n) {
            if (col + 8 * n >= p.cols) continue;
            const float pair[2] = {c[m][n][2 * half], c[m][n][2 * half + 1]};
            StorePacket<true>(p.c[r] + col + 8 * n, pair, 2);
          }
        }
      }
    }
  }
};

/// Any type and alignment in fp32: 256 threads of 8 x 8, two parts of four neighbours each way. The operands of the
/// next step wait in registers.
template <class Layout, typename T, typename Out>
class Fp32Block {
 public:
  using In = T;
  static constexpr int kSize = 128, kThreads = 256;
  static constexpr int kSharedBytes = 0;

  static __device__ __forceinline__ void Run(const OneProduct<T, Out>& p, int row0, int col0) {
    alignas(16) __shared__ float shared_a[kDepth][kSize + kPad], shared_b[kDepth][kSize + kPad];
    const int x = static_cast<int>(threadIdx.x) % 16 * 4, y = static_cast<int>(threadIdx.x) / 16 * 4;
    Operand<Layout::kDownA> a_of_step(p.a, row0, p.rows, p.depth);
    Operand<Layout::kDownB> b_of_step(p.b, col0, p.cols, p.depth);
    float c[8][8] = {};
    a_of_step.Load();
    b_of_step.Load();
    for (int k0 = 0; k0 < p.depth; k0 += kDepth) {
      __syncthreads();  // of the step before everybody has read
      a_of_step.Put(shared_a);
      b_of_step.Put(shared_b);
      __syncthreads();
      a_of_step.Load();
      b_of_step.Load();
#pragma unroll
      for (int k = 0; k < kDepth; ++k) {
        float a[8], b[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          a[i] = shared_a[k][y + i % 4 + i / 4 * (kSize / 2)];
          b[i] = shared_b[k][x + i % 4 + i / 4 * (kSize / 2)];
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) {
#pragma unroll
          for (int j = 0; j < 8; ++j) c[i][j] = fmaf(a[i], b[j], c[i][j]);
        }
      }
    }
    if (p.bias != nullptr) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int row = row0 + y + i % 4 + i / 4 * (kSize / 2);
        if (row >= p.rows) continue;
        const float weight = p.BiasWeight(row);
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const int col = col0 + x + j % 4 + j / 4 * (kSize / 2);
          if (col < p.cols) c[i][j] = fmaf(weight, p.bias[col], c[i][j]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int row = row0 + y + i % 4 + i / 4 * (kSize / 2);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const int col = col0 + x + j % 4 + j / 4 * (kSize / 2);
        if (row >= p.rows || col >= p.cols) continue;
        p.c[row][col] = FromFloat<Out>(p.accumulate ? c[i][j] + ToFloat(p.c[row][col]) : c[i][j]);
      }
    }
  }

 private:
  static constexpr int kDepth = 16, kLoads = kSize * kDepth / kThreads;
  static constexpr int kPad = 4;  // columns of k next to each other lie in different banks

  /// This thread's values of an operand in a step, from its row (where k goes down: column) `first` of `end` on; zeros
  /// beyond. Neighbouring threads have neighbours in memory.
  template <bool down>
  class Operand {
   public:
    __device__ __forceinline__ Operand(const Rows<const T>& m, int first, int end, int depth)
        : from_(down ? m[Row()] + first + Col() : m[first + Row()] + Col()),
          stride_(m.stride),
          across_(end - first - (down ? Col() : Row())),
          depth_(depth - (down ? Row() : Col())) {}

    /// Loads the next step's.
    __device__ __forceinline__ void Load() {
      const T* from = from_;
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const bool inside = down ? across_ > 0 && i * kStep < depth_ : i * kStep < across_ && depth_ > 0;
        x_[i] = inside ? ToFloat(*from) : 0.0f;
        from += kStep * stride_;
      }
      from_ += down ? kDepth * stride_ : kDepth;
      depth_ -= kDepth;
    }

    __device__ __forceinline__ void Put(float (&shared)[kDepth][kSize + kPad]) const {
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        down ? shared[Row() + i * kStep][Col()] = x_[i] : shared[Col()][Row() + i * kStep] = x_[i];
      }
    }

   private:
    static constexpr int kCols = down ? kSize : kDepth, kStep = kThreads / kCols;
    static __device__ __forceinline__ int Col() { return static_cast<int>(threadIdx.x) % kCols; }
    static __device__ __forceinline__ int Row() { return static_cast<int>(threadIdx.x) / kCols; }

    const T* from_;
    int64_t stride_;
    int across_, depth_;  // how many there are from this thread's first value on
    float x_[kLoads];
  };
};

}  // namespace holdfast::kernels
