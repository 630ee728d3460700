#pragma once
// Matrix products on a GPU, through cuBLASLt.

#include <memory>

#include "kernels/cuda/cuda_queue.h"
#include "kernels/ops.h"

namespace holdfast::kernels {

class CudaGemm {
 public:
  virtual ~CudaGemm() = default;
  virtual void Run(const GemmArgs& args) = 0;
};

/// `queue` must outlive the result.
std::unique_ptr<CudaGemm> MakeCudaGemm(CudaQueue& queue);

}  // namespace holdfast::kernels
