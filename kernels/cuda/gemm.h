#pragma once
// Matrix products on a GPU, through cuBLASLt.
//
// For every kind of product (its sizes, types, strides, alignments; see GemmShape) one algorithm is chosen, once: the
// one pinned for it in a GemmTable, or else the first that cuBLASLt's heuristic proposes, among those whose sums have a
// fixed order. The heuristic is a function of the product, the library's version and the GPU's model, so equal machines
// choose alike; ranks on unequal ones need a table.
//
// A bias added to a bf16 product by cuBLASLt is rounded to bf16 first: the library takes no other.

#include <memory>

#include "kernels/cuda/cuda_queue.h"
#include "kernels/ops.h"

namespace holdfast::kernels {

class GemmTable;

class CudaGemm {
 public:
  virtual ~CudaGemm() = default;
  virtual void Run(const GemmArgs& args) = 0;
};

/// `queue`, and `pinned` if given, must outlive the result.
std::unique_ptr<CudaGemm> MakeCudaGemm(CudaQueue& queue, const GemmTable* pinned = nullptr);

/// Times cuBLASLt's best proposals for the product that `args` asks for, and pins the fastest in `table`. Waits for the
/// GPU; what c and pre_gelu hold is lost.
void TuneGemm(CudaQueue& queue, const GemmArgs& args, GemmTable& table);

}  // namespace holdfast::kernels
