#pragma once
// Any optimizer, and the rule of parameters that counts of a step change (ParameterSpec::balance): these have a weight
// and nothing else, and are neither clipped nor decayed, nor does the learning rate touch them.

#include <memory>
#include <utility>
#include <vector>

#include "framework/optim/decorated.h"

namespace holdfast {

class WithBalancing final : public DecoratedOptimizer {
 public:
  explicit WithBalancing(std::unique_ptr<Optimizer> optimizer) : DecoratedOptimizer(std::move(optimizer)) {}

  std::vector<Plane> PlanesOf(const ParameterSpec& parameter) const override;
  /// Of such a parameter range.update is +1, 0 or -1 for each value: weight' = fma(rate, update, weight).
  void Apply(kernels::Ops& ops, const PlaneRange& range, const UpdateScalars& scalars,
             uint16_t* weight_bf16) const override;
};

}  // namespace holdfast
