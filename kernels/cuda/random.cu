// Normal numbers. The arithmetic is that of kernels/cpu/random.cc, operation by operation, so that a model starts from
// the same bits on either device.

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/packet.cuh"
#include "kernels/philox.h"

namespace holdfast::kernels {
namespace {

constexpr int kThreads = 256;

/// ln u for u in (0, 1]: 2^k m with m in [sqrt(1/2), sqrt(2)), ln m = 2 atanh(s) with s = (m - 1) / (m + 1).
__device__ __forceinline__ float LogUnit(float u) {
  const auto bits = static_cast<int32_t>(__float_as_uint(u));
  const int32_t k = (bits - 0x3f3504f3) >> 23;  // sqrt(1/2)
  const float f = __uint_as_float(static_cast<uint32_t>(bits) - (static_cast<uint32_t>(k) << 23)) - 1.0f;
  const float s = f / (f + 2.0f), s2 = s * s;
  float p = 2.0f / 9.0f;
  p = fmaf(p, s2, 2.0f / 7.0f);
  p = fmaf(p, s2, 2.0f / 5.0f);
  p = fmaf(p, s2, 2.0f / 3.0f);
  p = fmaf(p, s2, 2.0f);
  return fmaf(static_cast<float>(k), 0.69314718056f, p * s);
}

/// Sine and cosine of 2 pi w / 2^32: the quarter turn nearest to w is taken off in integers, the rest by Taylor's
/// series.
__device__ __forceinline__ float2 SinCosTurn(uint32_t w) {
  const uint32_t quarter = (w + (1u << 29)) >> 30;
  const float x = static_cast<float>(static_cast<int32_t>(w - (quarter << 30))) * 1.46291807926715968e-9f;
  const float x2 = x * x;
  float s = 1.0f / 362880;
  s = fmaf(s, x2, -1.0f / 5040);
  s = fmaf(s, x2, 1.0f / 120);
  s = fmaf(s, x2, -1.0f / 6);
  s = fmaf(s * x2, x, x);
  float c = -1.0f / 3628800;
  c = fmaf(c, x2, 1.0f / 40320);
  c = fmaf(c, x2, -1.0f / 720);
  c = fmaf(c, x2, 1.0f / 24);
  c = fmaf(c, x2, -0.5f);
  c = fmaf(c, x2, 1.0f);
  // Swapped in odd quarters; sine negative in 2 and 3, cosine in 1 and 2.
  const bool swap = (quarter & 1u) != 0;
  const uint32_t sine_sign = quarter >> 1 << 31, cosine_sign = (quarter + 1) >> 1 << 31;
  return {__uint_as_float(__float_as_uint(swap ? c : s) ^ sine_sign),
          __uint_as_float(__float_as_uint(swap ? s : c) ^ cosine_sign)};
}

/// Box & Muller (1958), with u = (k + 1/2) / 2^23 of the 23 upper bits of a word: never 0 or 1.
__device__ __forceinline__ float2 BoxMuller(uint32_t radius_word, uint32_t angle_word, float stddev) {
  const float u = fmaf(static_cast<float>(radius_word >> 9), 0x1p-23f, 0x1p-24f);
  const float radius = sqrtf(-2.0f * LogUnit(u)) * stddev;
  const float2 turn = SinCosTurn(angle_word);
  return {radius * turn.y, radius * turn.x};
}

// A thread does one Philox block: elements 4 b .. 4 b + 3 of the stream, those of them in [first, first + n).
__global__ void __launch_bounds__(kThreads)
    FillNormalKernel(float* out, int64_t n, int64_t first, float stddev, RandomKey key, bool aligned) {
  const int64_t block = first / 4 + int64_t{blockIdx.x} * kThreads + threadIdx.x, at = block * 4 - first;
  if (at >= n) return;
  const Philox4 words = Philox(key, static_cast<uint64_t>(block));
  const float2 a = BoxMuller(words.v[0], words.v[1], stddev), b = BoxMuller(words.v[2], words.v[3], stddev);
  const float z[4] = {a.x, a.y, b.x, b.y};
  if (aligned && at >= 0 && at + 4 <= n) {
    StorePacket<true>(out + at, z, 4);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (at + i >= 0 && at + i < n) out[at + i] = z[i];
  }
}

}  // namespace

void CudaOps::FillNormal(float* out, int64_t n, int64_t first, float stddev, const RandomKey& key) {
  const bool aligned = first % 4 == 0 && IsAligned<4>(OneRow(out));
  Launch(queue_, "FillNormal", {.blocks = Blocks(first % 4 + n, 4 * kThreads), .threads = kThreads}, FillNormalKernel,
         out, n, first, stddev, key, aligned);
}

}  // namespace holdfast::kernels
