#pragma once
// The UnitStore of a world of one: every weight is in this process, and a gradient is complete as soon as its
// microbatches are summed.

#include <memory>
#include <stop_token>
#include <vector>

#include "framework/nn/model.h"
#include "framework/parallel/summation_tree.h"

namespace holdfast {

/// Thread-safety: none.
class ResidentStore final : public UnitStore {
 public:
  /// `weights`: one tensor per parameter of `layout`. All arguments must outlive the store.
  ResidentStore(const ParameterLayout& layout, absl::Span<const Tensor> weights, Device& device, kernels::Ops& ops);

  /// Forgets all gradients. From here on Acquire fails with Cancelled once `stop` is requested.
  void BeginStep(std::stop_token stop);
  /// The sum of a unit's gradients over the microbatches, flat in the unit's order; valid until BeginStep.
  const float* Gradient(int unit) { return trees_[static_cast<size_t>(unit)].Finish(); }
  size_t gradient_bytes() const;

  absl::StatusOr<absl::Span<const Tensor>> Acquire(int unit) override;
  void Release(int) override {}
  absl::StatusOr<absl::Span<const Tensor>> BeginGradients(int unit) override;
  absl::Status EndGradients(int unit) override;

 private:
  const ParameterLayout& layout_;
  absl::Span<const Tensor> weights_;
  std::vector<SummationTree> trees_;            // one per unit
  std::vector<std::vector<Tensor>> gradients_;  // one list per unit, while it is open
  std::stop_token stop_;
};

}  // namespace holdfast
