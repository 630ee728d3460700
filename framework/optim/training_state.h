#pragma once
// Weights and AdamW state of a model, and the update.

#include <cstdint>

#include "absl/status/statusor.h"
#include "framework/config/config.h"
#include "framework/nn/weights.h"

namespace holdfast {

/// Scalars of one update, the same on every worker: a pure function of config, step and gradient norm.
struct UpdateScalars {
  float grad_scale = 1;  // clipping coefficient
  float lr = 0;
  float bias_correction1 = 1, bias_correction2_sqrt = 1;
};

/// `step` counts from 0. The gradient is scaled by min(1, grad_clip_norm / (grad_norm + 1e-6)), as torch clips.
UpdateScalars ComputeUpdateScalars(const OptimizerConfig& optimizer, double lr, int64_t step, float grad_norm);

/// Thread-safety: none.
class TrainingState {
 public:
  /// Uninitialised weights, moments of zero. `layout`, `device` and `ops` must outlive the state.
  static absl::StatusOr<TrainingState> Create(const ParameterLayout& layout, DType compute_dtype, Device& device,
                                              kernels::Ops& ops);

  Weights& weights() { return weights_; }
  const Weights& weights() const { return weights_; }

  /// Updates unit `unit` with its gradient (flat, in the unit's order).
  void ApplyAdamW(int unit, const float* grad, const OptimizerConfig& optimizer, const UpdateScalars& scalars);

  /// One 64-bit hash over weights and moments: XXH3 of every chunk's values, then of the chunk hashes in canonical
  /// order, so that any placement of chunks gives the same value.
  uint64_t Digest() const;

  size_t optimizer_bytes() const { return exp_avg_.bytes() + exp_avg_sq_.bytes(); }

 private:
  TrainingState(Weights weights, Device& device, kernels::Ops& ops)
      : weights_(std::move(weights)), device_(&device), ops_(&ops) {}

  Weights weights_;
  Device* device_;
  kernels::Ops* ops_;
  Buffer exp_avg_, exp_avg_sq_;  // fp32 (elements)
};

}  // namespace holdfast
