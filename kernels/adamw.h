#pragma once
// The definition of one AdamW update, shared by every device so that an owner on a GPU and its mirror in CPU memory
// compute the same bits. No operation here may be contracted, reassociated or replaced by an approximation.

#include <cmath>

#include "kernels/cpu_and_gpu.h"

namespace holdfast::kernels {

struct AdamWState {
  float weight, exp_avg, exp_avg_sq;
};

/// Loshchilov & Hutter 2019, algorithm 2, in this order:
///   g  = grad * grad_scale
///   m' = fma(beta1, m, (1 - beta1) * g)
///   v' = fma(beta2, v, ((1 - beta2) * g) * g)
///   u  = (m' / bias_correction1) / (sqrt(v') / bias_correction2_sqrt + eps)
///   w' = fma(-lr, u, w - (lr * weight_decay) * w)     with the inner difference as fma(-(lr * weight_decay), w, w)
HOLDFAST_CPU_AND_GPU inline AdamWState AdamWScalar(AdamWState s, float grad, float grad_scale, float lr, float beta1,
                                                   float beta2, float eps, float weight_decay, float bias_correction1,
                                                   float bias_correction2_sqrt) {
  const float g = grad * grad_scale;
  const float m = std::fma(beta1, s.exp_avg, (1.0f - beta1) * g);
  const float v = std::fma(beta2, s.exp_avg_sq, ((1.0f - beta2) * g) * g);
  const float u = (m / bias_correction1) / (std::sqrt(v) / bias_correction2_sqrt + eps);
  const float decayed = std::fma(-(lr * weight_decay), s.weight, s.weight);
  return {std::fma(-lr, u, decayed), m, v};
}

}  // namespace holdfast::kernels
