#include "framework/optim/ema.h"

namespace holdfast {

std::vector<Plane> WithEma::PlanesOf(const ParameterSpec& parameter) const {
  std::vector<Plane> planes = inner().PlanesOf(parameter);
  planes.push_back({kEmaPlane, /*begins_as_weight=*/true});
  return planes;
}

void WithEma::Apply(kernels::Ops& ops, const PlaneRange& range, const UpdateScalars& scalars,
                    uint16_t* weight_bf16) const {
  inner().Apply(ops, range, scalars, weight_bf16);
  float* const average = range.planes.back();
  ops.Axpby(average, decay_, average, 1.0f - decay_, range.planes[0], range.n);
}

}  // namespace holdfast
