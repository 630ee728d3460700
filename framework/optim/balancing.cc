#include "framework/optim/balancing.h"

namespace holdfast {

std::vector<Plane> WithBalancing::PlanesOf(const ParameterSpec& parameter) const {
  if (!parameter.balance.has_value()) return inner().PlanesOf(parameter);
  return {{kWeightPlane}};
}

void WithBalancing::Apply(kernels::Ops& ops, const PlaneRange& range, const UpdateScalars& scalars,
                          uint16_t* weight_bf16) const {
  if (!range.parameter->balance.has_value()) return inner().Apply(ops, range, scalars, weight_bf16);
  ops.Axpby(range.planes[0], range.parameter->balance->rate, range.update, 1.0f, range.planes[0], range.n);
}

}  // namespace holdfast
