#pragma once
// Operations that compute nothing and touch no memory: they count the floating-point operations of matrix products
// (multiply and add apart). Elementwise work is not counted.

#include "kernels/ops.h"

namespace holdfast {

class CountingOps final : public kernels::Ops {
 public:
  double flops() const { return flops_; }

  void Gemm(const kernels::GemmArgs& args) override;
  void AttentionForward(kernels::Matrix out, float* lse, kernels::ConstMatrix qkv,
                        const kernels::AttentionShape& shape) override;
  void AttentionBackward(kernels::Matrix d_qkv, kernels::ConstMatrix d_out, kernels::ConstMatrix out, const float* lse,
                         kernels::ConstMatrix qkv, const kernels::AttentionShape& shape) override;

  void ExpertGemm(const kernels::ExpertGemmArgs& args, const kernels::ExpertRows& rows) override;
  void ExpertGradient(const kernels::ExpertGradientArgs& args, const kernels::ExpertRows& rows) override;

  void RouterForward(const kernels::RouterOut&, kernels::ConstMatrix, const kernels::RouterShape&) override {}
  void RouterBackward(const kernels::RouterBackwardArgs&, const kernels::RouterShape&) override {}
  void RouterReport(const kernels::RouterReportArgs&, const kernels::RouterShape&) override {}
  void SortChoices(const kernels::SortedChoices&, const int32_t*, const float*, int64_t,
                   const kernels::RouterShape&) override {}
  void Jitter(kernels::Matrix, kernels::ConstMatrix, float, const kernels::RandomKey&) override {}
  void GatherRows(kernels::Matrix, kernels::ConstMatrix, const kernels::ExpertRows&) override {}
  void CombineRows(kernels::Matrix, kernels::ConstMatrix, kernels::ConstMatrix, const kernels::ExpertRows&) override {}
  void ExpertSwigluForward(kernels::Matrix, kernels::ConstMatrix, const float*, const kernels::ExpertRows&) override {}
  void ExpertSwigluBackward(kernels::Matrix, float*, kernels::ConstMatrix, kernels::ConstMatrix, const float*,
                            const kernels::ExpertRows&) override {}
  void ColumnSum(float*, kernels::ConstMatrix) override {}
  void EmbeddingForward(kernels::Matrix, const int32_t*, kernels::ConstMatrix, kernels::ConstMatrix,
                        const kernels::Positions&, const kernels::Dropout&) override {}
  void EmbeddingBackward(kernels::Matrix, kernels::Matrix, const int32_t*, kernels::ConstMatrix,
                         const kernels::Positions&, const kernels::Dropout&) override {}
  void NormForward(kernels::Matrix, kernels::Matrix, const kernels::NormStats&, kernels::ConstMatrix,
                   kernels::ConstMatrix, const kernels::NormParams&, const kernels::Dropout&) override {}
  void NormBackward(kernels::Matrix, float*, float*, kernels::ConstMatrix, kernels::ConstMatrix, kernels::ConstMatrix,
                    const kernels::NormStats&, const kernels::NormParams&) override {}
  void ApplyDropout(kernels::Matrix, kernels::ConstMatrix, const kernels::Dropout&) override {}
  void Rope(kernels::Matrix, const float*, int64_t, int64_t, const kernels::Positions&, bool) override {}
  void Clip(kernels::Matrix, kernels::ConstMatrix, float) override {}
  void ClipBackward(kernels::Matrix, kernels::ConstMatrix, float) override {}
  void GeluBackward(kernels::Matrix, kernels::ConstMatrix, kernels::ConstMatrix) override {}
  void SwigluForward(kernels::Matrix, kernels::ConstMatrix) override {}
  void SwigluBackward(kernels::Matrix, kernels::ConstMatrix, kernels::ConstMatrix) override {}
  void SoftmaxCrossEntropy(float*, kernels::Matrix, kernels::ConstMatrix, const int32_t*, float) override {}
  void AdamW(const kernels::AdamWArgs&) override {}
  void Lion(const kernels::LionArgs&) override {}
  void ChunkSumSquares(double*, const float*, const int64_t*, int64_t) override {}
  void Add(float*, const float*, int64_t) override {}
  void Axpby(float*, float, const float*, float, const float*, int64_t) override {}
  void Zero(void*, size_t) override {}
  void Copy(void*, const void*, size_t) override {}
  void CastToBf16(uint16_t*, const float*, int64_t) override {}
  void FillNormal(float*, int64_t, int64_t, float, const kernels::RandomKey&) override {}

 private:
  double flops_ = 0;
};

}  // namespace holdfast
