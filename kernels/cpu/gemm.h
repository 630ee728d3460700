#pragma once
// Our own matrix product. It is the only one that is fast in bf16 on processors without bf16 instructions, and its bits
// depend on neither the number of threads nor the number of rows (see microkernel-inl.h).

#include "kernels/executor.h"
#include "kernels/ops.h"

namespace holdfast::kernels {

/// CpuOps::Gemm on our own kernel.
void OwnGemm(Executor& executor, const GemmArgs& args);

}  // namespace holdfast::kernels
