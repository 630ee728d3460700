#include "framework/parallel/wave_store.h"

#include <algorithm>
#include <utility>

#include "framework/base/status.h"

namespace holdfast {

WaveStore::WaveStore(const Dependencies& dependencies)
    : deps_(dependencies),
      layout_(dependencies.state->map().layout()),
      weights_(layout_.units().size()),
      gradients_(layout_.units().size()),
      part_gradients_(layout_.units().size()) {
  for (const Unit& unit : layout_.units()) {
    sums_.emplace_back(*deps_.buffers, deps_.stream->ops(), deps_.order, unit.elements);
  }
}

void WaveStore::BeginStep() {
  for (GradientSum& sum : sums_) sum.Reset();
  for (PartGradientsOfUnit& parts : part_gradients_) parts.finished.clear();
}

void WaveStore::BeginWave(int wave, bool with_another) {
  const ReductionPlan& plan = *deps_.step->plan;
  wave_ = wave;
  with_another_ = with_another;
  range_ = plan.RangeOf(wave, deps_.rank);
  for (GradientSum& sum : sums_) sum.Reset(range_.first);
  if (range_.count == 0) SkipPass();
  FindHomes([&](int rank) { return plan.RangeOf(wave, rank).count > 0; });
}

void WaveStore::BeginEvaluationPass(const std::vector<bool>& has_microbatch) {
  with_another_ = false;
  if (!has_microbatch[static_cast<size_t>(deps_.rank)]) SkipPass();
  FindHomes([&](int rank) { return has_microbatch[static_cast<size_t>(rank)]; });
}

void WaveStore::SkipPass() const {
  if (deps_.gatherer != nullptr) deps_.gatherer->SkipPass(deps_.lane);
}

template <typename HasMicrobatch>
void WaveStore::FindHomes(HasMicrobatch&& has_microbatch) {
  homes_.clear();
  for (int member = 0; member < static_cast<int>(deps_.group->size()); ++member) {
    if (has_microbatch((*deps_.group)[static_cast<size_t>(member)])) homes_.push_back(member);
  }
}

absl::StatusOr<absl::Span<const Tensor>> WaveStore::Acquire(int unit) {
  if (deps_.step->stop.stop_requested()) return StepStopped();
  ++deps_.progress->count;
  std::byte* compute_weights = nullptr;
  if (deps_.gatherer != nullptr) {
    ASSIGN_OR_RETURN(compute_weights, Waiting(*deps_.progress, deps_.step->wait_seconds, [&] {
                       return deps_.gatherer->Acquire(unit, deps_.lane, deps_.step->stop);
                     }));
  } else {
    compute_weights = deps_.state->ComputeWeights(unit);
  }
  std::vector<Tensor>& weights = weights_[static_cast<size_t>(unit)];
  weights = deps_.state->map().ComputeWeightTensors(unit, compute_weights);
  return absl::MakeConstSpan(weights);
}

void WaveStore::Release(int) {
  if (deps_.gatherer != nullptr) deps_.gatherer->Release(deps_.lane, deps_.stream->Record());
}

absl::Status WaveStore::WaitForRoom(int unit) const {
  return Waiting(*deps_.progress, deps_.step->wait_seconds,
                 [&] { return deps_.reducer->WaitForRoom(unit, deps_.step->stop); });
}

absl::StatusOr<absl::Span<const Tensor>> WaveStore::BeginGradients(int unit) {
  ++deps_.progress->count;
  if (deps_.reducer != nullptr) RETURN_IF_ERROR(WaitForRoom(unit));
  ASSIGN_OR_RETURN(float* flat, sum(unit).Open());
  std::vector<Tensor>& tensors = gradients_[static_cast<size_t>(unit)];
  tensors.clear();
  const Unit& u = layout_.units()[static_cast<size_t>(unit)];
  for (int i = u.first_parameter; i < u.first_parameter + u.num_parameters; ++i) {
    const ParameterSpec& p = layout_.parameters()[static_cast<size_t>(i)];
    tensors.push_back({flat + p.unit_offset, DType::kF32, p.shape});
  }
  return absl::MakeConstSpan(tensors);
}

absl::Status WaveStore::EndGradients(int unit) {
  GradientSum& sum = sums_[static_cast<size_t>(unit)];
  sum.Close();
  if (deps_.reducer != nullptr && sum.next() == range_.end()) {
    deps_.reducer->Contribute({wave_, unit}, sum.TakePieces(), deps_.stream->Record());
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<const Tensor>> WaveStore::PartWeights(int unit) {
  if (deps_.step->stop.stop_requested()) return StepStopped();
  ++deps_.progress->count;
  return absl::MakeConstSpan(PartsOf(unit).weights);
}

absl::StatusOr<absl::Span<const Tensor>> WaveStore::BeginPartGradients(int unit, int home) {
  PartGradientsOfUnit& gradients = part_gradients_[static_cast<size_t>(unit)];
  if (gradients.finished.empty()) RETURN_IF_ERROR(WaitForRoom(unit));
  GradientSum::Piece& piece = gradients.finished.emplace_back();
  piece.range = deps_.step->plan->RangeOf(wave_, (*deps_.group)[static_cast<size_t>(home)]);
  ASSIGN_OR_RETURN(piece.sum, deps_.buffers->Take(PartsOf(unit).elements));
  gradients.tensors.clear();
  float* next = piece.sum.data();
  for (const int index : PartsOf(unit).parameters) {
    const Shape& shape = layout_.parameters()[static_cast<size_t>(index)].shape;
    gradients.tensors.push_back({next, DType::kF32, shape});
    next += shape.elements();
  }
  return absl::MakeConstSpan(gradients.tensors);
}

absl::Status WaveStore::EndPartGradients(int unit) {
  std::vector<GradientSum::Piece>& finished = part_gradients_[static_cast<size_t>(unit)].finished;
  HOLDFAST_CHECK(finished.size() == homes_.size());
  std::sort(finished.begin(), finished.end(),
            [](const auto& a, const auto& b) { return a.range.first < b.range.first; });
  deps_.reducer->Contribute({wave_, unit}, std::exchange(finished, {}), deps_.stream->Record());
  return absl::OkStatus();
}

absl::Status WaveStore::Pause() { return with_another_ ? deps_.turns->Pause(deps_.lane) : absl::OkStatus(); }

absl::StatusOr<std::vector<int32_t>> WaveStore::Fetch(const int32_t* device, int64_t n) {
  std::vector<int32_t> values(static_cast<size_t>(n));
  RETURN_IF_ERROR(deps_.stream->Synchronize());
  deps_.device->CopyToCpu(values.data(), device, values.size() * sizeof(int32_t));
  return values;
}

absl::Status WaveStore::Put(absl::Span<const int32_t> values, int32_t* device) {
  RETURN_IF_ERROR(deps_.stream->Synchronize());
  deps_.device->CopyFromCpu(device, values.data(), values.size() * sizeof(int32_t));
  return absl::OkStatus();
}

}  // namespace holdfast
