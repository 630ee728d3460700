#pragma once
// Any optimizer, and a moving average of the weights that it makes: one more plane, the last.

#include <memory>
#include <utility>

#include "framework/optim/optimizer.h"

namespace holdfast {

class WithEma final : public Optimizer {
 public:
  WithEma(std::unique_ptr<Optimizer> optimizer, double decay)
      : optimizer_(std::move(optimizer)), decay_(static_cast<float>(decay)) {}

  std::vector<Plane> PlanesOf(const ParameterSpec& parameter) const override;
  bool TakesWhole(const ParameterSpec& parameter) const override { return optimizer_->TakesWhole(parameter); }
  void Contribute(kernels::Ops& ops, const PlaneRun& run, const UpdateScalars& scalars, float* out) const override {
    optimizer_->Contribute(ops, run, scalars, out);
  }
  int64_t WorkspaceElements(const ParameterSpec& parameter) const override {
    return optimizer_->WorkspaceElements(parameter);
  }
  absl::Status MakeUpdate(Device& device, Stream& stream, const ParameterSpec& parameter, float* matrix,
                          float* workspace) const override {
    return optimizer_->MakeUpdate(device, stream, parameter, matrix, workspace);
  }
  /// average' = fma(decay, average, (1 - decay) * weight')
  void Apply(kernels::Ops& ops, const PlaneRun& run, const UpdateScalars& scalars,
             uint16_t* weight_bf16) const override;

 private:
  std::unique_ptr<Optimizer> optimizer_;
  float decay_;
};

}  // namespace holdfast
