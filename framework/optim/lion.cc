#include "framework/optim/lion.h"

namespace holdfast {

void Lion::Apply(kernels::Ops& ops, const PlaneRange& range, const UpdateScalars& scalars,
                 uint16_t* weight_bf16) const {
  ops.Lion({.n = range.n,
            .weight = range.planes[0],
            .exp_avg = range.planes[1],
            .grad = range.gradient,
            .weight_bf16 = weight_bf16,
            .grad_scale = scalars.grad_scale,
            .lr = scalars.LrOf(*range.parameter),
            .beta1 = static_cast<float>(config_.beta1),
            .beta2 = static_cast<float>(config_.beta2),
            .weight_decay = DecayOf(config_, *range.parameter)});
}

}  // namespace holdfast
