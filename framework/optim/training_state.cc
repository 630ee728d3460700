#include "framework/optim/training_state.h"

#include <algorithm>
#include <cmath>

#define XXH_INLINE_ALL
#include "framework/base/status.h"
#include "xxhash.h"

namespace holdfast {

UpdateScalars ComputeUpdateScalars(const OptimizerConfig& optimizer, double lr, int64_t step, float grad_norm) {
  UpdateScalars scalars;
  scalars.lr = static_cast<float>(lr);
  if (optimizer.grad_clip_norm > 0) {
    scalars.grad_scale = static_cast<float>(std::min(1.0, optimizer.grad_clip_norm / (double{grad_norm} + 1e-6)));
  }
  const auto count = static_cast<double>(step + 1);
  scalars.bias_correction1 = static_cast<float>(1.0 - std::pow(optimizer.beta1, count));
  scalars.bias_correction2_sqrt = static_cast<float>(std::sqrt(1.0 - std::pow(optimizer.beta2, count)));
  return scalars;
}

absl::StatusOr<TrainingState> TrainingState::Create(const ParameterLayout& layout, DType compute_dtype, Device& device,
                                                    kernels::Ops& ops) {
  HF_ASSIGN_OR_RETURN(Weights weights, Weights::Create(layout, compute_dtype, device, ops));
  TrainingState state(std::move(weights), device, ops);
  const size_t bytes = static_cast<size_t>(layout.elements()) * sizeof(float);
  HF_ASSIGN_OR_RETURN(state.exp_avg_, Buffer::Allocate(device, bytes));
  HF_ASSIGN_OR_RETURN(state.exp_avg_sq_, Buffer::Allocate(device, bytes));
  ops.Zero(state.exp_avg_.data(), bytes);
  ops.Zero(state.exp_avg_sq_.data(), bytes);
  return state;
}

void TrainingState::ApplyAdamW(int unit_index, const float* grad, const OptimizerConfig& optimizer,
                               const UpdateScalars& scalars) {
  const ParameterLayout& layout = weights_.layout();
  const Unit& unit = layout.units()[static_cast<size_t>(unit_index)];
  for (int i = unit.first_parameter; i < unit.first_parameter + unit.num_parameters; ++i) {
    const ParameterSpec& p = layout.parameters()[static_cast<size_t>(i)];
    ops_->AdamW({.n = p.shape.elements(),
                 .weight = weights_.master(i),
                 .exp_avg = exp_avg_.as<float>() + p.offset,
                 .exp_avg_sq = exp_avg_sq_.as<float>() + p.offset,
                 .grad = grad + p.unit_offset,
                 .weight_bf16 = weights_.bf16_copy(i),
                 .grad_scale = scalars.grad_scale,
                 .lr = scalars.lr,
                 .beta1 = static_cast<float>(optimizer.beta1),
                 .beta2 = static_cast<float>(optimizer.beta2),
                 .eps = static_cast<float>(optimizer.eps),
                 .weight_decay = p.decay ? static_cast<float>(optimizer.weight_decay) : 0.0f,
                 .bias_correction1 = scalars.bias_correction1,
                 .bias_correction2_sqrt = scalars.bias_correction2_sqrt});
  }
}

uint64_t TrainingState::Digest() const {
  std::vector<uint64_t> hashes;
  std::vector<float> values;
  for (const Chunk& chunk : weights_.layout().chunks()) {
    const auto n = static_cast<size_t>(chunk.elements);
    values.resize(3 * n);
    weights_.Read(chunk.offset, absl::MakeSpan(values).first(n));
    device_->CopyToHost(values.data() + n, exp_avg_.as<float>() + chunk.offset, n * sizeof(float));
    device_->CopyToHost(values.data() + 2 * n, exp_avg_sq_.as<float>() + chunk.offset, n * sizeof(float));
    hashes.push_back(XXH3_64bits(values.data(), values.size() * sizeof(float)));
  }
  return XXH3_64bits(hashes.data(), hashes.size() * sizeof(uint64_t));
}

}  // namespace holdfast
