#include "framework/optim/balancing.h"

namespace holdfast {

std::vector<Plane> WithBalancing::PlanesOf(const ParameterSpec& parameter) const {
  if (!parameter.balance.has_value()) return inner().PlanesOf(parameter);
  return {{kWeightPlane}};
}

void WithBalancing::Apply(kernels::Ops& ops, const PlaneRun& run, const UpdateScalars& scalars,
                          uint16_t* weight_bf16) const {
  if (!run.parameter->balance.has_value()) return inner().Apply(ops, run, scalars, weight_bf16);
  ops.Axpby(run.planes[0], run.parameter->balance->rate, run.update, 1.0f, run.planes[0], run.n);
}

}  // namespace holdfast
