#include "framework/optim/adamw.h"

namespace holdfast {

void AdamW::Apply(kernels::Ops& ops, const PlaneRange& range, const UpdateScalars& scalars,
                  uint16_t* weight_bf16) const {
  ops.AdamW({.n = range.n,
             .weight = range.planes[0],
             .exp_avg = range.planes[1],
             .exp_avg_sq = range.planes[2],
             .grad = range.gradient,
             .weight_bf16 = weight_bf16,
             .grad_scale = scalars.grad_scale,
             .lr = scalars.LrOf(*range.parameter),
             .beta1 = static_cast<float>(config_.beta1),
             .beta2 = static_cast<float>(config_.beta2),
             .eps = static_cast<float>(config_.eps) * range.parameter->eps_factor,
             .weight_decay = DecayOf(config_, *range.parameter),
             .bias_correction1 = scalars.bias_correction1,
             .bias_correction2_sqrt = scalars.bias_correction2_sqrt});
}

}  // namespace holdfast
