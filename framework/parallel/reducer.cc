#include "framework/parallel/reducer.h"

#include <algorithm>
#include <utility>

#include "framework/base/status.h"
#include "framework/parallel/float_bytes.h"
#include "framework/parallel/step_progress.h"

namespace holdfast {
namespace {

/// Sizes and places of what goes to or comes from each rank.
struct Slices {
  explicit Slices(int size) : counts(static_cast<size_t>(size)), displacements(counts.size()) {}
  void Set(int rank, int64_t elements, int64_t first_element) {
    counts[static_cast<size_t>(rank)] = elements * kFloatBytes;
    displacements[static_cast<size_t>(rank)] = first_element * kFloatBytes;
  }
  std::vector<int64_t> counts, displacements;  // bytes
};

}  // namespace

std::vector<WaveUnit> GradientsOf(const UnitSchedule& schedule, int waves, bool two_at_a_time) {
  std::vector<WaveUnit> gradients;
  for (const auto& [pass, call] : CallsOf(schedule, waves, two_at_a_time)) {
    if (call.kind == StoreCall::Kind::kEndGradients) gradients.push_back({static_cast<int>(pass), call.unit});
  }
  return gradients;
}

absl::StatusOr<std::unique_ptr<Reducer>> Reducer::Create(const ShardMap& map, const Placement& placement,
                                                         const SumOrder& order, Communicator& world, Device& device,
                                                         std::chrono::milliseconds timeout, bool in_parts) {
  ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, device.CreateStream(StreamKind::kTransfer));
  std::unique_ptr<Reducer> reducer(new Reducer(map, placement, order, world, device, std::move(stream), timeout));
  RETURN_IF_ERROR(reducer->PlanForwards());
  if (in_parts) {
    ASSIGN_OR_RETURN(reducer->part_gradients_, PartGradients::Create(map, world, device, *reducer->stream_));
  }
  RETURN_IF_ERROR(reducer->AllocatePacked());
  return reducer;
}

Reducer::Reducer(const ShardMap& map, const Placement& placement, const SumOrder& order, Communicator& world,
                 Device& device, std::unique_ptr<Stream> stream, std::chrono::milliseconds timeout)
    : map_(map),
      placement_(placement),
      world_(world),
      device_(device),
      stream_(std::move(stream)),
      timeout_(timeout),
      buffers_(device) {
  for (int u = 0; u < map.layout().num_units(); ++u) {
    mine_.push_back(map.CountElements(u, map.Summed(u, world.rank())));
    sums_.emplace_back(buffers_, stream_->ops(), order, mine_.back());
    bool scattered = false;
    for (int r = 0; r < placement.size(); ++r) scattered = scattered || map.Summed(u, r).size() > 1;
    scattered_.push_back(scattered);
  }
}

Reducer::~Reducer() { Abort("the world was left"); }

// Who sends which sums to whom, and memory for those that come here.
absl::Status Reducer::PlanForwards() {
  const int me = world_.rank();
  const auto size = static_cast<size_t>(world_.size());
  for (int u = 0; u < map_.layout().num_units(); ++u) {
    std::vector<Ranges> to(size), from(size);  // chunks, by rank
    const Unit& unit = map_.layout().units()[static_cast<size_t>(u)];
    for (int chunk = unit.first_chunk; chunk < unit.first_chunk + unit.num_chunks; ++chunk) {
      const std::vector<int> holders = map_.Holders(chunk);
      const int primary = holders.front();
      for (const int holder : holders) {
        if (holder == primary) continue;
        if (primary == me) AppendChunk(chunk, &to[static_cast<size_t>(holder)]);
        if (holder == me) AppendChunk(chunk, &from[static_cast<size_t>(primary)]);
      }
    }
    forwards_.push_back(PlanForward(u, to));
    ForwardPlan& plan = forwards_.back();
    int64_t elements = 0;
    const size_t first = mirrored_.size();
    for (size_t r = 0; r < size; ++r) {
      plan.receive_starts.push_back(elements * kFloatBytes);
      for (const Range& range : from[r]) {
        mirrored_.push_back({u, range, map_.Elements(u, range), static_cast<int>(r), nullptr});
        elements += mirrored_.back().elements.size();
      }
      plan.receive_counts.push_back(elements * kFloatBytes - plan.receive_starts.back());
    }
    ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(device_, static_cast<size_t>(elements * kFloatBytes),
                                                     "gradients of mirrored shards"));
    const float* next = buffer.as<float>();
    for (size_t i = first; i < mirrored_.size(); ++i) {
      mirrored_[i].gradient = next;
      next += mirrored_[i].elements.size();
    }
    mirrors_.push_back(std::move(buffer));
  }
  return absl::OkStatus();
}

// What each rank gets of my sums: all of it as it lies, or parts that are put one after the other.
Reducer::ForwardPlan Reducer::PlanForward(int unit, const std::vector<Ranges>& chunks_to) const {
  const Ranges& mine = map_.Summed(unit, world_.rank());
  const bool as_it_is = std::all_of(chunks_to.begin(), chunks_to.end(),
                                    [&](const Ranges& ranges) { return ranges.empty() || ranges == mine; });
  ForwardPlan plan;
  int64_t sent = 0;
  for (const Ranges& ranges : chunks_to) {
    const int64_t count = map_.CountElements(unit, ranges);
    plan.send_starts.push_back(as_it_is ? 0 : sent * kFloatBytes);
    plan.send_counts.push_back(count * kFloatBytes);
    sent += count;
    if (as_it_is) continue;
    for (const Range& range : ranges) {
      int64_t before = 0;  // in my sum, which is `mine`, range after range
      for (const Range& own : mine) {
        if (own.begin <= range.begin && range.begin < own.end) {
          before += map_.Elements(unit, {own.begin, range.begin}).size();
          break;
        }
        before += map_.Elements(unit, own).size();
      }
      plan.packed.push_back({before, before + map_.Elements(unit, range).size()});
    }
  }
  return plan;
}

absl::Status Reducer::AllocatePacked() {
  int64_t elements = 0;
  for (int u = 0; u < map_.layout().num_units(); ++u) {
    if (scattered_[static_cast<size_t>(u)] && !InParts(u)) {
      elements = std::max(elements, map_.layout().units()[static_cast<size_t>(u)].elements);
    }
    int64_t sent = 0;
    for (const Range& part : forwards_[static_cast<size_t>(u)].packed) sent += part.size();
    elements = std::max(elements, sent);
  }
  ASSIGN_OR_RETURN(packed_, Buffer::Allocate(device_, static_cast<size_t>(elements * kFloatBytes), "gradients"));
  return absl::OkStatus();
}

absl::Status Reducer::Begin(const ReductionPlan& plan, std::vector<WaveUnit> gradients) {
  thread_.Drain();
  {
    const std::lock_guard lock(mutex_);
    RETURN_IF_ERROR(failure_);
    HOLDFAST_CHECK(contributions_.empty() && !at_work_.has_value());
  }
  plan_ = plan;
  order_ = std::move(gradients);
  chunk_sums_.clear();
  for (GradientSum& sum : sums_) sum.Reset();
  RETURN_IF_ERROR(AllocateReceived());
  thread_.Post([this] { Run(); });
  return absl::OkStatus();
}

// For the largest exchange of the step, before it: to allocate in the middle of it may wait for others' calls.
absl::Status Reducer::AllocateReceived() {
  int64_t elements = 0;
  size_t most = 0;
  for (const auto& [wave, unit] : order_) {
    if (InParts(unit) && !part_gradients_->moves()) continue;  // whose gradients are here
    elements = std::max(elements, mine_[static_cast<size_t>(unit)]);
  }
  for (int wave = 0; wave < plan_->num_waves(); ++wave) most = std::max(most, plan_->MaxPieces(wave));
  const size_t bytes = static_cast<size_t>(world_.size() * elements * kFloatBytes) * most;
  if (received_.bytes() >= bytes) return absl::OkStatus();
  received_ = Buffer();
  ASSIGN_OR_RETURN(received_, Buffer::Allocate(device_, bytes, "gradients of other ranks"));
  return absl::OkStatus();
}

absl::Status Reducer::WaitForRoom(int unit, const std::stop_token& stop) {
  const auto counts = [&](int other) { return plan_->mode() == ReductionMode::kEveryMicrobatch || other == unit; };
  const auto room = [&] {
    int64_t waiting = at_work_.has_value() && counts(*at_work_) ? 1 : 0;
    for (const Contribution& c : contributions_) waiting += counts(c.gradient.unit) ? 1 : 0;
    return waiting < kMaxWaiting;
  };
  std::unique_lock lock(mutex_);
  changed_.wait(lock, stop, [&] { return !failure_.ok() || room(); });
  RETURN_IF_ERROR(failure_);
  return stop.stop_requested() ? StepStopped() : absl::OkStatus();
}

void Reducer::Contribute(const WaveUnit& gradient, std::vector<GradientSum::Piece> pieces,
                         const std::shared_ptr<Event>& ready) {
  const std::lock_guard lock(mutex_);
  contributions_.push_back({gradient, std::move(pieces), ready});
  changed_.notify_all();
}

absl::Status Reducer::Finish() {
  thread_.Drain();
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::vector<GradientPiece> Reducer::Gradients() {
  std::vector<GradientPiece> pieces = mirrored_;
  for (int u = 0; u < map_.layout().num_units(); ++u) {
    const Ranges& mine = map_.Summed(u, world_.rank());
    if (mine.empty()) continue;
    const float* sum = sums_[static_cast<size_t>(u)].Finish();
    for (const Range& range : mine) {
      pieces.push_back({u, range, map_.Elements(u, range), world_.rank(), sum});
      sum += pieces.back().elements.size();
    }
  }
  return pieces;
}

void Reducer::Fail(const absl::Status& status) {
  const std::lock_guard lock(mutex_);
  if (failure_.ok()) failure_ = status;
  changed_.notify_all();
}

void Reducer::Abort(const std::string& reason) {
  Fail(absl::AbortedError(reason));
  world_.Abort(reason);
}

void Reducer::Run() {
  for (const auto& [wave, unit] : order_) {
    const absl::Status status = ReduceUnit(wave, unit);
    if (!status.ok()) return Fail(status);
  }
}

absl::Status Reducer::ReduceUnit(int wave, int unit) {
  {
    Contribution mine;
    RETURN_IF_ERROR(WaitForContribution(wave, unit, &mine));
    WaitFor(mine.ready);
    if (InParts(unit)) {
      RETURN_IF_ERROR(ReduceParts(wave, unit, mine));
    } else {
      RETURN_IF_ERROR(Exchange(wave, unit, mine));
      RETURN_IF_ERROR(Accumulate(wave, unit, mine));
    }
  }
  {
    const std::lock_guard lock(mutex_);
    at_work_.reset();
    changed_.notify_all();
  }
  if (wave + 1 < plan_->num_waves()) return absl::OkStatus();
  RETURN_IF_ERROR(SumSquares(unit));
  return Forward(unit);
}

absl::Status Reducer::WaitForContribution(int wave, int unit, Contribution* mine) {
  const bool expected =
      InParts(unit) ? !part_gradients_->Homes(*plan_, wave).empty() : plan_->RangeOf(wave, world_.rank()).count > 0;
  std::unique_lock lock(mutex_);
  if (!expected) return failure_;
  changed_.wait(lock, [&] { return !failure_.ok() || !contributions_.empty(); });
  RETURN_IF_ERROR(failure_);
  HOLDFAST_CHECK((contributions_.front().gradient == WaveUnit{wave, unit}));
  *mine = std::move(contributions_.front());
  contributions_.pop_front();
  at_work_ = unit;
  return absl::OkStatus();
}

// `gradient` of a unit in the order in which it is sent: what rank 0 sums, what rank 1 sums, ... Done when it returns.
absl::StatusOr<const float*> Reducer::Pack(int unit, const float* gradient) {
  if (!scattered_[static_cast<size_t>(unit)]) return gradient;
  auto* next = packed_.as<float>();
  for (int r = 0; r < world_.size(); ++r) {
    for (const Range& range : map_.Summed(unit, r)) {
      const Range elements = map_.Elements(unit, range);
      stream_->ops().Copy(next, gradient + elements.begin, static_cast<size_t>(elements.size() * kFloatBytes));
      next += elements.size();
    }
  }
  RETURN_IF_ERROR(stream_->Synchronize());
  return packed_.as<const float>();
}

// One all-to-all for each piece a rank may have: piece k of rank r lands at (r * most + k) * elements of mine.
absl::Status Reducer::Exchange(int wave, int unit, const Contribution& mine) {
  const int me = world_.rank();
  const auto most = static_cast<int64_t>(plan_->MaxPieces(wave));
  const int64_t elements = mine_[static_cast<size_t>(unit)];
  const int64_t all = world_.size() * most * elements;
  for (int64_t k = 0; k < most; ++k) {
    Slices out(world_.size()), in(world_.size());
    const bool have = k < static_cast<int64_t>(mine.pieces.size());
    int64_t packed = 0;
    for (int r = 0; r < world_.size(); ++r) {
      const Ranges& summed = map_.Summed(unit, r);
      const int64_t count = map_.CountElements(unit, summed);
      const bool in_place = !scattered_[static_cast<size_t>(unit)] && !summed.empty();
      const int64_t begin = in_place ? map_.Elements(unit, summed.front()).begin : packed;
      packed += count;
      if (r == me) {
        mine_begin_ = begin;
        continue;
      }
      if (have) out.Set(r, count, begin);
      if (k < static_cast<int64_t>(plan_->Pieces(wave, r).size())) in.Set(r, elements, (r * most + k) * elements);
    }
    const int64_t unit_elements = map_.layout().units()[static_cast<size_t>(unit)].elements;
    ConstBytes sent;
    if (have) {
      ASSIGN_OR_RETURN(const float* gradient, Pack(unit, mine.pieces[static_cast<size_t>(k)].sum.data()));
      sent = AsBytes(gradient, unit_elements);
    }
    RETURN_IF_ERROR(world_.AllToAllV({sent, out.counts, out.displacements},
                                     {AsBytes(received_.as<float>(), all), in.counts, in.displacements},
                                     DeadlineOf(wave)));
    if (have && scattered_[static_cast<size_t>(unit)]) {
      stream_->ops().Copy(received_.as<float>() + (me * most + k) * elements, packed_.as<float>() + mine_begin_,
                          static_cast<size_t>(elements * kFloatBytes));
    }
  }
  return absl::OkStatus();
}

absl::Status Reducer::Accumulate(int wave, int unit, const Contribution& mine) {
  const int64_t elements = mine_[static_cast<size_t>(unit)];
  if (elements == 0) return absl::OkStatus();
  const size_t most = plan_->MaxPieces(wave);
  for (int r = 0; r < world_.size(); ++r) {
    const std::vector<MicrobatchRange>& pieces = plan_->Pieces(wave, r);
    for (size_t k = 0; k < pieces.size(); ++k) {
      const auto place = static_cast<int64_t>(static_cast<size_t>(r) * most + k);
      const bool in_place = r == world_.rank() && !scattered_[static_cast<size_t>(unit)];
      const float* sum = in_place ? mine.pieces[k].sum.data() + mine_begin_ : received_.as<float>() + place * elements;
      RETURN_IF_ERROR(sums_[static_cast<size_t>(unit)].Push(sum, pieces[k].count));
    }
  }
  return stream_->Synchronize();  // what was added up may be overwritten from here on
}

absl::Status Reducer::ReduceParts(int wave, int unit, const Contribution& mine) {
  const int64_t elements = mine_[static_cast<size_t>(unit)];
  const bool moved = part_gradients_->moves();
  if (moved) {
    RETURN_IF_ERROR(
        part_gradients_->Exchange(*plan_, wave, unit, mine.pieces, received_.as<float>(), DeadlineOf(wave)));
  }
  if (elements == 0) return absl::OkStatus();
  size_t home = 0;
  for (int r = 0; r < world_.size(); ++r) {
    if (plan_->RangeOf(wave, r).count == 0) continue;
    const float* gradient = moved ? received_.as<float>() + r * elements : mine.pieces[home++].sum.data();
    RETURN_IF_ERROR(sums_[static_cast<size_t>(unit)].Push(gradient, 1));
  }
  return stream_->Synchronize();
}

// The finished sums of this rank go to the other holders.
absl::Status Reducer::Forward(int unit) {
  if (placement_.Holders(0).size() == 1) return absl::OkStatus();
  const ForwardPlan& plan = forwards_[static_cast<size_t>(unit)];
  ConstBytes sent;
  if (const int64_t elements = mine_[static_cast<size_t>(unit)]; elements > 0) {
    const float* sum = sums_[static_cast<size_t>(unit)].Finish();
    sent = AsBytes(sum, elements);
    if (!plan.packed.empty()) {
      int64_t end = 0;
      for (const Range& part : plan.packed) {
        stream_->ops().Copy(packed_.as<float>() + end, sum + part.begin,
                            static_cast<size_t>(part.size() * kFloatBytes));
        end += part.size();
      }
      RETURN_IF_ERROR(stream_->Synchronize());
      sent = AsBytes(static_cast<const float*>(packed_.as<float>()), end);
    }
  }
  Buffer& mirror = mirrors_[static_cast<size_t>(unit)];
  const Bytes received(mirror.as<std::byte>(), mirror.bytes());
  return world_.AllToAllV({sent, plan.send_counts, plan.send_starts},
                          {received, plan.receive_counts, plan.receive_starts},
                          std::chrono::steady_clock::now() + timeout_);
}

// Sum of squares of each chunk of the finished sums.
absl::Status Reducer::SumSquares(int unit) {
  const Ranges& mine = map_.Summed(unit, world_.rank());
  if (mine.empty()) return absl::OkStatus();
  std::vector<ChunkRange> ranges;
  const float* sum = sums_[static_cast<size_t>(unit)].Finish();
  for (const Range& range : mine) {
    ranges.push_back({range.begin, range.end, sum});
    sum += map_.Elements(unit, range).size();
  }
  ASSIGN_OR_RETURN(auto sums, squares_.Of(ranges, map_.layout(), device_, *stream_));
  chunk_sums_.merge(sums);
  return absl::OkStatus();
}

}  // namespace holdfast
