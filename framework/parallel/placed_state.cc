#include "framework/parallel/placed_state.h"

#include <utility>

#include "framework/base/status.h"

namespace holdfast {

PlacedState::PlacedState(const StateLayout& layout, DType compute_dtype, const Options& options,
                         WorldCommunicators communicators)
    : rank_(options.rank),
      placement_(options.placement),
      map_(layout.parameters(), compute_dtype, placement_),
      communicators_(std::move(communicators)) {}

absl::StatusOr<std::unique_ptr<PlacedState>> PlacedState::Create(const StateLayout& layout, DType compute_dtype,
                                                                 const Options& options,
                                                                 WorldCommunicators communicators, Device& device,
                                                                 Stream& stream, StepProgress& progress) {
  std::unique_ptr<PlacedState> placed(new PlacedState(layout, compute_dtype, options, std::move(communicators)));
  const Placement& placement = placed->placement_;
  const bool alone = placement.Group(placement.GroupOf(options.rank)).size() == 1;
  HOLDFAST_CHECK(alone == (placed->communicators_.group == nullptr));
  const ShardedState::Options state{
      .rank = options.rank,
      .whole_units = alone || options.parallel.sharding != Sharding::kFullShard,
      .in_parts = options.in_parts,
      .cpu = options.cpu,
      .mirrors_on_cpu = !device.is_cpu() && options.parallel.mirrors_on == MirrorPlace::kCpu};
  ASSIGN_OR_RETURN(placed->state_, ShardedState::Create(placed->map_, layout, state, device, stream));
  const ShardedStore::Dependencies dependencies{.placement = &placement,
                                                .rank = options.rank,
                                                .order = options.order,
                                                .in_parts = options.in_parts,
                                                .two_at_a_time = options.two_at_a_time,
                                                .state = &*placed->state_,
                                                .communicators = &placed->communicators_,
                                                .device = &device,
                                                .stream = &stream,
                                                .progress = &progress,
                                                .timeout = options.timeout};
  ASSIGN_OR_RETURN(placed->store_, ShardedStore::Create(dependencies));
  if (options.optimizer != nullptr) {
    ASSIGN_OR_RETURN(placed->whole_updates_, WholeUpdates::Create({.optimizer = options.optimizer,
                                                                   .state = &*placed->state_,
                                                                   .rank = options.rank,
                                                                   .world = placed->world(),
                                                                   .device = &device,
                                                                   .stream = &stream,
                                                                   .progress = &progress,
                                                                   .timeout = options.timeout}));
  }
  return placed;
}

void PlacedState::KeepStateOnly() {
  whole_updates_.reset();
  store_.reset();
  communicators_ = {};
}

}  // namespace holdfast
