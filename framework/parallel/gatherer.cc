#include "framework/parallel/gatherer.h"

#include <utility>

#include "framework/base/status.h"

namespace holdfast {

Gatherer::Gatherer(const ShardedState& state, Communicator& group, Device& device, std::chrono::milliseconds timeout)
    : state_(state), group_(group), device_(device), timeout_(timeout), whole_images_(state.whole_images()) {}

Gatherer::~Gatherer() { Abort("the world was left"); }

absl::Status Gatherer::AllocateSlots(const GatherPlan& plan) {
  if (whole_images_) return absl::OkStatus();
  slots_.resize(std::max(slots_.size(), plan.slot_bytes.size()));
  for (size_t i = 0; i < plan.slot_bytes.size(); ++i) {
    const auto bytes = static_cast<size_t>(plan.slot_bytes[i]);
    if (slots_[i].bytes() >= bytes) continue;
    slots_[i] = Buffer();
    HF_ASSIGN_OR_RETURN(slots_[i], Buffer::Allocate(device_, bytes, "gathered weights"));
  }
  return absl::OkStatus();
}

absl::Status Gatherer::Begin(const UnitSchedule& schedule, int64_t passes) {
  thread_.Drain();  // an abandoned step has made all its releases or was aborted
  std::vector<int64_t> bytes;
  const int units = state_.map().layout().num_units();
  for (int u = 0; u < units; ++u) bytes.push_back(state_.map().ImageBytes(u));
  plan_ = std::make_shared<const GatherPlan>(PlanGathers(schedule, passes, bytes, whole_images_ ? units : 1));
  HF_RETURN_IF_ERROR(AllocateSlots(*plan_));
  {
    const std::lock_guard lock(mutex_);
    HF_RETURN_IF_ERROR(failure_);
    gathered_ = acquires_ = releases_ = 0;
  }
  thread_.Post([this, plan = plan_] { Run(*plan); });
  return absl::OkStatus();
}

void Gatherer::Run(const GatherPlan& plan) {
  for (const GatherPlan::Gather& gather : plan.gathers) {
    std::shared_ptr<Event> last_use;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !failure_.ok() || releases_ >= gather.after_releases; });
      if (!failure_.ok()) return;
      last_use = last_use_;
    }
    WaitFor(last_use);
    const absl::Status status = Gather(gather);
    const std::lock_guard lock(mutex_);
    if (!status.ok() && failure_.ok()) failure_ = status;
    ++gathered_;
    changed_.notify_all();
  }
}

std::byte* Gatherer::Destination(const GatherPlan::Gather& gather) const {
  return whole_images_ ? state_.Image(gather.unit) : slots_[static_cast<size_t>(gather.slot)].as<std::byte>();
}

absl::Status Gatherer::Gather(const GatherPlan::Gather& gather) {
  const ShardMap& map = state_.map();
  std::vector<int64_t> counts, displacements;
  for (int r = 0; r < group_.size(); ++r) {
    const Range part = r < map.num_shards() ? map.ShardImage(gather.unit, r) : Range{};
    counts.push_back(part.size());
    displacements.push_back(part.begin);
  }
  const Bytes image(Destination(gather), static_cast<size_t>(map.ImageBytes(gather.unit)));
  ConstBytes mine;
  if (group_.rank() < map.num_shards()) {
    mine = {state_.ServedImage(gather.unit), static_cast<size_t>(counts[static_cast<size_t>(group_.rank())])};
  }
  return group_.AllGatherV(mine, {image, counts, displacements}, std::chrono::steady_clock::now() + timeout_);
}

absl::StatusOr<std::byte*> Gatherer::Acquire(int unit, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const int index = plan_->gather_of_acquire[static_cast<size_t>(acquires_++)];
  const GatherPlan::Gather& gather = plan_->gathers[static_cast<size_t>(index)];
  HF_CHECK(gather.unit == unit);
  changed_.wait(lock, stop, [&] { return gathered_ > index || !failure_.ok(); });
  HF_RETURN_IF_ERROR(failure_);
  if (stop.stop_requested()) return absl::CancelledError("the step was abandoned: a stop was requested");
  return Destination(gather);
}

void Gatherer::Release(const std::shared_ptr<Event>& used) {
  const std::lock_guard lock(mutex_);
  last_use_ = used;  // one stream releases, so it is after those before it
  ++releases_;
  changed_.notify_all();
}

void Gatherer::SkipPass() {
  const std::lock_guard lock(mutex_);
  acquires_ += plan_->acquires_per_pass;
  releases_ += plan_->releases_per_pass;
  changed_.notify_all();
}

absl::Status Gatherer::Finish() {
  thread_.Drain();
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Gatherer::Abort(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_.ok()) failure_ = absl::AbortedError(reason);
    changed_.notify_all();
  }
  group_.Abort(reason);
}

}  // namespace holdfast
