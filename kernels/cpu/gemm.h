#pragma once
// Our own matrix product. It is the only one that is fast in bf16 on processors without bf16 instructions, and its bits
// depend on neither the number of threads nor the number of rows (see microkernel-inl.h).

#include <cstdint>

#include "kernels/executor.h"
#include "kernels/ops.h"

namespace holdfast::kernels {

/// CpuOps::Gemm on our own kernel.
void OwnGemm(Executor& executor, const GemmArgs& args);

/// Part of C: rows [row0, row0 + rows), columns [col0, col0 + cols).
struct Rectangle {
  int64_t row0, col0, rows, cols;
};

/// What comes after the sums for one part of C: + C, + bias, GELU, rounding. `sums` has rows `stride` apart.
void FinishTile(const GemmArgs& args, const float* sums, int64_t stride, const Rectangle& part);

}  // namespace holdfast::kernels
