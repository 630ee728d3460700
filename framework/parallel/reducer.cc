#include "framework/parallel/reducer.h"

#include <algorithm>
#include <utility>

#include "framework/base/status.h"

namespace holdfast {
namespace {

// Gradients of units that may wait for being reduced; computation waits when there are more.
constexpr size_t kMostWaiting = 2;

constexpr int64_t kFloatBytes = sizeof(float);

/// Sizes and places of what goes to or comes from each rank.
struct Parts {
  explicit Parts(int size) : counts(static_cast<size_t>(size)), displacements(counts.size()) {}
  void Set(int rank, int64_t elements, int64_t first_element) {
    counts[static_cast<size_t>(rank)] = elements * kFloatBytes;
    displacements[static_cast<size_t>(rank)] = first_element * kFloatBytes;
  }
  std::vector<int64_t> counts, displacements;  // bytes
};

ConstBytes AsBytes(const float* data, int64_t elements) {
  return {reinterpret_cast<const std::byte*>(data), static_cast<size_t>(elements * kFloatBytes)};
}
Bytes AsBytes(float* data, int64_t elements) {
  return {reinterpret_cast<std::byte*>(data), static_cast<size_t>(elements * kFloatBytes)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Reducer>> Reducer::Create(const ShardMap& map, const Placement& placement,
                                                         Communicator& world, Device& device,
                                                         std::chrono::milliseconds timeout) {
  HF_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, device.CreateStream(StreamKind::kTransfer));
  std::unique_ptr<Reducer> reducer(new Reducer(map, placement, world, device, std::move(stream), timeout));
  HF_RETURN_IF_ERROR(reducer->AllocateMirrors());
  return reducer;
}

Reducer::Reducer(const ShardMap& map, const Placement& placement, Communicator& world, Device& device,
                 std::unique_ptr<Stream> stream, std::chrono::milliseconds timeout)
    : map_(map),
      placement_(placement),
      world_(world),
      device_(device),
      stream_(std::move(stream)),
      timeout_(timeout),
      slice_(placement.SliceOfRank(world.rank())) {
  for (int u = 0; u < map.layout().num_units(); ++u) {
    trees_.emplace_back(device, stream_->ops(), slice_ < 0 ? 0 : map.SliceElements(u, slice_).size());
  }
}

Reducer::~Reducer() { Abort("the world was left"); }

// Memory for the finished gradients that other ranks send: of the slices of held shards that are not summed here.
absl::Status Reducer::AllocateMirrors() {
  for (int u = 0; u < map_.layout().num_units(); ++u) {
    std::vector<GradientPiece> pieces;
    int64_t elements = 0;
    for (int slice = 0; slice < map_.num_slices(); ++slice) {
      const std::vector<int>& held = placement_.HeldShards(world_.rank());
      if (slice == slice_ || std::find(held.begin(), held.end(), placement_.ShardOfSlice(slice)) == held.end())
        continue;
      pieces.push_back({.unit = u, .slice = slice, .range = map_.SliceElements(u, slice)});
      elements += pieces.back().range.size();
    }
    HF_ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(device_, static_cast<size_t>(elements * kFloatBytes),
                                                        "gradients of mirrored shards"));
    int64_t offset = 0;
    for (GradientPiece& piece : pieces) {
      piece.gradient = buffer.as<float>() + offset;
      offset += piece.range.size();
      mirrored_.push_back(piece);
    }
    mirrors_.push_back(std::move(buffer));
  }
  return absl::OkStatus();
}

absl::Status Reducer::Begin(const ReductionPlan& plan, std::vector<int> units) {
  thread_.Drain();
  {
    const std::lock_guard lock(mutex_);
    HF_RETURN_IF_ERROR(failure_);
    HF_CHECK(contributions_.empty() && opened_.empty());
  }
  plan_ = plan;
  units_ = std::move(units);
  chunk_sums_.clear();
  for (SummationTree& tree : trees_) tree.Reset();
  HF_RETURN_IF_ERROR(AllocateReceived());
  thread_.Post([this] { Run(); });
  return absl::OkStatus();
}

// For the largest exchange of the step, before it: to allocate in the middle of it may wait for others' calls.
absl::Status Reducer::AllocateReceived() {
  int64_t elements = 0;
  size_t most = 0;
  for (const int unit : units_) elements = std::max(elements, slice_ < 0 ? 0 : map_.SliceElements(unit, slice_).size());
  for (int wave = 0; wave < plan_->num_waves(); ++wave) most = std::max(most, MostBlocks(wave));
  const size_t bytes = static_cast<size_t>(world_.size() * elements * kFloatBytes) * most;
  if (received_.bytes() >= bytes) return absl::OkStatus();
  received_ = Buffer();
  HF_ASSIGN_OR_RETURN(received_, Buffer::Allocate(device_, bytes, "gradients of other ranks"));
  return absl::OkStatus();
}

absl::StatusOr<size_t> Reducer::TakeBuffer(size_t bytes) {
  for (size_t i = 0; i < pool_.size(); ++i) {
    if (pool_[i].free && pool_[i].memory.bytes() == bytes) return i;
  }
  HF_ASSIGN_OR_RETURN(Buffer memory, Buffer::Allocate(device_, bytes, "gradients"));
  pool_.push_back({std::move(memory)});
  return pool_.size() - 1;
}

absl::StatusOr<float*> Reducer::Open(int unit, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, stop, [&] { return !failure_.ok() || contributions_.size() < kMostWaiting; });
  HF_RETURN_IF_ERROR(failure_);
  if (stop.stop_requested()) return absl::CancelledError("the step was abandoned: a stop was requested");
  const int64_t elements = map_.layout().units()[static_cast<size_t>(unit)].elements;
  HF_ASSIGN_OR_RETURN(const size_t buffer, TakeBuffer(static_cast<size_t>(elements * kFloatBytes)));
  pool_[buffer].free = false;
  opened_[unit] = buffer;
  return pool_[buffer].memory.as<float>();
}

void Reducer::Close(int unit, const std::shared_ptr<Event>& ready) {
  const std::lock_guard lock(mutex_);
  const size_t buffer = opened_.at(unit);
  opened_.erase(unit);
  contributions_.push_back({unit, {{.block = {}, .sum = pool_[buffer].memory.as<float>()}}, buffer, ready});
  changed_.notify_all();
}

void Reducer::Contribute(int unit, std::vector<SummationTree::Partial> partials, const std::shared_ptr<Event>& ready) {
  const std::lock_guard lock(mutex_);
  contributions_.push_back({unit, std::move(partials), std::nullopt, ready});
  changed_.notify_all();
}

absl::Status Reducer::Finish() {
  thread_.Drain();
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::vector<GradientPiece> Reducer::Gradients() {
  std::vector<GradientPiece> pieces = mirrored_;
  for (int u = 0; slice_ >= 0 && u < map_.layout().num_units(); ++u) {
    const Range range = map_.SliceElements(u, slice_);
    if (!range.empty()) pieces.push_back({u, slice_, range, trees_[static_cast<size_t>(u)].Finish()});
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
  for (int wave = 0; wave < plan_->num_waves(); ++wave) {
    for (const int unit : units_) {
      const absl::Status status = ReduceUnit(wave, unit);
      if (!status.ok()) return Fail(status);
    }
  }
}

absl::Status Reducer::ReduceUnit(int wave, int unit) {
  HF_ASSIGN_OR_RETURN(const Contribution mine, NextContribution(wave, unit));
  WaitFor(mine.ready);
  HF_RETURN_IF_ERROR(Exchange(wave, unit, mine));
  HF_RETURN_IF_ERROR(Accumulate(wave, unit, mine));
  GiveBack(mine);
  if (wave + 1 < plan_->num_waves()) return absl::OkStatus();
  HF_RETURN_IF_ERROR(SumSquares(unit));
  return Forward(unit);
}

absl::StatusOr<Reducer::Contribution> Reducer::NextContribution(int wave, int unit) {
  std::unique_lock lock(mutex_);
  if (plan_->Run(wave, world_.rank()).count == 0) {
    HF_RETURN_IF_ERROR(failure_);
    return Contribution{.unit = unit, .partials = {}, .buffer = {}, .ready = {}};
  }
  changed_.wait(lock, [&] { return !failure_.ok() || !contributions_.empty(); });
  HF_RETURN_IF_ERROR(failure_);
  HF_CHECK(contributions_.front().unit == unit);
  return contributions_.front();
}

void Reducer::GiveBack(const Contribution& contribution) {
  if (contribution.partials.empty()) return;
  const std::lock_guard lock(mutex_);
  if (contribution.buffer.has_value()) pool_[*contribution.buffer].free = true;
  contributions_.pop_front();
  changed_.notify_all();
}

std::vector<AlignedBlock> Reducer::Blocks(int wave, int rank) const {
  const MicrobatchRun& run = plan_->Run(wave, rank);
  return AlignedBlocks(run.first, run.count);
}

size_t Reducer::MostBlocks(int wave) const {
  size_t most = 0;
  for (int rank = 0; rank < world_.size(); ++rank) most = std::max(most, Blocks(wave, rank).size());
  return most;
}

// One all-to-all for each block a rank may have: block k of rank r lands at (r * most + k) * elements of my slice.
absl::Status Reducer::Exchange(int wave, int unit, const Contribution& mine) {
  const int me = world_.rank();
  const auto most = static_cast<int64_t>(MostBlocks(wave));
  const int64_t elements = slice_ < 0 ? 0 : map_.SliceElements(unit, slice_).size();
  const int64_t all = world_.size() * most * elements;
  for (int64_t k = 0; k < most; ++k) {
    Parts out(world_.size()), in(world_.size());
    const bool have = k < static_cast<int64_t>(mine.partials.size());
    for (int r = 0; r < world_.size(); ++r) {
      if (r == me) continue;
      const int slice = placement_.SliceOfRank(r);
      if (have && slice >= 0) {
        const Range range = map_.SliceElements(unit, slice);
        out.Set(r, range.size(), range.begin);
      }
      if (k < static_cast<int64_t>(Blocks(wave, r).size())) in.Set(r, elements, (r * most + k) * elements);
    }
    const int64_t unit_elements = map_.layout().units()[static_cast<size_t>(unit)].elements;
    const ConstBytes sent = have ? AsBytes(mine.partials[static_cast<size_t>(k)].sum, unit_elements) : ConstBytes();
    HF_RETURN_IF_ERROR(world_.AllToAllV({sent, out.counts, out.displacements},
                                        {AsBytes(received_.as<float>(), all), in.counts, in.displacements},
                                        NextDeadline()));
  }
  return absl::OkStatus();
}

absl::Status Reducer::Accumulate(int wave, int unit, const Contribution& mine) {
  if (slice_ < 0) return absl::OkStatus();
  const Range range = map_.SliceElements(unit, slice_);
  if (range.empty()) return absl::OkStatus();
  const size_t most = MostBlocks(wave);
  for (int r = 0; r < world_.size(); ++r) {
    const std::vector<AlignedBlock> blocks = Blocks(wave, r);
    for (size_t k = 0; k < blocks.size(); ++k) {
      const auto place = static_cast<int64_t>(static_cast<size_t>(r) * most + k);
      const float* sum =
          r == world_.rank() ? mine.partials[k].sum + range.begin : received_.as<float>() + place * range.size();
      HF_RETURN_IF_ERROR(trees_[static_cast<size_t>(unit)].Push(sum, blocks[k].level));
    }
  }
  return stream_->Synchronize();  // what was added up may be overwritten from here on
}

// The finished sum of this rank's slice goes to the slice's other holders.
absl::Status Reducer::Forward(int unit) {
  if (placement_.num_groups() == 1 && placement_.Holders(0).size() == 1) return absl::OkStatus();
  Parts out(world_.size()), in(world_.size());
  ConstBytes sent;
  if (slice_ >= 0) {
    const int64_t elements = map_.SliceElements(unit, slice_).size();
    if (elements > 0) sent = AsBytes(static_cast<const float*>(trees_[static_cast<size_t>(unit)].Finish()), elements);
    for (const int holder : placement_.Holders(placement_.ShardOfSlice(slice_))) {
      if (holder != world_.rank()) out.Set(holder, elements, 0);
    }
  }
  Buffer& mirror = mirrors_[static_cast<size_t>(unit)];
  for (const GradientPiece& piece : mirrored_) {
    if (piece.unit != unit) continue;
    in.Set(placement_.RankOfSlice(piece.slice), piece.range.size(), piece.gradient - mirror.as<float>());
  }
  const Bytes received(mirror.as<std::byte>(), mirror.bytes());
  return world_.AllToAllV({sent, out.counts, out.displacements}, {received, in.counts, in.displacements},
                          NextDeadline());
}

// Sum of squares of each chunk of the finished slice.
absl::Status Reducer::SumSquares(int unit) {
  if (slice_ < 0) return absl::OkStatus();
  const Range chunks = map_.SliceChunks(unit, slice_);
  if (chunks.empty()) return absl::OkStatus();
  const ChunkRun run{chunks.begin, chunks.end, trees_[static_cast<size_t>(unit)].Finish()};
  HF_ASSIGN_OR_RETURN(auto sums, squares_.Of({&run, 1}, map_.layout(), device_, *stream_));
  chunk_sums_.merge(sums);
  return absl::OkStatus();
}

}  // namespace holdfast
