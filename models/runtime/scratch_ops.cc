#include "models/runtime/scratch_ops.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "models/plan.h"

namespace holdfast {
namespace {

/// Offsets of experts of which the first has all slots.
std::vector<int32_t> AllOfTheFirst(int64_t num_experts, int64_t slots) {
  std::vector<int32_t> offsets(static_cast<size_t>(num_experts) + 1, static_cast<int32_t>(slots));
  offsets.front() = 0;
  return offsets;
}

}  // namespace

void ScratchOps::Gemm(const kernels::GemmArgs& args) { ops_->Gemm(args); }

void ScratchOps::AttentionForward(kernels::Matrix out, float* lse, kernels::ConstMatrix qkv,
                                  const kernels::AttentionShape& shape) {
  ops_->AttentionForward(out, lse, qkv, shape);
}

void ScratchOps::AttentionBackward(kernels::Matrix d_qkv, kernels::ConstMatrix d_out, kernels::ConstMatrix out,
                                   const float* lse, kernels::ConstMatrix qkv, const kernels::AttentionShape& shape) {
  ops_->AttentionBackward(d_qkv, d_out, out, lse, qkv, shape);
}

void ScratchOps::ExpertGemm(const kernels::ExpertGemmArgs& args, const kernels::ExpertRows& rows) {
  const std::vector<int32_t> offsets = AllOfTheFirst(rows.num_experts, args.c.rows);
  ops_->ExpertGemm(args, {.num_experts = rows.num_experts, .offsets = offsets.data()});
}

void ScratchOps::ExpertGradient(const kernels::ExpertGradientArgs& args, const kernels::ExpertRows& rows) {
  const std::vector<int32_t> offsets = AllOfTheFirst(rows.num_experts, args.a.rows);
  ops_->ExpertGradient(args, {.num_experts = rows.num_experts, .offsets = offsets.data()});
}

size_t PlanScratch(Model& model, int64_t batch, int64_t sequence, kernels::Arithmetic arithmetic, int threads) {
  ScratchOps ops(arithmetic, threads);
  DryPasses(model, batch, sequence, ops);
  return ops.bytes();
}

}  // namespace holdfast
