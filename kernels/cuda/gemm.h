#pragma once
// Matrix products on a GPU, through cuBLASLt.
//
// For every kind of product (its sizes, types, strides, alignments; see GemmShape) one algorithm is chosen, once: the
// one pinned for it in a GemmTable, or else the first that cuBLASLt's heuristic proposes, among those whose sums have a
// fixed order. The heuristic is a function of the product, the library's version and the GPU's model, so equal machines
// choose alike; ranks on unequal ones need a table. A table is made by tuning: see GemmChoice.
//
// What comes after a product is part of it where cuBLASLt can, or apart: other kernels do it. GELU and its derivative
// are fused by default, sums of A (the gradient of a bias) only where a table says so; tuning times both ways and notes
// the faster in the table. Apart, a bf16 product is rounded before GELU or its derivative, so the choice decides bits.
//
// Large products whose sizes are no multiple of 16 bytes are done in two parts: gemm_split.h.
//
// Of two operands, a bf16 and a fp32 one, the former is first copied to fp32 (4 bytes an element of working memory),
// and the product is one of fp32: the library takes operands of one type only.
//
// A bias added to a bf16 product by cuBLASLt is rounded to bf16 first: the library takes no other. With some of its
// algorithms so is the product, before the bias or what c holds is added (seen on an H200).

#include <cstddef>
#include <memory>

#include "kernels/cuda/cuda_queue.h"
#include "kernels/gemm_table.h"
#include "kernels/ops.h"

namespace holdfast::kernels {

/// Working memory that every product may take; what NVIDIA recommends for Hopper.
inline constexpr size_t kGemmWorkspaceBytes = size_t{32} << 20;

class CudaGemm {
 public:
  virtual ~CudaGemm() = default;
  virtual void Run(const GemmArgs& args) = 0;
};

/// Of the library at hand, for a GemmTable.
size_t CublasLtVersion();

/// `queue`, `ops` (which does what comes after a product, on that queue) and `choice.pinned` must outlive the result.
std::unique_ptr<CudaGemm> MakeCudaGemm(CudaQueue& queue, Ops& ops, const GemmChoice& choice);

}  // namespace holdfast::kernels
