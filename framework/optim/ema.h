#pragma once
// Any optimizer, and a moving average of the weights that it makes: one more plane, the last.

#include <memory>
#include <utility>
#include <vector>

#include "framework/optim/decorated.h"

namespace holdfast {

class WithEma final : public DecoratedOptimizer {
 public:
  WithEma(std::unique_ptr<Optimizer> optimizer, double decay)
      : DecoratedOptimizer(std::move(optimizer)), decay_(static_cast<float>(decay)) {}

  std::vector<Plane> PlanesOf(const ParameterSpec& parameter) const override;
  /// average' = fma(decay, average, (1 - decay) * weight')
  void Apply(kernels::Ops& ops, const PlaneRange& range, const UpdateScalars& scalars,
             uint16_t* weight_bf16) const override;

 private:
  float decay_;
};

}  // namespace holdfast
