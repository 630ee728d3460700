#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/update.cuh"
#include "kernels/lion.h"

namespace holdfast::kernels {
namespace {

// Moves 20 bytes a value, and 2 for its bf16.
struct LionUpdate {
  template <bool whole>
  static __device__ __forceinline__ void Run(const LionArgs& a, int64_t i) {
    constexpr int n = kUpdated;
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
};

}  // namespace

void CudaOps::Lion(const LionArgs& args) {
  QueueUpdate<LionUpdate>(queue_, "Lion", args, args.weight, args.exp_avg, args.grad,
                          reinterpret_cast<Bf16*>(args.weight_bf16));
}

}  // namespace holdfast::kernels
