// GELU, SwiGLU and GeGLU.

#include <type_traits>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/packet.cuh"
#include "kernels/cuda/sigmoid.cuh"
#include "kernels/cuda/tile.cuh"

namespace holdfast::kernels {
namespace {

/// s + x s (1 - s) a'(x) with s = sigmoid(a).
__device__ __forceinline__ float GeluDerivative(float x, float s) {
  const float x2 = x * x;
  const float slope = fmaf(x2, 0.2140644488159f, 1.5957691216057308f);
  return fmaf(x * s * (1.0f - s), slope, s);
}

/// The activation of a gate is x s.
template <GateKind kind>
__device__ __forceinline__ float GateSigmoid(float x) {
  if constexpr (kind == GateKind::kGelu) {
    return GeluSigmoid(x);
  } else {
    return Sigmoid(x);
  }
}

/// Of the activation with s = GateSigmoid(x).
template <GateKind kind>
__device__ __forceinline__ float GateDerivative(float x, float s) {
  if constexpr (kind == GateKind::kGelu) {
    return GeluDerivative(x, s);
  } else {
    return s * fmaf(x, 1.0f - s, 1.0f);
  }
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
    for (int i = 0; i < n; ++i) dx[i] = dy[k][i] * GeluDerivative(x[k][i], GeluSigmoid(x[k][i]));
    StorePacket<whole>(d_in[row] + at.col(), dx, at.count());
  });
}

template <typename T, bool whole, GateKind kind>
__global__ void GatedForwardKernel(Rows<T> out, Rows<const T> gate_up, Tile tile) {
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
      y[i] = g * GateSigmoid<kind>(g) * up[k][i];
    }
    StorePacket<whole>(out[row] + at.col(), y, at.count());
  });
}

/// d_up = d activation(gate);  d_gate = d up activation'(gate).
template <typename T, bool whole, GateKind kind>
__global__ void GatedBackwardKernel(Rows<T> d_gate_up, Rows<const T> d_out, Rows<const T> gate_up, Tile tile) {
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
      const float g = gate[k][i], d = dy[k][i], s = GateSigmoid<kind>(g);
      d_gate[i] = d * up[k][i] * GateDerivative<kind>(g, s);
      d_up[i] = d * (g * s);
    }
    T* to = d_gate_up[row] + at.col();
    StorePacket<whole>(to, d_gate, at.count());
    StorePacket<whole>(to + tile.cols, d_up, at.count());
  });
}

template <class Body>
void WithGate(GateKind kind, Body&& body) {
  if (kind == GateKind::kGelu) {
    body(std::integral_constant<GateKind, GateKind::kGelu>{});
  } else {
    body(std::integral_constant<GateKind, GateKind::kSilu>{});
  }
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

void CudaOps::GatedForward(Matrix out, ConstMatrix gate_up, GateKind kind) {
  WithElement(out.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int n = kPacket<T>;
    const auto y = RowsOf<T>(out);
    const auto x = RowsOf<T>(gate_up);
    const Tile tile = TileOf(out.rows, out.cols, n);
    WithFlag(AllWhole<n>(out.cols, y, x), [&](auto whole) {
      WithGate(kind, [&](auto gate) {
        Launch(queue_, "GatedForward", tile.grid(), GatedForwardKernel<T, whole.value, gate.value>, y, x, tile);
      });
    });
  });
}

void CudaOps::GatedBackward(Matrix d_gate_up, ConstMatrix d_out, ConstMatrix gate_up, GateKind kind) {
  WithElement(d_out.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int n = kPacket<T>;
    const auto dx = RowsOf<T>(d_gate_up);
    const auto dy = RowsOf<T>(d_out), x = RowsOf<T>(gate_up);
    const Tile tile = TileOf(d_out.rows, d_out.cols, n);
    WithFlag(AllWhole<n>(d_out.cols, dx, dy, x), [&](auto whole) {
      WithGate(kind, [&](auto gate) {
        Launch(queue_, "GatedBackward", tile.grid(), GatedBackwardKernel<T, whole.value, gate.value>, dx, dy, x, tile);
      });
    });
  });
}

}  // namespace holdfast::kernels
