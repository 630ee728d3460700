#pragma once
// The calls that are timed on a GPU, in the shapes of GPT-2 124M, GPT-2 1558M and Llama 3.2 1B: operands, operations
// and bytes of each, and what was expected of it before anything was measured (tests/bench/NOTES.md). Nothing here
// knows a GPU.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/ops.h"

namespace holdfast::kernels {

/// Where the operands of a case lie: memory of a device, kept until the case is done.
class Operands {
 public:
  virtual ~Operands() = default;
  /// Filled with normal values. Rows are `stride` elements apart, or with 0 as many as there are columns.
  virtual Matrix New(DType dtype, int64_t rows, int64_t cols, int64_t stride) = 0;
  virtual const int32_t* Copy(const std::vector<int32_t>& values) = 0;

  Matrix New(DType dtype, int64_t rows, int64_t cols) { return New(dtype, rows, cols, 0); }
  float* NewVector(int64_t n) { return static_cast<float*>(New(DType::kF32, 1, n).data); }
};

struct Prepared {
  std::function<void(Ops&)> call;
  std::function<void(Ops&)> before = nullptr;  ///< once, for operands that another operation makes
};

/// Parts of the most that the device could do: 0.22 to 0.27.
struct Expected {
  double least, most;
};

struct KernelCase {
  std::string name;  ///< family/what/shape
  double flops = 0;  ///< of matrix products and attention's; elementwise work is not counted
  double bytes = 0;  ///< with every operand read and written once
  std::optional<Expected> expected;
  std::function<Prepared(Operands&)> prepare;
};

/// `shrink` divides rows, sequences, vocabularies and the lengths of vectors: tests need no large ones.
std::vector<KernelCase> KernelCases(int64_t shrink = 1);

/// Those whose name contains `text`.
std::vector<KernelCase> Filtered(std::vector<KernelCase> cases, const std::string& text);

}  // namespace holdfast::kernels
