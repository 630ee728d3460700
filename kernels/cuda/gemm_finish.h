#pragma once
// What cuBLASLt does not do at the end of a product.

#include <string>

#include "kernels/cuda/cuda_queue.h"
#include "kernels/ops.h"

namespace holdfast::kernels {

/// What c holds if args.accumulate, bias, pre_gelu, GELU and rounding into args.c from `sums` (M, N) fp32, which may be
/// pre_gelu or c itself: the latter already have what args.accumulate asks for. Without `sums` they are zeros.
void FinishGemm(CudaQueue& queue, const GemmArgs& args, ConstMatrix sums);

/// Whether this build has kernels for the thread's GPU. False with a text in `other_error`: CUDA could not say.
bool HasKernelsForThisGpu(std::string& other_error);

/// Of the compiler of these kernels, such as "13.0.88".
std::string NvccVersion();

}  // namespace holdfast::kernels
