#include "framework/parallel/sharded_store.h"

#include <algorithm>
#include <utility>

#include "framework/base/status.h"

namespace holdfast {
ReductionMode ShardedStore::Mode(const Placement& placement) {
  // Where a rank needs nobody's weights it may compute at its own pace, and holds whole gradients anyway.
  const bool alone = placement.num_groups() == placement.size();
  return alone ? ReductionMode::kPieces : ReductionMode::kEveryMicrobatch;
}

ShardedStore::ShardedStore(const Dependencies& dependencies)
    : deps_(dependencies),
      layout_(dependencies.state->map().layout()),
      buffers_(*dependencies.device),
      group_(dependencies.placement->Group(dependencies.placement->GroupOf(dependencies.rank))),
      local_exchange_(dependencies.stream->ops()) {}

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
  if (dependencies.in_parts) store->DescribeParts();
  if (dependencies.in_parts && communicators.parts != nullptr) {
    ASSIGN_OR_RETURN(store->group_exchange_,
                     GroupExchange::Create(*communicators.parts, store->nodes_, *dependencies.device,
                                           *dependencies.stream, *dependencies.progress, dependencies.timeout));
  }
  HOLDFAST_CHECK(!dependencies.in_parts || store->exchange().size() == std::ssize(store->group_));
  store->CreateLanes();
  return store;
}

void ShardedStore::CreateLanes() {
  HOLDFAST_CHECK(!deps_.two_at_a_time || deps_.in_parts);
  if (deps_.two_at_a_time) turns_ = std::make_unique<PassTurns>();
  for (int lane = 0; lane < (deps_.two_at_a_time ? kMaxLanes : 1); ++lane) {
    lanes_.push_back(
        std::make_unique<WaveStore>(WaveStore::Dependencies{.lane = lane,
                                                            .rank = deps_.rank,
                                                            .order = deps_.order,
                                                            .state = deps_.state,
                                                            .device = deps_.device,
                                                            .stream = deps_.stream,
                                                            .progress = deps_.progress,
                                                            .buffers = &buffers_,
                                                            .gatherer = gatherer_.get(),
                                                            .reducer = reducer_.get(),
                                                            .exchange = deps_.in_parts ? &exchange() : nullptr,
                                                            .group = &group_,
                                                            .nodes = &nodes_,
                                                            .unit_parts = &unit_parts_,
                                                            .turns = turns_.get(),
                                                            .step = &step_}));
  }
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
    WaveStore::UnitParts& parts = unit_parts_[static_cast<size_t>(u)];
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
  step_ = {.plan = plan, .stop = std::move(stop)};
  if (group_exchange_ != nullptr) group_exchange_->BeginStep(step_.stop);
  for (const auto& lane : lanes_) lane->BeginStep();
  if (gatherer_ != nullptr) RETURN_IF_ERROR(gatherer_->Begin(schedule, plan.num_waves(), deps_.two_at_a_time));
  if (reducer_ == nullptr) return absl::OkStatus();
  return reducer_->Begin(plan, GradientsOf(schedule, plan.num_waves(), deps_.two_at_a_time));
}

int ShardedStore::BeginWaves(int wave) {
  const int together = std::min(static_cast<int>(lanes_.size()), step_.plan->num_waves() - wave);
  for (int i = 0; i < together; ++i) lane(i).BeginWave(wave + i, together > 1);
  return together;
}

absl::Status ShardedStore::BeginEvaluation(int64_t passes, const UnitSchedule& schedule, std::stop_token stop) {
  step_.stop = std::move(stop);
  if (group_exchange_ != nullptr) group_exchange_->BeginStep(step_.stop);
  return gatherer_ == nullptr ? absl::OkStatus() : gatherer_->Begin(schedule, passes);
}

absl::Status ShardedStore::EndStep() {
  ++deps_.progress->count;
  const auto waiting = [&](auto&& wait) { return Waiting(*deps_.progress, step_.wait_seconds, wait); };
  if (gatherer_ != nullptr) RETURN_IF_ERROR(waiting([&] { return gatherer_->Finish(); }));
  if (reducer_ != nullptr) return waiting([&] { return reducer_->Finish(); });
  std::vector<ChunkRange> ranges;
  for (int u = 0; u < layout_.num_units(); ++u) {
    const Unit& unit = layout_.units()[static_cast<size_t>(u)];
    ranges.push_back({unit.first_chunk, unit.first_chunk + unit.num_chunks, lane().sum(u).Finish()});
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
    pieces.push_back({u, chunks, {0, unit.elements}, 0, lane().sum(u).Finish()});
  }
  return pieces;
}

const std::map<int64_t, double>& ShardedStore::chunk_sums() const {
  return reducer_ != nullptr ? reducer_->chunk_sums() : chunk_sums_;
}

Exchange& ShardedStore::exchange() {
  if (group_exchange_ != nullptr) return *group_exchange_;
  return local_exchange_;
}

void ShardedStore::Abort(const std::string& reason) {
  if (group_exchange_ != nullptr) group_exchange_->Abort(reason);
  if (gatherer_ != nullptr) gatherer_->Abort(reason);
  if (reducer_ != nullptr) reducer_->Abort(reason);
}

}  // namespace holdfast
