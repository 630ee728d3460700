// Rows on their way to experts and back, and what happens to them there besides matrix products.

#include <cstdint>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/packet.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/sigmoid.cuh"
#include "kernels/cuda/tile.cuh"

namespace holdfast::kernels {
namespace {

template <typename T, bool whole>
__global__ void GatherRowsKernel(Rows<T> out, Rows<const T> in, const int32_t* choices, int chosen, Tile tile) {
  constexpr int n = kPacket<T>;
  const TileThread at(tile);
  if (at.is_empty()) return;
  int32_t from[kTileRows];
  Values<T, n> x[kTileRows];
  at.ForLoads([&](int k, int64_t slot) { from[k] = choices[slot] / chosen; });
  at.ForLoads([&](int k, int64_t) { x[k] = LoadPacket<whole, n>(in[from[k]] + at.col(), at.count()); });
  at.ForStores([&](int k, int64_t slot) { StoreValues<whole>(out[slot] + at.col(), x[k], at.count()); });
}

template <typename T>
struct CombineArgs {
  Rows<T> out;
  Rows<const T> in, last;         // the data of last may be null, or that of out
  const int32_t *slot_of, *kept;  // how many slots are
  int chosen;
};

template <typename T, bool whole>
__global__ void CombineRowsKernel(CombineArgs<T> a, Tile tile) {
  constexpr int n = kPacket<T>;
  const TileThread at(tile);
  if (at.is_empty()) return;
  const int kept = *a.kept;
  float sum[kTileRows][n] = {};
  bool begun[kTileRows] = {};  // the first one replaces the zeros: -0 stays what it is
  for (int j = 0; j < a.chosen; ++j) {
    Values<T, n> x[kTileRows];
    bool adds[kTileRows] = {};
    at.ForLoads([&](int k, int64_t row) {
      const int slot = a.slot_of[row * a.chosen + j];
      adds[k] = slot < kept;
      x[k] = LoadPacket<whole, n>(a.in[slot] + at.col(), at.count());
    });
#pragma unroll
    for (int k = 0; k < kTileRows; ++k) {
      if (!adds[k]) continue;
#pragma unroll
      for (int i = 0; i < n; ++i) sum[k][i] = begun[k] ? sum[k][i] + x[k][i] : x[k][i];
      begun[k] = true;
    }
  }
  if (a.last.data != nullptr) {
    at.ForStores([&](int k, int64_t row) {
      const auto x = LoadPacket<whole, n>(a.last[row] + at.col(), at.count());
#pragma unroll
      for (int i = 0; i < n; ++i) sum[k][i] = begun[k] ? sum[k][i] + x[i] : x[i];
    });
  }
  at.ForStores([&](int k, int64_t row) { StorePacket<whole>(a.out[row] + at.col(), sum[k], at.count()); });
}

/// The gate's activation is x sigmoid(kLimitedSlope x) where gate and up are limited.
constexpr float kLimitedSlope = 1.702f;

/// Limits a gate and an up, to which 1 is added. NaN stays.
__device__ __forceinline__ void LimitGate(float& gate, float& up, float limit) {
  gate = gate > limit ? limit : gate;
  up = (up > limit ? limit : up < -limit ? -limit : up) + 1.0f;
}

template <typename T, bool whole, bool limited>
__global__ void ExpertSwigluForwardKernel(Rows<T> out, Rows<const T> gate_up, const float* weights, float limit,
                                          const int32_t* choices, const int32_t* kept, Tile tile) {
  constexpr int n = kPacket<T>;
  const TileThread at(tile);
  if (at.is_empty()) return;
  const int end = *kept;
  float weight[kTileRows];
  Values<T, n> gate[kTileRows], up[kTileRows];
  at.ForLoads([&](int k, int64_t slot) {
    const T* from = gate_up[slot] + at.col();
    gate[k] = LoadPacket<whole, n>(from, at.count());
    up[k] = LoadPacket<whole, n>(from + tile.cols, at.count());
    weight[k] = weights[choices[slot]];
  });
  at.ForStores([&](int k, int64_t slot) {
    if (slot >= end) return;
    float y[n];
#pragma unroll
    for (int i = 0; i < n; ++i) {
      float g = gate[k][i], u = up[k][i];
      if constexpr (limited) LimitGate(g, u, limit);
      y[i] = g * Sigmoid(limited ? kLimitedSlope * g : g) * u * weight[k];
    }
    StorePacket<whole>(out[slot] + at.col(), y, at.count());
  });
}

constexpr int kWarps = 4;  // of a block, each with a row

template <typename T>
struct SwigluBackwardArgs {
  Rows<T> d_gate_up;  // its data may be that of gate_up
  float* d_weights;
  Rows<const T> d_out, gate_up;
  const float* weights;
  float limit;
  const int32_t *choices, *kept;
  int64_t slots, cols;
};

/// d_value = d_out * weight, d_weight = <d_out, activation(gate) up>; the rest as SwiGLU's backward. A lane sums every
/// 32nd packet of its row.
template <typename T, bool whole, bool limited>
__global__ void ExpertSwigluBackwardKernel(SwigluBackwardArgs<T> a) {
  constexpr int n = kPacket<T>;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t slot = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpSize;
  if (slot >= a.slots) return;
  const int32_t choice = a.choices[slot];
  if (slot >= *a.kept) {
    if (lane == 0) a.d_weights[choice] = 0;
    return;
  }
  const float weight = a.weights[choice];
  float sum = 0;
  for (int64_t col = int64_t{lane} * n; col < a.cols; col += kWarpSize * n) {
    const int64_t count = a.cols - col;
    const auto gate = LoadPacket<whole, n>(a.gate_up[slot] + col, count);
    const auto up = LoadPacket<whole, n>(a.gate_up[slot] + a.cols + col, count);
    const auto dy = LoadPacket<whole, n>(a.d_out[slot] + col, count);
    float d_gate[n], d_up[n];
#pragma unroll
    for (int i = 0; i < n; ++i) {
      float g = gate[i], u = up[i];
      if constexpr (limited) LimitGate(g, u, a.limit);
      const float steep = limited ? kLimitedSlope * g : g;
      const float s = Sigmoid(steep), silu = g * s, d = dy[i] * weight;
      sum = fmaf(dy[i], silu * u, sum);
      d_gate[i] = d * u * (s * fmaf(steep, 1.0f - s, 1.0f));
      d_up[i] = d * silu;
      if constexpr (limited) {
        if (!(gate[i] < a.limit)) d_gate[i] = 0;
        if (!(fabsf(up[i]) < a.limit)) d_up[i] = 0;
      }
    }
    StorePacket<whole>(a.d_gate_up[slot] + col, d_gate, count);
    StorePacket<whole>(a.d_gate_up[slot] + a.cols + col, d_up, count);
  }
  sum = WarpReduce(sum, Plus());
  if (lane == 0) a.d_weights[choice] = sum;
}

}  // namespace

void CudaOps::GatherRows(Matrix out, ConstMatrix in, const ExpertRows& rows) {
  WithElement(out.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int n = kPacket<T>;
    const auto to = RowsOf<T>(out);
    const auto from = RowsOf<T>(in);
    const Tile tile = TileOf(rows.slots, out.cols, n);
    WithFlag(AllWhole<n>(out.cols, to, from), [&](auto whole) {
      Launch(queue_, "GatherRows", tile.grid(), GatherRowsKernel<T, whole.value>, to, from, rows.choices,
             static_cast<int>(rows.chosen), tile);
    });
  });
}

void CudaOps::CombineRows(Matrix out, ConstMatrix in, ConstMatrix last, const ExpertRows& rows) {
  WithElement(out.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int n = kPacket<T>;
    const CombineArgs<T> args = {RowsOf<T>(out),
                                 RowsOf<T>(in),
                                 RowsOf<T>(last),
                                 rows.slot_of,
                                 rows.offsets + rows.num_experts,
                                 static_cast<int>(rows.chosen)};
    const Tile tile = TileOf(out.rows, out.cols, n);
    WithFlag(AllWhole<n>(out.cols, args.out, args.in, args.last), [&](auto whole) {
      Launch(queue_, "CombineRows", tile.grid(), CombineRowsKernel<T, whole.value>, args, tile);
    });
  });
}

void CudaOps::ExpertSwigluForward(Matrix out, ConstMatrix gate_up, const float* weights, float limit,
                                  const ExpertRows& rows) {
  WithElement(out.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int n = kPacket<T>;
    const auto y = RowsOf<T>(out);
    const auto x = RowsOf<T>(gate_up);
    const Tile tile = TileOf(rows.slots, out.cols, n);
    WithFlag(AllWhole<n>(out.cols, y, x), [&](auto whole) {
      WithFlag(limit > 0, [&](auto limited) {
        Launch(queue_, "ExpertSwigluForward", tile.grid(), ExpertSwigluForwardKernel<T, whole.value, limited.value>, y,
               x, weights, limit, rows.choices, rows.offsets + rows.num_experts, tile);
      });
    });
  });
}

void CudaOps::ExpertSwigluBackward(Matrix d_gate_up, float* d_weights, ConstMatrix d_out, ConstMatrix gate_up,
                                   const float* weights, float limit, const ExpertRows& rows) {
  WithElement(d_out.dtype, [&](auto element) {
    using T = decltype(element);
    const SwigluBackwardArgs<T> args = {.d_gate_up = RowsOf<T>(d_gate_up),
                                        .d_weights = d_weights,
                                        .d_out = RowsOf<T>(d_out),
                                        .gate_up = RowsOf<T>(gate_up),
                                        .weights = weights,
                                        .limit = limit,
                                        .choices = rows.choices,
                                        .kept = rows.offsets + rows.num_experts,
                                        .slots = rows.slots,
                                        .cols = d_out.cols};
    WithFlag(AllWhole<kPacket<T>>(d_out.cols, args.d_gate_up, args.d_out, args.gate_up), [&](auto whole) {
      WithFlag(limit > 0, [&](auto limited) {
        Launch(queue_, "ExpertSwigluBackward", {.blocks = Blocks(rows.slots, kWarps), .threads = kWarps * kWarpSize},
               ExpertSwigluBackwardKernel<T, whole.value, limited.value>, args);
      });
    });
  });
}

}  // namespace holdfast::kernels
