#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/packet.cuh"
#include "kernels/lion.h"

namespace holdfast::kernels {
namespace {

constexpr int kLionThreads = 256;
constexpr int kLionOfThread = 4;

/// The kLionOfThread values from i on, or as many as there are.
template <bool whole>
__device__ __forceinline__ void UpdateLion(const LionArgs& a, int64_t i) {
  constexpr int n = kLionOfThread;
  const int64_t count = a.n - i;
  const auto weight = LoadPacket<whole, n>(a.weight + i, count), grad = LoadPacket<whole, n>(a.grad + i, count);
  const auto exp_avg = LoadPacket<whole, n>(a.exp_avg + i, count);
  float w[n], m[n];
#pragma unroll
  for (int k = 0; k < n; ++k) {
    const LionState next =
        LionScalar({weight[k], exp_avg[k]}, grad[k], a.grad_scale, a.lr, a.beta1, a.beta2, a.weight_decay);
    w[k] = next.weight;
    m[k] = next.exp_avg;
  }
  StorePacket<whole>(a.weight + i, w, count);
  StorePacket<whole>(a.exp_avg + i, m, count);
  if (a.weight_bf16 != nullptr) StorePacket<whole>(reinterpret_cast<Bf16*>(a.weight_bf16) + i, w, count);
}

// Moves 20 bytes a value, and 2 for its bf16.
__global__ void __launch_bounds__(kLionThreads) LionKernel(LionArgs args, bool aligned) {
  const int64_t i = (int64_t{blockIdx.x} * kLionThreads + threadIdx.x) * kLionOfThread;
  if (aligned && i + kLionOfThread <= args.n) {
    UpdateLion<true>(args, i);
  } else if (i < args.n) {
    UpdateLion<false>(args, i);
  }
}

}  // namespace

void CudaOps::Lion(const LionArgs& args) {
  const bool aligned = AllWhole<kLionOfThread>(0, OneRow(args.weight), OneRow(args.exp_avg), OneRow(args.grad),
                                               OneRow(reinterpret_cast<Bf16*>(args.weight_bf16)));
  Launch(queue_, "Lion", {.blocks = Blocks(args.n, kLionThreads * kLionOfThread), .threads = kLionThreads}, LionKernel,
         args, aligned);
}

}  // namespace holdfast::kernels
