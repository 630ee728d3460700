#pragma once
// One kind of product and what cuBLASLt needs to run it.
//
// cuBLASLt thinks in columns, and a row-major matrix read by columns is its transpose: so it is asked for
// C^T (N, M) = op(B)^T op(A)^T, with our B as its A.

#include <cublasLt.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/gemm.h"
#include "kernels/gemm_table.h"
#include "kernels/ops.h"

namespace holdfast::kernels {

/// All that the choice of an algorithm may depend on. Alignments are in bytes, of the address, 16 at most: a buffer
/// that happens to lie better gets no other bits.
struct GemmShape {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  DType in = DType::kF32, out = DType::kF32;
  bool accumulate = false;
  // Epilogue. gelu_input and a_sums stand alone, each without all others.
  bool bias = false;  // of the type of `out`
  bool gelu = false, pre_gelu = false;
  bool gelu_input = false;
  bool a_sums = false;  // of the type of `out`
  int64_t a_stride = 0, b_stride = 0, c_stride = 0, aux_stride = 0;
  int a_alignment = 0, b_alignment = 0, c_alignment = 0;
  int vector_alignment = 0, aux_alignment = 0;  // of bias or a_sums; of pre_gelu or gelu_input

  auto operator<=>(const GemmShape&) const = default;

  bool has_vector() const { return bias || a_sums; }
  bool has_aux() const { return pre_gelu || gelu_input; }

  /// Without blanks; the key of a GemmTable.
  std::string Name() const;
};

int GemmAlignmentOf(const void* address);

/// A call's pointers.
struct GemmPointers {
  const void *a = nullptr, *b = nullptr;
  void* c = nullptr;
  const void* vector = nullptr;  // bias to read, or a_sums to write
  const void* aux = nullptr;     // pre_gelu to write, or gelu_input to read
};

class GemmPlan {
 public:
  /// Not runnable if cuBLASLt refuses the descriptions, which `status` then says.
  explicit GemmPlan(const GemmShape& shape);

  const GemmShape& shape() const { return shape_; }
  cublasStatus_t status() const { return status_; }
  bool runnable() const { return has_algorithm_; }
  /// Whether the product is to be computed without its epilogue, which other kernels then do.
  bool is_apart() const { return is_apart_; }
  void SetApart(bool apart) { is_apart_ = apart; }

  /// Up to `most` algorithms with a fixed order of sums, the best first.
  std::vector<GemmAlgorithm> Propose(cublasLtHandle_t handle, int most);

  void Take(const GemmAlgorithm& algorithm);
  /// False if the library says that the algorithm does not fit this product.
  bool TakeChecked(cublasLtHandle_t handle, const GemmAlgorithm& algorithm);

  /// Queues the product with the algorithm taken.
  cublasStatus_t Run(cublasLtHandle_t handle, const GemmPointers& at, void* workspace, cudaStream_t stream);

 private:
  struct Destroy {
    void operator()(cublasLtMatmulDesc_t x) const { cublasLtMatmulDescDestroy(x); }
    void operator()(cublasLtMatrixLayout_t x) const { cublasLtMatrixLayoutDestroy(x); }
    void operator()(cublasLtMatmulPreference_t x) const { cublasLtMatmulPreferenceDestroy(x); }
  };
  template <typename Opaque>
  using Owned = std::unique_ptr<Opaque, Destroy>;
  using Layout = Owned<cublasLtMatrixLayoutOpaque_t>;

  void Check(cublasStatus_t status);
  template <typename T>
  void Set(cublasLtMatmulDescAttributes_t attribute, const T& value);
  Layout MakeLayout(DType dtype, int64_t rows, int64_t cols, int64_t stride);
  void DescribeEpilogue();
  void SetPointers(const void* vector, const void* aux);

  GemmShape shape_;
  cublasStatus_t status_ = CUBLAS_STATUS_SUCCESS;
  Owned<cublasLtMatmulDescOpaque_t> product_;
  Layout a_, b_, c_;
  bool has_algorithm_ = false, is_apart_ = false;
  cublasLtMatmulAlgo_t algorithm_ = {};
};

}  // namespace holdfast::kernels
