#pragma once
// The numbers of one optimizer update that are the same for every weight, and what a parameter makes of them.

#include <cstdint>

#include "framework/config/config.h"
#include "framework/nn/layout.h"

namespace holdfast {

/// A pure function of config, step and gradient norm, so the same on every worker.
struct UpdateScalars {
  float grad_scale = 1;  // clipping coefficient
  float lr = 0;
  float bias_correction1 = 1, bias_correction2_sqrt = 1;

  float LrOf(const ParameterSpec& parameter) const { return lr * parameter.lr_factor; }
};

/// Of a parameter, before the learning rate is multiplied to it.
inline float DecayOf(const OptimizerConfig& optimizer, const ParameterSpec& parameter) {
  return parameter.decay ? static_cast<float>(optimizer.weight_decay) * parameter.decay_factor : 0.0f;
}

/// The gradient is scaled by min(1, grad_clip_norm / (grad_norm + 1e-6)), as torch clips.
UpdateScalars ComputeUpdateScalars(const OptimizerConfig& optimizer, double lr, int64_t step, float grad_norm);

}  // namespace holdfast
