#pragma once
// The Ops of a CUDA device; one file for each family of operations.

#include <memory>

#include "kernels/cuda/cuda_queue.h"
#include "kernels/cuda/gemm.h"
#include "kernels/ops.h"

namespace holdfast::kernels {

class CudaOps final : public Ops {
 public:
  CudaOps(CudaQueue& queue, const GemmChoice& gemms) : queue_(queue), gemm_(MakeCudaGemm(queue, gemms)) {}

  void Gemm(const GemmArgs& args) override { gemm_->Run(args); }
  void ColumnSum(float* out, ConstMatrix in) override;
  void EmbeddingForward(Matrix out, const int32_t* tokens, ConstMatrix token_table, ConstMatrix position_table,
                        const Positions& positions, const Dropout& dropout) override;
  void EmbeddingBackward(Matrix d_token_table, Matrix d_position_table, const int32_t* tokens, ConstMatrix d_out,
                         const Positions& positions, const Dropout& dropout) override;
  void NormForward(Matrix out, Matrix residual_out, const NormStats& stats, ConstMatrix residual, ConstMatrix branch,
                   const NormParams& params, const Dropout& dropout) override;
  void NormBackward(Matrix d_input, float* d_weight, float* d_bias, ConstMatrix d_residual, ConstMatrix d_out,
                    ConstMatrix input, const NormStats& stats, const NormParams& params) override;
  void ApplyDropout(Matrix out, ConstMatrix in, const Dropout& dropout) override;
  void Rope(Matrix x, const float* cos_sin, int64_t num_heads, int64_t head_dim, const Positions& positions,
            bool inverse) override;
  void AttentionForward(Matrix out, float* lse, ConstMatrix qkv, const AttentionShape& shape) override;
  void AttentionBackward(Matrix d_qkv, ConstMatrix d_out, ConstMatrix out, const float* lse, ConstMatrix qkv,
                         const AttentionShape& shape) override;
  void Clip(Matrix out, ConstMatrix in, float limit) override;
  void ClipBackward(Matrix d, ConstMatrix in, float limit) override;
  void GeluBackward(Matrix d_in, ConstMatrix d_out, ConstMatrix in) override;
  void SwigluForward(Matrix out, ConstMatrix gate_up) override;
  void SwigluBackward(Matrix d_gate_up, ConstMatrix d_out, ConstMatrix gate_up) override;
  void RouterForward(const RouterOut& out, ConstMatrix logits, const RouterShape& shape) override;
  void RouterBackward(const RouterBackwardArgs& args, const RouterShape& shape) override;
  void RouterReport(const RouterReportArgs& args, const RouterShape& shape) override;
  void SortChoices(const SortedChoices& out, const int32_t* experts, const float* weights, int64_t rows,
                   const RouterShape& shape) override;
  void Jitter(Matrix out, ConstMatrix in, float range, const RandomKey& key) override;
  void GatherRows(Matrix out, ConstMatrix in, const ExpertRows& rows) override;
  void CombineRows(Matrix out, ConstMatrix in, ConstMatrix last, const ExpertRows& rows) override;
  void ExpertGemm(const ExpertGemmArgs& args, const ExpertRows& rows) override;
  void ExpertGradient(const ExpertGradientArgs& args, const ExpertRows& rows) override;
  void ExpertSwigluForward(Matrix out, ConstMatrix gate_up, const float* weights, const ExpertRows& rows) override;
  void ExpertSwigluBackward(Matrix d_gate_up, float* d_weights, ConstMatrix d_out, ConstMatrix gate_up,
                            const float* weights, const ExpertRows& rows) override;
  void SoftmaxCrossEntropy(float* losses, Matrix d_logits, ConstMatrix logits, const int32_t* targets,
                           float grad_scale) override;
  void AdamW(const AdamWArgs& args) override;
  void Lion(const LionArgs& args) override;
  void ChunkSumSquares(double* sums, const float* x, const int64_t* offsets, int64_t num_chunks) override;
  void Add(float* a, const float* b, int64_t n) override;
  void Axpby(float* out, float alpha, const float* x, float beta, const float* y, int64_t n) override;
  void Zero(void* data, size_t bytes) override;
  void Copy(void* out, const void* in, size_t bytes) override;
  void CastToBf16(uint16_t* out, const float* in, int64_t n) override;
  void FillNormal(float* out, int64_t n, int64_t first, float stddev, const RandomKey& key) override;

 private:
  CudaQueue& queue_;
  std::unique_ptr<CudaGemm> gemm_;
};

}  // namespace holdfast::kernels
