#pragma once
// The UnitStore of evaluation and sampling: every weight is in this process, and nobody wants gradients.

#include <stop_token>
#include <utility>

#include "framework/nn/model.h"

namespace holdfast {

/// Thread-safety: none.
class ResidentStore final : public UnitStore {
 public:
  /// `weights`: one tensor per parameter of `layout`. All arguments must outlive the store.
  ResidentStore(const ParameterLayout& layout, absl::Span<const Tensor> weights) : layout_(layout), weights_(weights) {}

  /// From here on Acquire fails with Cancelled once `stop` is requested.
  void SetStop(std::stop_token stop) { stop_ = std::move(stop); }

  absl::StatusOr<absl::Span<const Tensor>> Acquire(int unit) override;
  void Release(int) override {}
  absl::StatusOr<absl::Span<const Tensor>> BeginGradients(int) override;
  absl::Status EndGradients(int) override;

 private:
  const ParameterLayout& layout_;
  absl::Span<const Tensor> weights_;
  std::stop_token stop_;
};

}  // namespace holdfast
