#include "framework/parallel/resident_store.h"

#include "framework/base/status.h"

namespace holdfast {

ResidentStore::ResidentStore(const ParameterLayout& layout, absl::Span<const Tensor> weights, Device& device,
                             kernels::Ops& ops)
    : layout_(layout), weights_(weights), gradients_(layout.units().size()) {
  for (const Unit& unit : layout.units()) trees_.emplace_back(device, ops, unit.elements);
}

void ResidentStore::BeginStep(std::stop_token stop) {
  stop_ = std::move(stop);
  for (SummationTree& tree : trees_) tree.Reset();
}

absl::StatusOr<absl::Span<const Tensor>> ResidentStore::Acquire(int unit) {
  if (stop_.stop_requested()) return absl::CancelledError("the step was abandoned: a stop was requested");
  const Unit& u = layout_.units()[static_cast<size_t>(unit)];
  return weights_.subspan(static_cast<size_t>(u.first_parameter), static_cast<size_t>(u.num_parameters));
}

absl::StatusOr<absl::Span<const Tensor>> ResidentStore::BeginGradients(int unit) {
  const Unit& u = layout_.units()[static_cast<size_t>(unit)];
  HF_ASSIGN_OR_RETURN(float* flat, trees_[static_cast<size_t>(unit)].Open());
  std::vector<Tensor>& tensors = gradients_[static_cast<size_t>(unit)];
  tensors.clear();
  for (int i = u.first_parameter; i < u.first_parameter + u.num_parameters; ++i) {
    const ParameterSpec& p = layout_.parameters()[static_cast<size_t>(i)];
    tensors.push_back({flat + p.unit_offset, DType::kF32, p.shape});
  }
  return absl::MakeConstSpan(tensors);
}

absl::Status ResidentStore::EndGradients(int unit) {
  trees_[static_cast<size_t>(unit)].Close();
  return absl::OkStatus();
}

size_t ResidentStore::gradient_bytes() const {
  size_t total = 0;
  for (const SummationTree& tree : trees_) total += tree.bytes();
  return total;
}

}  // namespace holdfast
