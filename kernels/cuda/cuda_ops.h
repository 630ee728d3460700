#pragma once
// The Ops of a CUDA device; one file for each family of operations.

#include <memory>

#include "kernels/cuda/attention_hopper.h"
#include "kernels/cuda/cuda_queue.h"
#include "kernels/cuda/gemm.h"
#include "kernels/ops.h"

namespace holdfast::kernels {

class CudaOps final : public Ops {
 public:
  CudaOps(CudaQueue& queue, const GemmChoice& gemms) : queue_(queue), gemm_(MakeCudaGemm(queue, *this, gemms)) {}

#define HOLDFAST_OPERATION(name, parameters, arguments) void name parameters override
#include "kernels/ops.def"

 private:
  CudaQueue& queue_;
  std::unique_ptr<CudaGemm> gemm_;
  const bool hopper_ = HasHopperAttention(queue_);
};

inline void CudaOps::Gemm(const GemmArgs& args) { gemm_->Run(args); }

}  // namespace holdfast::kernels
