#pragma once
// The UnitStore of evaluation and sampling: every weight is in this process, and nobody wants gradients.

#include "framework/nn/model.h"

namespace holdfast {

/// Thread-safety: none.
class ResidentStore final : public UnitStore {
 public:
  /// `weights`: one tensor per parameter of `layout`. All arguments must outlive the store.
  ResidentStore(const ParameterLayout& layout, absl::Span<const Tensor> weights) : layout_(layout), weights_(weights) {}

  absl::StatusOr<absl::Span<const Tensor>> Acquire(int unit) override;
  void Release(int) override {}
  absl::StatusOr<absl::Span<const Tensor>> BeginGradients(int) override;
  absl::Status EndGradients(int) override;

 private:
  const ParameterLayout& layout_;
  absl::Span<const Tensor> weights_;
};

}  // namespace holdfast
