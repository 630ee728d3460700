#pragma once
// An operand of a kernel that is measured.

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "framework/base/aligned_memory.h"
#include "kernels/ops.h"

namespace holdfast::kernels {

/// Memory of a (rows, cols) matrix as a device has it, whose values are small and not denormal in either dtype.
struct Operand {
  std::unique_ptr<void, decltype(&std::free)> data;
  Matrix view;

  Operand(DType dtype, int64_t rows, int64_t cols)
      : data(AllocateAligned(static_cast<size_t>(rows * cols) * SizeOf(dtype) + sizeof(float)), &std::free),
        view{data.get(), dtype, rows, cols, cols} {
    std::fill_n(static_cast<float*>(data.get()), static_cast<size_t>(rows * cols) * SizeOf(dtype) / 4 + 1, 0.001f);
  }
};

}  // namespace holdfast::kernels
