#pragma once
// The definition of one Lion update, shared by every device so that an owner on a GPU and its mirror in CPU memory
// compute the same bits. No operation here may be contracted, reassociated or replaced by an approximation.

#include <cmath>

#include "kernels/cpu_and_gpu.h"

namespace holdfast::kernels {

struct LionState {
  float weight, exp_avg;
};

/// Chen et al. 2023, algorithm 2, in this order:
///   g  = grad * grad_scale
///   u  = sign(fma(beta1, m, (1 - beta1) * g)), 0 of 0
///   m' = fma(beta2, m, (1 - beta2) * g)
///   w' = fma(-lr, u, fma(-(lr * weight_decay), w, w))
HOLDFAST_CPU_AND_GPU inline LionState LionScalar(LionState s, float grad, float grad_scale, float lr, float beta1,
                                                 float beta2, float weight_decay) {
  const float g = grad * grad_scale;
  const float c = std::fma(beta1, s.exp_avg, (1.0f - beta1) * g);
  const float u = c > 0.0f ? 1.0f : c < 0.0f ? -1.0f : 0.0f;
  const float m = std::fma(beta2, s.exp_avg, (1.0f - beta2) * g);
  const float decayed = std::fma(-(lr * weight_decay), s.weight, s.weight);
  return {std::fma(-lr, u, decayed), m};
}

}  // namespace holdfast::kernels
