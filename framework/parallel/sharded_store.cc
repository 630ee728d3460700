#include "framework/parallel/sharded_store.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "framework/base/seconds.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

ReductionMode ShardedStore::Mode(const Placement& placement) {
  // Where a rank needs nobody's weights it may compute at its own pace, and holds whole gradients anyway.
  const bool alone = placement.num_groups() == placement.size();
  return alone ? ReductionMode::kPieces : ReductionMode::kEveryMicrobatch;
}

ShardedStore::ShardedStore(const Dependencies& dependencies)
    : deps_(dependencies),
      layout_(dependencies.state->map().layout()),
      buffers_(*dependencies.device),
      weights_(layout_.units().size()),
      gradients_(layout_.units().size()),
      group_(dependencies.placement->Group(dependencies.placement->GroupOf(dependencies.rank))),
      local_exchange_(dependencies.stream->ops()) {
  for (const Unit& unit : layout_.units()) {
    local_.emplace_back(buffers_, dependencies.stream->ops(), dependencies.order, unit.elements);
  }
}

absl::StatusOr<std::unique_ptr<ShardedStore>> ShardedStore::Create(const Dependencies& dependencies) {
  std::unique_ptr<ShardedStore> store(new ShardedStore(dependencies));
  WorldCommunicators& communicators = *dependencies.communicators;
  if (communicators.group != nullptr) {
    ASSIGN_OR_RETURN(store->gatherer_, Gatherer::Create(*dependencies.state, dependencies.rank, *communicators.group,
                                                        *dependencies.device, dependencies.timeout));
  }
  if (communicators.world != nullptr) {
    ASSIGN_OR_RETURN(store->reducer_, Reducer::Create(dependencies.state->map(), *dependencies.placement,
                                                      dependencies.order, *communicators.world, *dependencies.device,
                                                      dependencies.timeout, dependencies.in_parts));
  }
  if (!dependencies.in_parts) return store;
  store->DescribeParts();
  if (communicators.parts != nullptr) {
    ASSIGN_OR_RETURN(store->group_exchange_,
                     GroupExchange::Create(*communicators.parts, store->nodes_, *dependencies.device,
                                           *dependencies.stream, *dependencies.progress, dependencies.timeout));
  }
  HOLDFAST_CHECK(store->exchange().size() == std::ssize(store->group_));
  return store;
}

void ShardedStore::DescribeParts() {
  std::map<int, int> numbers;
  for (const int rank : group_) {
    nodes_.push_back(numbers.emplace(deps_.placement->NodeOf(rank), std::ssize(numbers)).first->second);
  }
  const ShardMap& map = deps_.state->map();
  unit_parts_.resize(layout_.units().size());
  for (int u = 0; u < layout_.num_units(); ++u) {
    const Unit& unit = layout_.units()[static_cast<size_t>(u)];
    UnitParts& parts = unit_parts_[static_cast<size_t>(u)];
    for (int part = 0; part < static_cast<int>(unit.parts.size()); ++part) {
      const int server = map.ServerOfPart(u, part, deps_.rank);
      const auto member = std::find(group_.begin(), group_.end(), server);
      HOLDFAST_CHECK(member != group_.end());
      parts.servers.push_back(static_cast<int>(member - group_.begin()));
    }
    if (unit.parts.empty()) continue;
    int last = -1;
    for (int c = unit.first_chunk; c < unit.first_chunk + unit.num_chunks; ++c) {
      const int index = layout_.chunks()[static_cast<size_t>(c)].parameter;
      if (index == std::exchange(last, index) || !map.Serves(deps_.rank, c)) continue;  // its first chunk
      const Shape& shape = layout_.parameters()[static_cast<size_t>(index)].shape;
      parts.parameters.push_back(index);
      parts.weights.push_back({deps_.state->ComputeWeightsOf(c), map.ComputeWeightDType(index), shape});
      parts.elements += shape.elements();
    }
  }
}

absl::Status ShardedStore::BeginStep(const ReductionPlan& plan, const UnitSchedule& schedule, std::stop_token stop) {
  stop_ = std::move(stop);
  wait_seconds_ = 0;
  plan_ = plan;
  if (group_exchange_ != nullptr) group_exchange_->BeginStep(stop_);
  for (UnitParts& parts : unit_parts_) parts.finished.clear();
  for (GradientSum& sum : local_) sum.Reset();
  if (gatherer_ != nullptr) RETURN_IF_ERROR(gatherer_->Begin(schedule, plan.num_waves()));
  if (reducer_ == nullptr) return absl::OkStatus();
  std::vector<int> order;
  for (const StoreCall& call : schedule) {
    if (call.kind == StoreCall::Kind::kEndGradients) order.push_back(call.unit);
  }
  return reducer_->Begin(plan, std::move(order));
}

void ShardedStore::BeginWave(int wave) {
  wave_ = wave;
  range_ = plan_->RangeOf(wave, deps_.rank);
  for (GradientSum& sum : local_) sum.Reset(range_.first);
  if (range_.count == 0 && gatherer_ != nullptr) gatherer_->SkipPass();
  homes_.clear();
  for (int member = 0; member < static_cast<int>(group_.size()); ++member) {
    if (plan_->RangeOf(wave, group_[static_cast<size_t>(member)]).count > 0) homes_.push_back(member);
  }
}

absl::Status ShardedStore::BeginEvaluation(int64_t passes, const UnitSchedule& schedule, std::stop_token stop) {
  stop_ = std::move(stop);
  if (group_exchange_ != nullptr) group_exchange_->BeginStep(stop_);
  return gatherer_ == nullptr ? absl::OkStatus() : gatherer_->Begin(schedule, passes);
}

void ShardedStore::BeginEvaluationPass(const std::vector<bool>& has_microbatch) {
  if (!has_microbatch[static_cast<size_t>(deps_.rank)] && gatherer_ != nullptr) gatherer_->SkipPass();
  homes_.clear();
  for (int member = 0; member < static_cast<int>(group_.size()); ++member) {
    if (has_microbatch[static_cast<size_t>(group_[static_cast<size_t>(member)])]) homes_.push_back(member);
  }
}

template <typename Wait>
auto ShardedStore::Waiting(Wait&& wait) {
  const Clock::time_point start = Clock::now();
  deps_.progress->waiting = true;
  auto result = wait();
  deps_.progress->waiting = false;
  wait_seconds_ += SecondsSince(start);
  return result;
}

absl::Status ShardedStore::EndStep() {
  ++deps_.progress->count;
  if (gatherer_ != nullptr) RETURN_IF_ERROR(Waiting([&] { return gatherer_->Finish(); }));
  if (reducer_ != nullptr) return Waiting([&] { return reducer_->Finish(); });
  std::vector<ChunkRange> ranges;
  for (int u = 0; u < layout_.num_units(); ++u) {
    const Unit& unit = layout_.units()[static_cast<size_t>(u)];
    ranges.push_back({unit.first_chunk, unit.first_chunk + unit.num_chunks, local_[static_cast<size_t>(u)].Finish()});
  }
  ASSIGN_OR_RETURN(chunk_sums_, squares_.Of(ranges, layout_, *deps_.device, *deps_.stream));
  return absl::OkStatus();
}

std::vector<GradientPiece> ShardedStore::Gradients() {
  if (reducer_ != nullptr) return reducer_->Gradients();
  std::vector<GradientPiece> pieces;
  for (int u = 0; u < layout_.num_units(); ++u) {
    const Unit& unit = layout_.units()[static_cast<size_t>(u)];
    const Range chunks{unit.first_chunk, unit.first_chunk + unit.num_chunks};
    pieces.push_back({u, chunks, {0, unit.elements}, 0, local_[static_cast<size_t>(u)].Finish()});
  }
  return pieces;
}

const std::map<int64_t, double>& ShardedStore::chunk_sums() const {
  return reducer_ != nullptr ? reducer_->chunk_sums() : chunk_sums_;
}

absl::StatusOr<absl::Span<const Tensor>> ShardedStore::Acquire(int unit) {
  if (stop_.stop_requested()) return StepStopped();
  ++deps_.progress->count;
  std::byte* compute_weights = nullptr;
  if (gatherer_ != nullptr) {
    ASSIGN_OR_RETURN(compute_weights, Waiting([&] { return gatherer_->Acquire(unit, stop_); }));
  } else {
    compute_weights = deps_.state->ComputeWeights(unit);
  }
  std::vector<Tensor>& weights = weights_[static_cast<size_t>(unit)];
  weights = deps_.state->map().ComputeWeightTensors(unit, compute_weights);
  return absl::MakeConstSpan(weights);
}

void ShardedStore::Release(int) {
  if (gatherer_ != nullptr) gatherer_->Release(deps_.stream->Record());
}

absl::StatusOr<absl::Span<const Tensor>> ShardedStore::BeginGradients(int unit) {
  ++deps_.progress->count;
  if (reducer_ != nullptr) RETURN_IF_ERROR(Waiting([&] { return reducer_->WaitForRoom(unit, stop_); }));
  ASSIGN_OR_RETURN(float* flat, local_[static_cast<size_t>(unit)].Open());
  std::vector<Tensor>& tensors = gradients_[static_cast<size_t>(unit)];
  tensors.clear();
  const Unit& u = layout_.units()[static_cast<size_t>(unit)];
  for (int i = u.first_parameter; i < u.first_parameter + u.num_parameters; ++i) {
    const ParameterSpec& p = layout_.parameters()[static_cast<size_t>(i)];
    tensors.push_back({flat + p.unit_offset, DType::kF32, p.shape});
  }
  return absl::MakeConstSpan(tensors);
}

absl::Status ShardedStore::EndGradients(int unit) {
  GradientSum& sum = local_[static_cast<size_t>(unit)];
  sum.Close();
  if (reducer_ != nullptr && sum.next() == range_.end()) {
    reducer_->Contribute(unit, sum.TakePieces(), deps_.stream->Record());
  }
  return absl::OkStatus();
}

Exchange& ShardedStore::exchange() {
  if (group_exchange_ != nullptr) return *group_exchange_;
  return local_exchange_;
}

absl::StatusOr<absl::Span<const Tensor>> ShardedStore::PartWeights(int unit) {
  if (stop_.stop_requested()) return StepStopped();
  ++deps_.progress->count;
  return absl::MakeConstSpan(unit_parts_[static_cast<size_t>(unit)].weights);
}

absl::StatusOr<absl::Span<const Tensor>> ShardedStore::BeginPartGradients(int unit, int home) {
  UnitParts& parts = unit_parts_[static_cast<size_t>(unit)];
  if (parts.finished.empty()) RETURN_IF_ERROR(Waiting([&] { return reducer_->WaitForRoom(unit, stop_); }));
  GradientSum::Piece& piece = parts.finished.emplace_back();
  piece.range = plan_->RangeOf(wave_, group_[static_cast<size_t>(home)]);
  ASSIGN_OR_RETURN(piece.sum, buffers_.Take(parts.elements));
  parts.gradients.clear();
  float* next = piece.sum.data();
  for (const int index : parts.parameters) {
    const Shape& shape = layout_.parameters()[static_cast<size_t>(index)].shape;
    parts.gradients.push_back({next, DType::kF32, shape});
    next += shape.elements();
  }
  return absl::MakeConstSpan(parts.gradients);
}

absl::Status ShardedStore::EndPartGradients(int unit) {
  UnitParts& parts = unit_parts_[static_cast<size_t>(unit)];
  if (parts.finished.size() < homes_.size()) return absl::OkStatus();
  std::sort(parts.finished.begin(), parts.finished.end(),
            [](const auto& a, const auto& b) { return a.range.first < b.range.first; });
  reducer_->Contribute(unit, std::exchange(parts.finished, {}), deps_.stream->Record());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> ShardedStore::Fetch(const int32_t* device, int64_t n) {
  std::vector<int32_t> values(static_cast<size_t>(n));
  RETURN_IF_ERROR(deps_.stream->Synchronize());
  deps_.device->CopyToCpu(values.data(), device, values.size() * sizeof(int32_t));
  return values;
}

absl::Status ShardedStore::Put(absl::Span<const int32_t> values, int32_t* device) {
  RETURN_IF_ERROR(deps_.stream->Synchronize());
  deps_.device->CopyFromCpu(device, values.data(), values.size() * sizeof(int32_t));
  return absl::OkStatus();
}

void ShardedStore::Abort(const std::string& reason) {
  if (group_exchange_ != nullptr) group_exchange_->Abort(reason);
  if (gatherer_ != nullptr) gatherer_->Abort(reason);
  if (reducer_ != nullptr) reducer_->Abort(reason);
}

}  // namespace holdfast
