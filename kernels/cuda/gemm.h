#pragma once
// Matrix products on a GPU, through cuBLASLt.
//
// For every kind of product (its sizes, types, strides, alignments; see GemmShape) one algorithm is chosen, once: the
// one pinned for it in a GemmTable, or else the first that cuBLASLt's heuristic proposes, among those whose sums have a
// fixed order. The heuristic is a function of the product, the library's version and the GPU's model, so equal machines
// choose alike; ranks on unequal ones need a table. A table is made by tuning: see GemmChoice.
//
// A bias added to a bf16 product by cuBLASLt is rounded to bf16 first: the library takes no other.

#include <memory>

#include "kernels/cuda/cuda_queue.h"
#include "kernels/gemm_table.h"
#include "kernels/ops.h"

namespace holdfast::kernels {

class CudaGemm {
 public:
  virtual ~CudaGemm() = default;
  virtual void Run(const GemmArgs& args) = 0;
};

/// Of the library at hand, for a GemmTable.
size_t CublasLtVersion();

/// `queue` and `choice.pinned` must outlive the result.
std::unique_ptr<CudaGemm> MakeCudaGemm(CudaQueue& queue, const GemmChoice& choice);

}  // namespace holdfast::kernels
