#include "framework/parallel/resident_store.h"

namespace holdfast {
namespace {

absl::Status NoGradients() {
  return absl::FailedPreconditionError("a saved model opened for evaluation has no gradients");
}

}  // namespace

absl::StatusOr<absl::Span<const Tensor>> ResidentStore::Acquire(int unit) {
  const Unit& u = layout_.units()[static_cast<size_t>(unit)];
  return weights_.subspan(static_cast<size_t>(u.first_parameter), static_cast<size_t>(u.num_parameters));
}

absl::StatusOr<absl::Span<const Tensor>> ResidentStore::BeginGradients(int) { return NoGradients(); }
absl::Status ResidentStore::EndGradients(int) { return NoGradients(); }

}  // namespace holdfast
