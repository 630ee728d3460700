// LayerNorm and RMSNorm. A block does a few rows at once and has them in registers: each matrix is read or written
// once.

#include <bit>

#include "kernels/cuda/column_sum.cuh"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/dropout.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/packet.cuh"
#include "kernels/cuda/reduce.cuh"

namespace holdfast::kernels {
namespace {

constexpr int kMaxThreads = 512;

// A block does several rows at once with a packet of each in a thread, or one row that is too wide for that, with as
// many values in a thread as registers allow. `wide` says which.
constexpr int kForwardRows = 2;
constexpr int kBackwardRows = 4;
template <typename T>
constexpr int kWidePackets = 16 / kPacket<T>;

/// One of a thread's packets.
struct Slot {
  int index;
  int row_index;  // among the block's
  int64_t row, col;
  int64_t count;  // columns from `col` to the row's end
  bool is_real;   // otherwise it stands for one beyond the matrix: there to be loaded, but not to be used
};

/// Calls op(slot) for a thread's packets of the rows from `first` on.
template <typename T, int slots, int packets, typename Op>
__device__ __forceinline__ void ForSlots(int64_t first, int64_t rows, int64_t cols, Op op) {
#pragma unroll
  for (int i = 0; i < slots; ++i) {
    const int64_t row = first + i / packets;
    const int64_t col = static_cast<int64_t>(threadIdx.x + i % packets * blockDim.x) * kPacket<T>;
    const int64_t safe_col = col < cols ? col : 0;
    op(Slot{i, i / packets, row < rows ? row : rows - 1, safe_col, cols - safe_col, row < rows && col < cols});
  }
}

/// Every thread gets the block's sums, in a fixed association.
template <int n>
__device__ __forceinline__ void BlockSums(float (&x)[n]) {
  alignas(16) __shared__ float partial[kMaxThreads / kWarpSize][n];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int warps = static_cast<int>(blockDim.x) / kWarpSize;
#pragma unroll
  for (int i = 0; i < n; ++i) x[i] = WarpReduce(x[i], Plus());
  if (warps == 1) return;
  __syncthreads();  // of an earlier call everybody has read
  if (lane == 0) {
#pragma unroll
    for (int i = 0; i < n; ++i) partial[warp][i] = x[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < n; ++i) x[i] = partial[0][i];
  for (int w = 1; w < warps; ++w) {
#pragma unroll
    for (int i = 0; i < n; ++i) x[i] += partial[w][i];
  }
}

/// Groups of columns as rows: row i is group i % groups of row i / groups.
template <typename T>
struct Groups : Rows<T> {
  int64_t groups, cols;  // cols: of a group

  __device__ __forceinline__ T* operator[](int64_t row) const {
    return Rows<T>::operator[](row / groups) + row % groups * cols;
  }
};

template <typename T, template <typename> typename R>
struct ForwardArgs {
  using Value = T;
  R<T> out, residual_out;
  R<const T> residual;
  Rows<const T> branch;
  NormStats stats;
  NormParams params;
  DropoutMask mask;
  int64_t rows, cols;
};

template <typename Args, bool whole, bool wide>
__global__ void __launch_bounds__(kMaxThreads) NormForwardKernel(Args a) {
  using T = typename Args::Value;
  constexpr int n = kPacket<T>, packets = wide ? kWidePackets<T> : 1, rows = wide ? 1 : kForwardRows;
  constexpr int slots = rows * packets;
  const int64_t first = int64_t{blockIdx.x} * rows;
  const auto for_slots = [&](auto op) { ForSlots<T, slots, packets>(first, a.rows, a.cols, op); };

  Values<T, n> residual[slots], branch[slots];
  for_slots([&](const Slot& s) { residual[s.index] = LoadPacket<whole, n>(a.residual[s.row] + s.col, s.count); });
  const bool adds = a.branch.data != nullptr;
  if (adds) {
    for_slots([&](const Slot& s) { branch[s.index] = LoadPacket<whole, n>(a.branch[s.row] + s.col, s.count); });
  }

  // x = residual + dropout(branch), rounded as the backward pass will read it.
  float x[slots][n], mean[rows] = {}, rstd[rows] = {};
  for_slots([&](const Slot& s) {
    float(&value)[n] = x[s.index];
    ToFloats(value, residual[s.index]);
    if (adds) {
      float added[n];
      ToFloats(added, branch[s.index]);
      Drop<whole>(a.mask, s.row * a.cols + s.col, added);
#pragma unroll
      for (int i = 0; i < n; ++i) added[i] += value[i];
      if (s.is_real) StorePacket<whole>(a.residual_out[s.row] + s.col, added, s.count);
      ToFloats(value, ValuesOf<T>(added));
    }
#pragma unroll
    for (int i = 0; i < n; ++i) mean[s.row_index] += s.is_real && (whole || i < s.count) ? value[i] : 0.0f;
  });

  const float width = static_cast<float>(a.cols);
  const bool centered = a.params.kind == NormKind::kLayerNorm;
  if (centered) BlockSums(mean);
#pragma unroll
  for (int r = 0; r < rows; ++r) mean[r] = centered ? mean[r] / width : 0.0f;
  for_slots([&](const Slot& s) {
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const float deviation = s.is_real && (whole || i < s.count) ? x[s.index][i] - mean[s.row_index] : 0.0f;
      rstd[s.row_index] = fmaf(deviation, deviation, rstd[s.row_index]);
    }
  });
  BlockSums(rstd);
#pragma unroll
  for (int r = 0; r < rows; ++r) {
    rstd[r] = 1.0f / sqrtf(rstd[r] / width + a.params.eps);
    if (threadIdx.x != 0 || first + r >= a.rows) continue;
    if (centered && a.stats.mean != nullptr) a.stats.mean[first + r] = mean[r];
    if (a.stats.rstd != nullptr) a.stats.rstd[first + r] = rstd[r];
  }

  for_slots([&](const Slot& s) {
    const auto weight = LoadPacket<whole, n>(a.params.weight + s.col, s.count);
    Values<float, n> bias = {};
    if (a.params.bias != nullptr) bias = LoadPacket<whole, n>(a.params.bias + s.col, s.count);
    float y[n];
#pragma unroll
    for (int i = 0; i < n; ++i) {
      y[i] = fmaf((x[s.index][i] - mean[s.row_index]) * rstd[s.row_index], weight[i], bias[i]);
    }
    if (s.is_real) StorePacket<whole>(a.out[s.row] + s.col, y, s.count);
  });
}

template <typename T, template <typename> typename R>
struct BackwardArgs {
  using Value = T;
  R<T> d_input;
  R<const T> d_residual, d_out, input;
  NormStats stats;
  const float* weight;
  float* partials;  // (blocks, C or 2 C): sums of d_weight, then of d_bias; null if they are not wanted
  int64_t rows, cols;
};

// With x^ = (x - mean) rstd and g = d_out * weight: d_input = rstd (g - mean(g) - x^ mean(g x^)) + d_residual, where
// RMSNorm has neither mean. A block takes every so-manieth group of rows, and its sums of d_weight and d_bias stay in
// registers.
template <typename Args, bool whole, bool wide, bool centered>
__global__ void __launch_bounds__(kMaxThreads) NormBackwardKernel(Args a) {
  using T = typename Args::Value;
  constexpr int n = kPacket<T>, packets = wide ? kWidePackets<T> : 1, rows = wide ? 1 : kBackwardRows;
  constexpr int slots = rows * packets;
  const float width = static_cast<float>(a.cols);
  float d_weight[packets][n] = {}, d_bias[packets][n] = {};

  for (int64_t first = int64_t{blockIdx.x} * rows; first < a.rows; first += int64_t{gridDim.x} * rows) {
    const auto for_slots = [&](auto op) { ForSlots<T, slots, packets>(first, a.rows, a.cols, op); };
    Values<T, n> in[slots], dy[slots], base[slots] = {};
    for_slots([&](const Slot& s) {
      in[s.index] = LoadPacket<whole, n>(a.input[s.row] + s.col, s.count);
      dy[s.index] = LoadPacket<whole, n>(a.d_out[s.row] + s.col, s.count);
    });
    if (a.d_residual.data != nullptr) {
      for_slots([&](const Slot& s) { base[s.index] = LoadPacket<whole, n>(a.d_residual[s.row] + s.col, s.count); });
    }
    float mean[rows] = {}, rstd[rows];
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      const int64_t row = first + r < a.rows ? first + r : a.rows - 1;
      if constexpr (centered) mean[r] = a.stats.mean[row];
      rstd[r] = a.stats.rstd[row];
    }

    float sum_gx[rows] = {}, sum_g[rows] = {};
    for_slots([&](const Slot& s) {
      const int r = s.row_index, k = s.index % packets;
      const auto weight = LoadPacket<whole, n>(a.weight + s.col, s.count);
#pragma unroll
      for (int i = 0; i < n; ++i) {
        const float gradient = s.is_real ? dy[s.index][i] : 0.0f;  // beyond the row's end it is zero too
        const float x = (in[s.index][i] - mean[r]) * rstd[r], g = gradient * weight[i];
        sum_gx[r] = fmaf(g, x, sum_gx[r]);
        d_weight[k][i] = fmaf(gradient, x, d_weight[k][i]);
        if constexpr (centered) {
          sum_g[r] += g;
          d_bias[k][i] += gradient;
        }
      }
    });
    BlockSums(sum_gx);
    if constexpr (centered) BlockSums(sum_g);

    for_slots([&](const Slot& s) {
      const int r = s.row_index;
      const float mean_gx = sum_gx[r] / width, mean_g = sum_g[r] / width;
      const auto weight = LoadPacket<whole, n>(a.weight + s.col, s.count);
      float dx[n];
#pragma unroll
      for (int i = 0; i < n; ++i) {
        const float x = (in[s.index][i] - mean[r]) * rstd[r], g = dy[s.index][i] * weight[i] - mean_g;
        dx[i] = fmaf(rstd[r], fmaf(-x, mean_gx, g), base[s.index][i]);
      }
      if (s.is_real) StorePacket<whole>(a.d_input[s.row] + s.col, dx, s.count);
    });
  }

  if (a.partials == nullptr) return;
  float* partial = a.partials + blockIdx.x * (centered ? 2 : 1) * a.cols;
#pragma unroll
  for (int k = 0; k < packets; ++k) {
    const int64_t col = static_cast<int64_t>(threadIdx.x + k * blockDim.x) * n, count = a.cols - col;
    if (count <= 0) break;
    StorePacket<whole>(partial + col, d_weight[k], count);
    if constexpr (centered) StorePacket<whole>(partial + a.cols + col, d_bias[k], count);
  }
}

/// How a row is spread over the threads of a block.
struct Spread {
  bool wide;
  unsigned threads;
};
template <typename T>
Spread SpreadOf(int64_t cols) {
  const int64_t packets = std::max<int64_t>(Blocks(cols, kPacket<T>), 1);
  const bool wide = packets > kMaxThreads;
  return {wide, Blocks(packets, int64_t{kWarpSize} * (wide ? kWidePackets<T> : 1)) * kWarpSize};
}

/// With 128 registers a thread, one wave of blocks on a GPU of 132 multiprocessors: 2048 warps, or fewer if their
/// number does not divide that. Partial sums are then small against the input.
unsigned BackwardBlocks(int64_t rows, const Spread& spread) {
  constexpr unsigned kWarps = 2048;
  return std::clamp(Blocks(rows, 2 * (spread.wide ? 1 : kBackwardRows)), 1u,
                    std::bit_floor(kWarps * kWarpSize / spread.threads));
}

template <typename T, template <typename> typename R>
void QueueForward(CudaQueue& queue, const ForwardArgs<T, R>& args) {
  using Args = ForwardArgs<T, R>;
  const Spread spread = SpreadOf<T>(args.cols);
  if (spread.threads > kMaxThreads) return queue.Fail("NormForward", "rows are too wide");
  const bool is_whole = AllWhole<kPacket<T>>(args.cols, args.out, args.residual_out, args.residual, args.branch,
                                             OneRow(args.params.weight), OneRow(args.params.bias));
  WithFlag(is_whole, [&](auto whole) {
    WithFlag(spread.wide, [&](auto wide) {
      Launch(queue, "NormForward",
             {.blocks = Blocks(args.rows, wide.value ? 1 : kForwardRows), .threads = spread.threads},
             NormForwardKernel<Args, whole.value, wide.value>, args);
    });
  });
}

/// Where the sums of d_weight and d_bias go.
struct WeightGradients {
  float *weight, *bias;
};

template <typename T, template <typename> typename R>
void QueueBackward(CudaQueue& queue, BackwardArgs<T, R> args, bool is_centered, const WeightGradients& sums) {
  using Args = BackwardArgs<T, R>;
  const Spread spread = SpreadOf<T>(args.cols);
  if (spread.threads > kMaxThreads) return queue.Fail("NormBackward", "rows are too wide");
  const int64_t width = (is_centered ? 2 : 1) * args.cols;
  const unsigned blocks = BackwardBlocks(args.rows, spread);
  if (sums.weight != nullptr || sums.bias != nullptr) {
    args.partials = static_cast<float*>(queue.Scratch(static_cast<size_t>(blocks * width) * sizeof(float)));
    if (args.partials == nullptr) return;
  }
  const bool is_whole =
      AllWhole<kPacket<T>>(args.cols, args.d_input, args.d_residual, args.d_out, args.input, OneRow(args.weight));
  WithFlag(is_whole, [&](auto whole) {
    WithFlag(spread.wide, [&](auto wide) {
      WithFlag(is_centered, [&](auto centered) {
        Launch(queue, "NormBackward", {.blocks = blocks, .threads = spread.threads},
               NormBackwardKernel<Args, whole.value, wide.value, centered.value>, args);
      });
    });
  });
  if (args.partials == nullptr) return;
  QueueSum(
      queue, "NormBackward",
      {.data = args.partials, .count = blocks, .width = width, .out = {sums.weight, sums.bias}, .cols = args.cols});
}

}  // namespace

void CudaOps::NormForward(Matrix out, Matrix residual_out, const NormStats& stats, ConstMatrix residual,
                          ConstMatrix branch, const NormParams& params, const Dropout& dropout) {
  WithElement(out.dtype, [&](auto element) {
    using T = decltype(element);
    const auto args = [&]<template <typename> typename R>(R<T> to, R<T> sum, R<const T> from) {
      return ForwardArgs<T, R>{.out = to,
                               .residual_out = sum,
                               .residual = from,
                               .branch = RowsOf<T>(branch),
                               .stats = stats,
                               .params = params,
                               .mask = MaskOf(dropout),
                               .rows = out.rows * params.groups,
                               .cols = out.cols / params.groups};
    };
    if (params.groups == 1) {
      QueueForward(queue_, args(RowsOf<T>(out), RowsOf<T>(residual_out), RowsOf<T>(residual)));
    } else {
      const int64_t g = params.groups, cols = out.cols / g;
      QueueForward(queue_, args(Groups<T>{RowsOf<T>(out), g, cols}, Groups<T>{RowsOf<T>(residual_out), g, cols},
                                Groups<const T>{RowsOf<T>(residual), g, cols}));
    }
  });
}

void CudaOps::NormBackward(Matrix d_input, float* d_weight, float* d_bias, ConstMatrix d_residual, ConstMatrix d_out,
                           ConstMatrix input, const NormStats& stats, const NormParams& params) {
  WithElement(input.dtype, [&](auto element) {
    using T = decltype(element);
    const auto queue = [&]<template <typename> typename R>(R<T> to, R<const T> base, R<const T> gradient,
                                                           R<const T> from) {
      QueueBackward(queue_,
                    BackwardArgs<T, R>{.d_input = to,
                                       .d_residual = base,
                                       .d_out = gradient,
                                       .input = from,
                                       .stats = stats,
                                       .weight = params.weight,
                                       .partials = nullptr,
                                       .rows = input.rows * params.groups,
                                       .cols = input.cols / params.groups},
                    params.kind == NormKind::kLayerNorm, {d_weight, d_bias});
    };
    if (params.groups == 1) {
      queue(RowsOf<T>(d_input), RowsOf<T>(d_residual), RowsOf<T>(d_out), RowsOf<T>(input));
    } else {
      const int64_t g = params.groups, cols = input.cols / g;
      const auto of = [&](const ConstMatrix& m) { return Groups<const T>{RowsOf<T>(m), g, cols}; };
      queue(Groups<T>{RowsOf<T>(d_input), g, cols}, of(d_residual), of(d_out), of(input));
    }
  });
}

}  // namespace holdfast::kernels
