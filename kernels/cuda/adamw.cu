#include "kernels/adamw.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/packet.cuh"

namespace holdfast::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kOfThread = 4;

/// The kOfThread values from i on, or as many as there are.
template <bool whole>
__device__ __forceinline__ void Update(const AdamWArgs& a, int64_t i) {
  constexpr int n = kOfThread;
  const int64_t count = a.n - i;
  const auto weight = LoadPacket<whole, n>(a.weight + i, count), grad = LoadPacket<whole, n>(a.grad + i, count);
  const auto exp_avg = LoadPacket<whole, n>(a.exp_avg + i, count);
  const auto exp_avg_sq = LoadPacket<whole, n>(a.exp_avg_sq + i, count);
  float w[n], m[n], v[n];
#pragma unroll
  for (int k = 0; k < n; ++k) {
    const AdamWState next = AdamWScalar({weight[k], exp_avg[k], exp_avg_sq[k]}, grad[k], a.grad_scale, a.lr, a.beta1,
                                        a.beta2, a.eps, a.weight_decay, a.bias_correction1, a.bias_correction2_sqrt);
    w[k] = next.weight;
    m[k] = next.exp_avg;
    v[k] = next.exp_avg_sq;
  }
  StorePacket<whole>(a.weight + i, w, count);
  StorePacket<whole>(a.exp_avg + i, m, count);
  StorePacket<whole>(a.exp_avg_sq + i, v, count);
  if (a.weight_bf16 != nullptr) StorePacket<whole>(reinterpret_cast<Bf16*>(a.weight_bf16) + i, w, count);
}

// Moves 28 bytes a value, and 2 for its bf16.
__global__ void __launch_bounds__(kThreads) AdamWKernel(AdamWArgs args, bool aligned) {
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kOfThread;
  if (aligned && i + kOfThread <= args.n) {
    Update<true>(args, i);
  } else if (i < args.n) {
    Update<false>(args, i);
  }
}

}  // namespace

void CudaOps::AdamW(const AdamWArgs& args) {
  const bool aligned = AllWhole<kOfThread>(0, OneRow(args.weight), OneRow(args.exp_avg), OneRow(args.exp_avg_sq),
                                           OneRow(args.grad), OneRow(reinterpret_cast<Bf16*>(args.weight_bf16)));
  Launch(queue_, "AdamW", {.blocks = Blocks(args.n, kThreads * kOfThread), .threads = kThreads}, AdamWKernel, args,
         aligned);
}

}  // namespace holdfast::kernels
