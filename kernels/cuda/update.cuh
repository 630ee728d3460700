#pragma once
// Updates of flat vectors by an optimizer: a thread does a packet of neighbours.

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/packet.cuh"

namespace holdfast::kernels {

inline constexpr int kUpdateThreads = 256;
inline constexpr int kUpdated = 4;  // values of a thread

/// `Update` has Run<whole>(args, i), which updates the kUpdated values from i on, or as many as there are.
template <class Update, typename Args>
__global__ void __launch_bounds__(kUpdateThreads) UpdateKernel(Args args, bool aligned) {
  const int64_t i = (int64_t{blockIdx.x} * kUpdateThreads + threadIdx.x) * kUpdated;
  if (aligned && i + kUpdated <= args.n) {
    Update::template Run<true>(args, i);
  } else if (i < args.n) {
    Update::template Run<false>(args, i);
  }
}

/// `vectors`: all that the update reads and writes, some null perhaps.
template <class Update, typename Args, typename... Vectors>
void QueueUpdate(CudaQueue& queue, const char* operation, const Args& args, Vectors*... vectors) {
  Launch(queue, operation, {.blocks = Blocks(args.n, kUpdateThreads * kUpdated), .threads = kUpdateThreads},
         UpdateKernel<Update, Args>, args, AllWhole<kUpdated>(0, OneRow(vectors)...));
}

}  // namespace holdfast::kernels
