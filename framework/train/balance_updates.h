#pragma once
// The updates of parameters that counts of a step change (ParameterSpec::balance). A step's counts are integers and the
// same on every rank, so every holder of such a parameter, mirrors included, works out the same update by itself.

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/nn/layout.h"
#include "framework/nn/statistics.h"
#include "framework/tensor/tensor.h"

namespace holdfast {

/// Thread-safety: none.
class BalanceUpdates {
 public:
  /// `layout` and `device` must outlive it. Takes no memory if there are no such parameters.
  static absl::StatusOr<BalanceUpdates> Create(const ParameterLayout& layout, Device& device);

  /// The updates of a step, by chunk, as UpdateArguments has them: of these parameters from its statistics, else those
  /// in `others`, which may be empty. Valid until the next call. Work with earlier ones has ended.
  absl::Span<const float* const> With(const Statistics& step, absl::Span<const float* const> others);

 private:
  BalanceUpdates(const ParameterLayout& layout, Device& device);

  const ParameterLayout* layout_;
  Device* device_;
  std::vector<int> chunks_;  // of these parameters
  std::vector<float> here_;  // of those, one after the other
  Buffer updates_;
  std::vector<const float*> by_chunk_;
};

}  // namespace holdfast
