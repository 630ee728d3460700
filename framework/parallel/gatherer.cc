#include "framework/parallel/gatherer.h"

#include <algorithm>
#include <utility>

#include "framework/base/status.h"
#include "framework/parallel/step_progress.h"

namespace holdfast {

absl::StatusOr<std::unique_ptr<Gatherer>> Gatherer::Create(const ShardedState& state, int rank, Communicator& group,
                                                           Device& device, std::chrono::milliseconds timeout) {
  ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, device.CreateStream(StreamKind::kTransfer));
  std::unique_ptr<Gatherer> gatherer(new Gatherer(state, group, device, std::move(stream), timeout));
  int64_t packed = 0;
  for (int u = 0; u < state.map().layout().num_units(); ++u) {
    gatherer->slices_.push_back(gatherer->SlicesOf(u, rank));
    if (!gatherer->slices_.back().pieces.empty()) packed = std::max(packed, state.map().ComputeWeightBytes(u));
  }
  ASSIGN_OR_RETURN(gatherer->packed_, Buffer::Allocate(device, static_cast<size_t>(packed), "gathered weights"));
  return gatherer;
}

Gatherer::Gatherer(const ShardedState& state, Communicator& group, Device& device, std::unique_ptr<Stream> stream,
                   std::chrono::milliseconds timeout)
    : state_(state),
      group_(group),
      device_(device),
      stream_(std::move(stream)),
      timeout_(timeout),
      whole_units_(state.whole_units()) {}

Gatherer::Slices Gatherer::SlicesOf(int unit, int rank) const {
  const ShardMap& map = state_.map();
  Slices slices;
  bool single = true;
  for (const int member : map.placement().Group(map.placement().GroupOf(rank))) {
    int64_t begin = 0,
            packed = slices.pieces.empty() ? 0 : slices.pieces.back().packed + slices.pieces.back().bytes.size();
    const Ranges& served = map.Served(unit, member);
    if (!served.empty()) begin = map.ComputeWeightsOfChunks(unit, served.front()).begin;
    single = single && served.size() <= 1;
    slices.displacements.push_back(begin);
    slices.counts.push_back(map.CountComputeWeightBytes(unit, served));
    for (const Range& range : served) {
      slices.pieces.push_back({map.ComputeWeightsOfChunks(unit, range), packed, member == rank});
      packed += slices.pieces.back().bytes.size();
    }
  }
  if (single) {
    slices.pieces.clear();
    return slices;
  }
  int64_t end = 0;
  for (size_t i = 0; i < slices.counts.size(); ++i) {
    slices.displacements[i] = end;
    end += slices.counts[i];
  }
  return slices;
}

Gatherer::~Gatherer() { Abort("the world was left"); }

absl::Status Gatherer::AllocateSlots(const GatherPlan& plan) {
  if (whole_units_) return absl::OkStatus();
  slots_.resize(std::max(slots_.size(), plan.slot_bytes.size()));
  for (size_t i = 0; i < plan.slot_bytes.size(); ++i) {
    const auto bytes = static_cast<size_t>(plan.slot_bytes[i]);
    if (slots_[i].bytes() >= bytes) continue;
    slots_[i] = Buffer();
    ASSIGN_OR_RETURN(slots_[i], Buffer::Allocate(device_, bytes, "gathered weights"));
  }
  return absl::OkStatus();
}

absl::Status Gatherer::Begin(const UnitSchedule& schedule, int64_t passes, bool two_at_a_time) {
  thread_.Drain();  // an abandoned step has made all its releases or was aborted
  std::vector<int64_t> bytes;
  const int units = state_.map().layout().num_units();
  for (int u = 0; u < units; ++u) bytes.push_back(state_.map().ComputeWeightBytes(u));
  plan_ =
      std::make_shared<const GatherPlan>(PlanGathers(schedule, passes, bytes, whole_units_ ? units : 1, two_at_a_time));
  RETURN_IF_ERROR(AllocateSlots(*plan_));
  {
    const std::lock_guard lock(mutex_);
    RETURN_IF_ERROR(failure_);
    gathered_ = 0;
    acquires_ = releases_ = {};
  }
  thread_.Post([this, plan = plan_] { Run(*plan); });
  return absl::OkStatus();
}

void Gatherer::Run(const GatherPlan& plan) {
  for (const GatherPlan::Gather& gather : plan.gathers) {
    std::shared_ptr<Event> last_use;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !failure_.ok() || Released(gather); });
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

bool Gatherer::Released(const GatherPlan::Gather& gather) const {
  for (size_t lane = 0; lane < releases_.size(); ++lane) {
    if (releases_[lane] < gather.after_releases[lane]) return false;
  }
  return true;
}

std::byte* Gatherer::Destination(const GatherPlan::Gather& gather) const {
  return whole_units_ ? state_.ComputeWeights(gather.unit) : slots_[static_cast<size_t>(gather.slot)].as<std::byte>();
}

absl::Status Gatherer::Gather(const GatherPlan::Gather& gather) {
  const int unit = gather.unit;
  const Slices& slices = slices_[static_cast<size_t>(unit)];
  const auto me = static_cast<size_t>(group_.rank());
  const Deadline deadline = std::chrono::steady_clock::now() + timeout_;
  std::byte* const weights = Destination(gather);
  const bool in_place = slices.pieces.empty();
  const Bytes all(in_place ? weights : packed_.as<std::byte>(),
                  static_cast<size_t>(state_.map().ComputeWeightBytes(unit)));
  // What this rank serves lies packed, or, where whole units are kept, where it belongs.
  std::byte* mine = state_.ComputeWeights(unit);
  if (whole_units_ && in_place) mine += slices.displacements[me];
  if (whole_units_ && !in_place) {
    mine = all.data() + slices.displacements[me];
    for (const Piece& piece : slices.pieces) {
      if (!piece.mine) continue;
      stream_->ops().Copy(all.data() + piece.packed, weights + piece.bytes.begin,
                          static_cast<size_t>(piece.bytes.size()));
    }
    RETURN_IF_ERROR(stream_->Synchronize());
  }
  const ConstBytes input(mine, static_cast<size_t>(slices.counts[me]));
  RETURN_IF_ERROR(group_.AllGatherV(input, {all, slices.counts, slices.displacements}, deadline));
  if (in_place) return absl::OkStatus();
  for (const Piece& piece : slices.pieces) {
    if (piece.mine && whole_units_) continue;
    stream_->ops().Copy(weights + piece.bytes.begin, all.data() + piece.packed,
                        static_cast<size_t>(piece.bytes.size()));
  }
  return stream_->Synchronize();
}

absl::StatusOr<std::byte*> Gatherer::Acquire(int unit, int lane, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const auto of = static_cast<size_t>(lane);
  const int index = plan_->gather_of_acquire[of][static_cast<size_t>(acquires_[of]++)];
  const GatherPlan::Gather& gather = plan_->gathers[static_cast<size_t>(index)];
  HOLDFAST_CHECK(gather.unit == unit);
  changed_.wait(lock, stop, [&] { return gathered_ > index || !failure_.ok(); });
  RETURN_IF_ERROR(failure_);
  if (stop.stop_requested()) return StepStopped();
  return Destination(gather);
}

void Gatherer::Release(int lane, const std::shared_ptr<Event>& used) {
  const std::lock_guard lock(mutex_);
  last_use_ = used;  // one stream releases, so it is after those before it
  ++releases_[static_cast<size_t>(lane)];
  changed_.notify_all();
}

void Gatherer::SkipPass(int lane) {
  const std::lock_guard lock(mutex_);
  acquires_[static_cast<size_t>(lane)] += plan_->acquires_per_pass;
  releases_[static_cast<size_t>(lane)] += plan_->releases_per_pass;
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
