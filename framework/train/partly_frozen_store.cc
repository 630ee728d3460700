#include "framework/train/partly_frozen_store.h"

#include <cstddef>

#include "framework/base/status.h"

namespace holdfast {

PartlyFrozenStore::PartlyFrozenStore(const TrainedPart& parts, absl::Span<const Tensor> frozen, UnitStore& trained)
    : parts_(parts), trained_(trained) {
  for (const Unit& unit : parts.model().units()) {
    const auto first = frozen.begin() + unit.first_parameter;
    weights_.emplace_back(first, first + unit.num_parameters);
    gradients_.emplace_back(weights_.back().size());
  }
}

absl::Span<const Tensor> PartlyFrozenStore::Merge(int unit, absl::Span<const Tensor> trained,
                                                  std::vector<Tensor>& all) const {
  const int first = parts_.model().units()[static_cast<size_t>(unit)].first_parameter;
  size_t next = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (parts_.ParameterOf(first + static_cast<int>(i)) >= 0) all[i] = trained[next++];
  }
  return all;
}

absl::StatusOr<absl::Span<const Tensor>> PartlyFrozenStore::Acquire(int unit) {
  std::vector<Tensor>& all = weights_[static_cast<size_t>(unit)];
  const int in_trained = parts_.UnitOf(unit);
  if (in_trained < 0) return all;
  ASSIGN_OR_RETURN(const absl::Span<const Tensor> trained, trained_.Acquire(in_trained));
  return Merge(unit, trained, all);
}

void PartlyFrozenStore::Release(int unit) {
  const int in_trained = parts_.UnitOf(unit);
  if (in_trained >= 0) trained_.Release(in_trained);
}

absl::StatusOr<absl::Span<const Tensor>> PartlyFrozenStore::BeginGradients(int unit) {
  std::vector<Tensor>& all = gradients_[static_cast<size_t>(unit)];
  const int in_trained = parts_.UnitOf(unit);
  if (in_trained < 0) return all;
  ASSIGN_OR_RETURN(const absl::Span<const Tensor> trained, trained_.BeginGradients(in_trained));
  return Merge(unit, trained, all);
}

absl::Status PartlyFrozenStore::EndGradients(int unit) {
  const int in_trained = parts_.UnitOf(unit);
  return in_trained < 0 ? absl::OkStatus() : trained_.EndGradients(in_trained);
}

}  // namespace holdfast
