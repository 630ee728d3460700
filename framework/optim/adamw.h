#pragma once
// AdamW (Loshchilov & Hutter 2019): two moments. One pass over memory, whose arithmetic is kernels/adamw.h's.

#include "framework/optim/optimizer.h"

namespace holdfast {

class AdamW final : public Optimizer {
 public:
  explicit AdamW(const OptimizerConfig& config) : config_(config) {}

  std::vector<Plane> PlanesOf(const ParameterSpec&) const override {
    return {{kWeightPlane}, {"exp_avg"}, {"exp_avg_sq"}};
  }
  void Apply(kernels::Ops& ops, const PlaneRange& range, const UpdateScalars& scalars,
             uint16_t* weight_bf16) const override;

 private:
  OptimizerConfig config_;
};

}  // namespace holdfast
