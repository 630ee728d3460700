#pragma once
// Lion (Chen et al. 2023): one moment. One pass over memory, whose arithmetic is kernels/lion.h's.

#include "framework/optim/optimizer.h"

namespace holdfast {

class Lion final : public Optimizer {
 public:
  explicit Lion(const OptimizerConfig& config) : config_(config) {}

  std::vector<Plane> PlanesOf(const ParameterSpec&) const override { return {{kWeightPlane}, {"exp_avg"}}; }
  void Apply(kernels::Ops& ops, const PlaneRange& range, const UpdateScalars& scalars,
             uint16_t* weight_bf16) const override;

 private:
  OptimizerConfig config_;
};

}  // namespace holdfast
