#pragma once
// An optimizer that changes another one's planes or arithmetic, and leaves updates of whole matrices to it.

#include <memory>
#include <utility>
#include <vector>

#include "framework/optim/optimizer.h"

namespace holdfast {

class DecoratedOptimizer : public Optimizer {
 public:
  bool TakesWhole(const ParameterSpec& parameter) const final { return inner_->TakesWhole(parameter); }
  void Contribute(kernels::Ops& ops, const PlaneRange& range, const UpdateScalars& scalars, float* out) const final {
    inner_->Contribute(ops, range, scalars, out);
  }
  int64_t WorkspaceElements(const ParameterSpec& parameter) const final { return inner_->WorkspaceElements(parameter); }
  absl::Status MakeUpdate(Device& device, Stream& stream, const ParameterSpec& parameter, float* matrix,
                          float* workspace) const final {
    return inner_->MakeUpdate(device, stream, parameter, matrix, workspace);
  }

 protected:
  explicit DecoratedOptimizer(std::unique_ptr<Optimizer> inner) : inner_(std::move(inner)) {}
  const Optimizer& inner() const { return *inner_; }

 private:
  std::unique_ptr<Optimizer> inner_;
};

}  // namespace holdfast
