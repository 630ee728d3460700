#include "kernels/adamw.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/update.cuh"

namespace holdfast::kernels {
namespace {

// Moves 28 bytes a value, and 2 for its bf16.
struct AdamWUpdate {
  template <bool whole>
  static __device__ __forceinline__ void Run(const AdamWArgs& a, int64_t i) {
    constexpr int n = kUpdated;
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
};

}  // namespace

void CudaOps::AdamW(const AdamWArgs& args) {
  QueueUpdate<AdamWUpdate>(queue_, "AdamW", args, args.weight, args.exp_avg, args.exp_avg_sq, args.grad,
                           reinterpret_cast<Bf16*>(args.weight_bf16));
}

}  // namespace holdfast::kernels
