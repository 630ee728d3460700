#pragma once
// What a model asks for weights of which only a part is trained: the rest lies whole with every rank, in the dtype in
// which passes read it, and nothing of it is updated, sent, mirrored or saved.

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/nn/model.h"
#include "framework/nn/trained_part.h"
#include "framework/tensor/tensor.h"

namespace holdfast {

/// The units of a model of which `trained` has the trained parameters. Gradients of the others are tensors without a
/// shape: the model makes none. Thread-safety: none.
class PartlyFrozenStore final : public UnitStore {
 public:
  /// `frozen`: by parameter of parts.model(). All arguments must outlive the store.
  PartlyFrozenStore(const TrainedPart& parts, absl::Span<const Tensor> frozen, UnitStore& trained);

  absl::StatusOr<absl::Span<const Tensor>> Acquire(int unit) override;
  void Release(int unit) override;
  absl::StatusOr<absl::Span<const Tensor>> BeginGradients(int unit) override;
  absl::Status EndGradients(int unit) override;

 private:
  /// Puts the trained ones of a unit into `all`, which has the others.
  absl::Span<const Tensor> Merge(int unit, absl::Span<const Tensor> trained, std::vector<Tensor>& all) const;

  const TrainedPart& parts_;
  UnitStore& trained_;
  std::vector<std::vector<Tensor>> weights_, gradients_;  // by unit of the model
};

}  // namespace holdfast
