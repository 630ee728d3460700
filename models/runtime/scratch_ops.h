#pragma once
// Operations that compute nothing: they measure the scratch memory that a CPU's kernels take for matrix products and
// attention. No other operation of a pass takes more.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "framework/base/scratch_meter.h"
#include "framework/nn/model.h"
#include "kernels/forwarding_ops.h"

namespace holdfast {

class ScratchOps final : public kernels::ForwardingOps {
 public:
  ScratchOps(kernels::Arithmetic arithmetic, int threads)
      : meter_(threads), ops_(kernels::MakeCpuOps(meter_, arithmetic)) {}

  size_t bytes() const { return meter_.bytes(); }

  void Gemm(const kernels::GemmArgs& args) override;
  void AttentionForward(kernels::Matrix out, float* lse, kernels::ConstMatrix qkv,
                        const kernels::AttentionShape& shape) override;
  void AttentionBackward(kernels::Matrix d_qkv, kernels::ConstMatrix d_out, kernels::ConstMatrix out, const float* lse,
                         kernels::ConstMatrix qkv, const kernels::AttentionShape& shape) override;
  // As if one expert were chosen by all rows, which takes most.
  void ExpertGemm(const kernels::ExpertGemmArgs& args, const kernels::ExpertRows& rows) override;
  void ExpertGradient(const kernels::ExpertGradientArgs& args, const kernels::ExpertRows& rows) override;

 private:
  void Forward(std::function<void(kernels::Ops&)>) override {}

  ScratchMeter meter_;
  std::unique_ptr<kernels::Ops> ops_;
};

/// Bytes of scratch memory that kernels of a CPU take in PlanTraining's pass and in PlanEvaluation's, on so many
/// threads.
size_t PlanScratch(Model& model, int64_t batch, int64_t sequence, kernels::Arithmetic arithmetic, int threads);

}  // namespace holdfast
