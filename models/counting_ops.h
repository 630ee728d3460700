#pragma once
// Operations that compute nothing and touch no memory: they count the floating-point operations of matrix products
// (multiply and add apart). Elementwise work is not counted.

#include <functional>

#include "kernels/forwarding_ops.h"

namespace holdfast {

class CountingOps final : public kernels::ForwardingOps {
 public:
  double flops() const { return flops_; }

  void Gemm(const kernels::GemmArgs& args) override;
  void AttentionForward(kernels::Matrix out, float* lse, kernels::ConstMatrix qkv,
                        const kernels::AttentionShape& shape) override;
  void AttentionBackward(kernels::Matrix d_qkv, kernels::ConstMatrix d_out, kernels::ConstMatrix out, const float* lse,
                         kernels::ConstMatrix qkv, const kernels::AttentionShape& shape) override;

  void ExpertGemm(const kernels::ExpertGemmArgs& args, const kernels::ExpertRows& rows) override;
  void ExpertGradient(const kernels::ExpertGradientArgs& args, const kernels::ExpertRows& rows) override;

 private:
  void Forward(std::function<void(kernels::Ops&)>) override {}

  double flops_ = 0;
};

}  // namespace holdfast
