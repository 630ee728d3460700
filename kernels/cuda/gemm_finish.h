#pragma once
// What cuBLASLt does not do at the end of a product.

#include "kernels/cuda/cuda_queue.h"
#include "kernels/ops.h"

namespace holdfast::kernels {

/// Bias, pre_gelu, GELU and rounding into args.c from `sums` (M, N) fp32, which already hold what args.accumulate asks
/// for and may be c or pre_gelu itself. Without `sums` they are zeros, or what c holds if args.accumulate.
void FinishGemm(CudaQueue& queue, const GemmArgs& args, ConstMatrix sums);

/// Whether this build has kernels for the thread's GPU.
bool HasKernelsForThisGpu();

}  // namespace holdfast::kernels
