#include "framework/optim/update.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/portable_math.h"

namespace holdfast {

UpdateScalars ComputeUpdateScalars(const OptimizerConfig& optimizer, double lr, int64_t step, float grad_norm) {
  UpdateScalars scalars;
  scalars.lr = static_cast<float>(lr);
  if (optimizer.grad_clip_norm > 0) {
    scalars.grad_scale = static_cast<float>(std::min(1.0, optimizer.grad_clip_norm / (double{grad_norm} + 1e-6)));
  }
  const auto count = static_cast<uint64_t>(step);
  scalars.bias_correction1 = static_cast<float>(1.0 - portable::IntegerPower(optimizer.beta1, count));
  scalars.bias_correction2_sqrt = static_cast<float>(std::sqrt(1.0 - portable::IntegerPower(optimizer.beta2, count)));
  return scalars;
}

}  // namespace holdfast
