// GELU and SwiGLU.

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/packet.cuh"
#include "kernels/cuda/sigmoid.cuh"
#include "kernels/cuda/tile.cuh"

namespace holdfast::kernels {
namespace {

/// s + x s (1 - s) a'(x) with s = sigmoid(a).
__device__ __forceinline__ float GeluDerivative(float x) {
  const float x2 = x * x;
  const float s = GeluSigmoid(x);
  const float slope = fmaf(x2, 0.2140644488159f, 1.5957691216057308f);
  return fmaf(x * s * (1.0f - s), slope, s);
}

template <typename T, bool whole>
__global__ void GeluForwardKernel(Rows<T> out, Rows<const T> in, Tile tile) {
  constexpr int n = kPacket<T>;
  const TileThread at(tile);
  if (at.is_empty()) return;
  Values<T, n> x[kTileRows];
  at.ForLoads([&](int k, int64_t row) { x[k] = LoadPacket<whole, n>(in[row] + at.col(), at.count()); });
  at.ForStores([&](int k, int64_t row) {
    float y[n];
#pragma unroll
    for (int i = 0; i < n; ++i) y[i] = Gelu(x[k][i]);
    StorePacket<whole>(out[row] + at.col(), y, at.count());
  });
}

template <typename T, bool whole>
__global__ void GeluBackwardKernel(Rows<T> d_in, Rows<const T> d_out, Rows<const T> in, Tile tile) {
  constexpr int n = kPacket<T>;
  const TileThread at(tile);
  if (at.is_empty()) return;
  Values<T, n> x[kTileRows], dy[kTileRows];
  at.ForLoads([&](int k, int64_t row) {
    x[k] = LoadPacket<whole, n>(in[row] + at.col(), at.count());
    dy[k] = LoadPacket<whole, n>(d_out[row] + at.col(), at.count());
  });
  at.ForStores([&](int k, int64_t row) {
    float dx[n];
#pragma unroll
    for (int i = 0; i < n; ++i) dx[i] = dy[k][i] * GeluDerivative(x[k][i]);
    StorePacket<whole>(d_in[row] + at.col(), dx, at.count());
  });
}

template <typename T, bool whole>
__global__ void SwigluForwardKernel(Rows<T> out, Rows<const T> gate_up, Tile tile) {
  constexpr int n = kPacket<T>;
  const TileThread at(tile);
  if (at.is_empty()) return;
  Values<T, n> gate[kTileRows], up[kTileRows];
  at.ForLoads([&](int k, int64_t row) {
    const T* from = gate_up[row] + at.col();
    gate[k] = LoadPacket<whole, n>(from, at.count());
    up[k] = LoadPacket<whole, n>(from + tile.cols, at.count());
  });
  at.ForStores([&](int k, int64_t row) {
    float y[n];
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const float g = gate[k][i];
      y[i] = g * Sigmoid(g) * up[k][i];
    }
    StorePacket<whole>(out[row] + at.col(), y, at.count());
  });
}

/// d_up = d silu(gate);  d_gate = d up s (1 + gate (1 - s)), s = sigmoid(gate).
template <typename T, bool whole>
__global__ void SwigluBackwardKernel(Rows<T> d_gate_up, Rows<const T> d_out, Rows<const T> gate_up, Tile tile) {
  constexpr int n = kPacket<T>;
  const TileThread at(tile);
  if (at.is_empty()) return;
  Values<T, n> gate[kTileRows], up[kTileRows], dy[kTileRows];
  at.ForLoads([&](int k, int64_t row) {
    const T* from = gate_up[row] + at.col();
    gate[k] = LoadPacket<whole, n>(from, at.count());
    up[k] = LoadPacket<whole, n>(from + tile.cols, at.count());
    dy[k] = LoadPacket<whole, n>(d_out[row] + at.col(), at.count());
  });
  at.ForStores([&](int k, int64_t row) {
    float d_gate[n], d_up[n];
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const float g = gate[k][i], d = dy[k][i], s = Sigmoid(g);
      d_gate[i] = d * up[k][i] * (s * fmaf(g, 1.0f - s, 1.0f));
      d_up[i] = d * (g * s);
    }
    T* to = d_gate_up[row] + at.col();
    StorePacket<whole>(to, d_gate, at.count());
    StorePacket<whole>(to + tile.cols, d_up, at.count());
  });
}

}  // namespace

void CudaOps::GeluForward(Matrix out, ConstMatrix in) {
  WithElement(in.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int n = kPacket<T>;
    const auto y = RowsOf<T>(out);
    const auto x = RowsOf<T>(in);
    const Tile tile = TileOf(in.rows, in.cols, n);
    WithFlag(AllWhole<n>(in.cols, y, x), [&](auto whole) {
      Launch(queue_, "GeluForward", tile.grid(), GeluForwardKernel<T, whole.value>, y, x, tile);
    });
  });
}

void CudaOps::GeluBackward(Matrix d_in, ConstMatrix d_out, ConstMatrix in) {
  WithElement(in.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int n = kPacket<T>;
    const auto dx = RowsOf<T>(d_in);
    const auto dy = RowsOf<T>(d_out), x = RowsOf<T>(in);
    const Tile tile = TileOf(in.rows, in.cols, n);
    WithFlag(AllWhole<n>(in.cols, dx, dy, x), [&](auto whole) {
      Launch(queue_, "GeluBackward", tile.grid(), GeluBackwardKernel<T, whole.value>, dx, dy, x, tile);
    });
  });
}

void CudaOps::SwigluForward(Matrix out, ConstMatrix gate_up) {
  WithElement(out.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int n = kPacket<T>;
    const auto y = RowsOf<T>(out);
    const auto x = RowsOf<T>(gate_up);
    const Tile tile = TileOf(out.rows, out.cols, n);
    WithFlag(AllWhole<n>(out.cols, y, x), [&](auto whole) {
      Launch(queue_, "SwigluForward", tile.grid(), SwigluForwardKernel<T, whole.value>, y, x, tile);
    });
  });
}

void CudaOps::SwigluBackward(Matrix d_gate_up, ConstMatrix d_out, ConstMatrix gate_up) {
  WithElement(d_out.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int n = kPacket<T>;
    const auto dx = RowsOf<T>(d_gate_up);
    const auto dy = RowsOf<T>(d_out), x = RowsOf<T>(gate_up);
    const Tile tile = TileOf(d_out.rows, d_out.cols, n);
    WithFlag(AllWhole<n>(d_out.cols, dx, dy, x), [&](auto whole) {
      Launch(queue_, "SwigluBackward", tile.grid(), SwigluBackwardKernel<T, whole.value>, dx, dy, x, tile);
    });
  });
}

}  // namespace holdfast::kernels
