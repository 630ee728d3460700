#include "framework/parallel/sharded_state.h"

#include <algorithm>

#define XXH_INLINE_ALL
#include "framework/base/log.h"
#include "framework/base/status.h"
#include "xxhash.h"

namespace holdfast {
namespace {

constexpr int64_t kBlock = 1 << 20;  // elements of a gradient or update that come to the CPU at a time

// What digests after an update take: digests, then the planes of chunks that are digested together.
constexpr size_t kMostTogether = 512;
constexpr size_t kPlanesBytes = size_t{32} << 20;
constexpr size_t kPlaneAlignment = 64;  // values

static_assert(kMaxPlanes <= kernels::kMaxDigestPlanes);

size_t FloatBytes(int64_t elements) { return static_cast<size_t>(elements) * sizeof(float); }

}  // namespace

size_t DigestMemoryBytes(const StateLayout& layout) {
  return kMostTogether * sizeof(uint64_t) + std::max(kPlanesBytes, layout.LargestChunkBytes()) +
         kMaxPlanes * kPlaneAlignment * sizeof(float);
}

absl::StatusOr<ShardedState> ShardedState::Create(const ShardMap& map, const StateLayout& layout,
                                                  const Options& options, Device& device, Stream& stream) {
  HOLDFAST_CHECK(&layout.parameters() == &map.layout());
  ShardedState state(map, layout, options, device, stream);
  state.block_memory_ = CpuBlocks::Create(device, FloatBytes(kBlock));
  state.digest_memory_ = CpuBlocks::Create(device, DigestMemoryBytes(layout));
  // Not as part of the former, which would pin 33 MiB of CPU memory for what is often some KiB.
  state.digests_ = CpuBlocks::Create(device, map.layout().chunks().size() * sizeof(uint64_t));
  // Now, also where log.digest_every_steps is 0: the last step of a run has a digest, too, and memory that is lacking
  // then would be found lacking after all the others.
  if (!device.is_cpu()) {
    ASSIGN_OR_RETURN(state.planes_after_, Buffer::Allocate(device, DigestMemoryBytes(layout), "digests"));
  }
  for (std::vector<PlaneMemory>& memory : state.memory_) memory.resize(layout.names().size());
  state.places_.resize(map.layout().chunks().size());
  for (int u = 0; u < map.layout().num_units(); ++u) state.PlaceUnit(u);
  for (const Role role : {kServed, kMirrored}) RETURN_IF_ERROR(state.Allocate(role));
  const auto bytes = static_cast<size_t>(state.compute_weight_offset_.back());
  ASSIGN_OR_RETURN(state.compute_weights_, Buffer::Allocate(device, bytes, "weights"));
  RETURN_IF_ERROR(stream.Synchronize());  // what is written next is not written by the stream
  return state;
}

void ShardedState::PlaceUnit(int u) {
  constexpr int64_t kPlaceAlignment = 64;
  const Unit& unit = map_->layout().units()[static_cast<size_t>(u)];
  const auto place = [&](int chunk, Role role) {
    Place& at = places_[static_cast<size_t>(chunk)];
    at.role = role;
    for (size_t plane = 0; plane < layout_->NumPlanes(ChunkAt(chunk)); ++plane) {
      int64_t& end = memory_[role][layout_->NameOf(ChunkAt(chunk).parameter, plane)].elements;
      at.element[plane] = end;
      end += ChunkAt(chunk).elements;
    }
  };
  if (compute_weight_offset_.empty()) compute_weight_offset_.push_back(0);
  const int64_t first = compute_weight_offset_.back();
  const bool whole = options_.whole_units && !(options_.in_parts && !unit.parts.empty());
  const auto aligned = [](int64_t bytes) { return (bytes + kPlaceAlignment - 1) / kPlaceAlignment * kPlaceAlignment; };
  int64_t end = first;
  for (const Range& range : map_->Served(u, options_.rank)) {
    const Range bytes = map_->ComputeWeightsOfChunks(u, range);
    const int64_t begin = whole ? first + bytes.begin : end;
    for (auto chunk = static_cast<int>(range.begin); chunk < range.end; ++chunk) {
      place(chunk, kServed);
      places_[static_cast<size_t>(chunk)].compute_weights =
          begin + map_->ComputeWeightsOfChunks(u, {chunk, chunk + 1}).begin - bytes.begin;
    }
    end = begin + bytes.size();
    if (!unit.parts.empty()) end = aligned(end);  // parts are as far from each other as in the whole unit
  }
  if (whole) end = first + map_->ComputeWeightBytes(u);
  compute_weight_offset_.push_back(aligned(end));
  for (int chunk = unit.first_chunk; chunk < unit.first_chunk + unit.num_chunks; ++chunk) {
    if (PlaceOf(chunk).role == kServed) continue;
    const std::vector<int> holders = map_->Holders(chunk);
    if (std::find(holders.begin(), holders.end(), options_.rank) != holders.end()) place(chunk, kMirrored);
  }
}

absl::Status ShardedState::Allocate(Role role) {
  for (size_t name = 0; name < memory_[role].size(); ++name) {
    if (name == 0 && ComputeWeightsAreMaster(role)) continue;
    PlaneMemory& memory = memory_[role][name];
    ASSIGN_OR_RETURN(memory.buffer, Buffer::Allocate(DeviceOf(role), FloatBytes(memory.elements),
                                                     name == 0 ? "fp32 weights" : "optimizer state"));
  }
  return absl::OkStatus();
}

float* ShardedState::Values(int chunk, size_t plane) const {
  const Place& place = PlaceOf(chunk);
  if (plane == 0 && ComputeWeightsAreMaster(place.role)) return reinterpret_cast<float*>(ComputeWeightsOf(place));
  const PlaneMemory& memory = memory_[place.role][layout_->NameOf(ChunkAt(chunk).parameter, plane)];
  return memory.buffer.as<float>() + place.element[plane];
}

PlaneRange ShardedState::RangeOf(int first, int64_t elements) const {
  PlaneRange range{.parameter = &ParameterOf(first), .n = elements, .planes = {}};
  const size_t planes = layout_->NumPlanes(ChunkAt(first));
  for (size_t plane = 0; plane < planes; ++plane) range.planes.push_back(Values(first, plane));
  return range;
}

int ShardedState::EndOfRange(int first, int end) const {
  int last = first;
  while (last + 1 < end) {
    const Place &here = PlaceOf(last), &next = PlaceOf(last + 1);
    const int64_t elements = ChunkAt(last).elements;
    const auto bytes =
        elements * static_cast<int64_t>(kernels::SizeOf(map_->ComputeWeightDType(ChunkAt(last).parameter)));
    const bool follows = next.role == here.role && next.element[0] == here.element[0] + elements &&
                         ChunkAt(last + 1).parameter == ChunkAt(last).parameter &&
                         (here.role != kServed || next.compute_weights == here.compute_weights + bytes);
    if (!follows) break;
    ++last;
  }
  return last + 1;
}

void ShardedState::Initialize(uint64_t seed) {
  const auto chunks = static_cast<int>(places_.size());
  for (int first = 0, end = 0; first < chunks; first = end) {
    end = EndOfRange(first, chunks);
    const Place& place = PlaceOf(first);
    if (place.role == kNone) continue;
    const ParameterSpec& p = ParameterOf(first);
    const int64_t begin = ChunkAt(first).offset - p.offset;
    const int64_t n = CountElements(first, end);
    if (p.init == InitKind::kNormal) {
      const kernels::RandomKey key{.seed = seed, .site = static_cast<uint32_t>(ChunkAt(first).parameter)};
      OpsOf(place.role).FillNormal(Weight(first), n, begin, p.init_std, key);
    } else {
      const std::vector<float> constant(static_cast<size_t>(n), InitialConstant(p));
      DeviceOf(place.role).CopyFromCpu(Weight(first), constant.data(), FloatBytes(n));
    }
    const std::vector<Plane>& planes = layout_->PlanesOf(ChunkAt(first).parameter);
    for (size_t plane = 1; plane < planes.size(); ++plane) {
      if (planes[plane].begins_as_weight) {
        OpsOf(place.role).Copy(Values(first, plane), Weight(first), FloatBytes(n));
      } else {
        OpsOf(place.role).Zero(Values(first, plane), FloatBytes(n));
      }
    }
  }
  RefreshComputeWeights();
}

void ShardedState::Update(Range chunks, const float* gradient, const UpdateArguments& arguments) {
  for (auto first = static_cast<int>(chunks.begin); first < chunks.end;) {
    const int end = EndOfRange(first, static_cast<int>(chunks.end));
    const int64_t before = ChunkAt(first).offset - ChunkAt(static_cast<int>(chunks.begin)).offset;
    UpdateRange(first, end, gradient + before, arguments);
    first = end;
  }
}

void ShardedState::UpdateRange(int first, int end, const float* gradient, const UpdateArguments& arguments) {
  const Place& place = PlaceOf(first);
  HOLDFAST_CHECK(place.role != kNone);
  const DType dtype = map_->ComputeWeightDType(ChunkAt(first).parameter);
  PlaneRange range = RangeOf(first, CountElements(first, end));
  range.gradient = gradient;
  if (!arguments.updates.empty()) range.update = arguments.updates[static_cast<size_t>(first)];
  if (OnCpu(place.role)) return UpdateOnCpu(range, arguments);
  const bool served = place.role == kServed;
  auto* const bf16 = served && dtype == DType::kBF16 ? reinterpret_cast<uint16_t*>(ComputeWeightsOf(place)) : nullptr;
  arguments.optimizer->Apply(stream_->ops(), range, arguments.scalars, bf16);
  if (served && !ComputeWeightsAreMaster(kServed) && dtype == DType::kF32) {
    stream_->ops().Copy(ComputeWeightsOf(place), range.planes[0], FloatBytes(range.n));
  }
}

void ShardedState::Contribute(int chunk, const float* gradient, const UpdateArguments& arguments, float* out) const {
  HOLDFAST_CHECK(PlaceOf(chunk).role == kServed && gradient != nullptr);
  PlaneRange range = RangeOf(chunk, ChunkAt(chunk).elements);
  range.gradient = gradient;
  arguments.optimizer->Contribute(stream_->ops(), range, arguments.scalars, out);
}

// Gradient and update are on the device, and come block by block.
void ShardedState::UpdateOnCpu(const PlaneRange& whole, const UpdateArguments& arguments) const {
  const CpuBytes gradient = block_memory_->Take(FloatBytes(kBlock)), update = block_memory_->Take(FloatBytes(kBlock));
  for (int64_t i = 0; i < whole.n; i += kBlock) {
    PlaneRange block = whole;
    block.n = std::min(kBlock, whole.n - i);
    for (float*& plane : block.planes) plane += i;
    device_->CopyToCpu(gradient.data(), whole.gradient + i, FloatBytes(block.n));
    block.gradient = reinterpret_cast<const float*>(gradient.data());
    if (whole.update != nullptr) {
      device_->CopyToCpu(update.data(), whole.update + i, FloatBytes(block.n));
      block.update = reinterpret_cast<const float*>(update.data());
    }
    arguments.optimizer->Apply(options_.cpu.stream->ops(), block, arguments.scalars, nullptr);
  }
}

ShardedState::Places ShardedState::PlacesOf(int index) const {
  Places places;
  const size_t bytes = FloatBytes(ChunkAt(index).elements);
  for (size_t plane = 0; plane < layout_->NumPlanes(ChunkAt(index)); ++plane) {
    places.emplace_back(reinterpret_cast<std::byte*>(Values(index, plane)), bytes);
  }
  return places;
}

void ShardedState::ReadWeights(int index, float* out) const {
  const absl::Span<const std::byte> weight = PlacesOf(index)[0];
  DeviceOf(PlaceOf(index).role).CopyToCpu(out, weight.data(), weight.size());
}

void ShardedState::ReadChunk(int index, std::byte* out) const {
  Device& device = DeviceOf(PlaceOf(index).role);
  for (const absl::Span<const std::byte> place : PlacesOf(index)) {
    device.CopyToCpu(out, place.data(), place.size());
    out += place.size();
  }
}

void ShardedState::QueueReadChunk(int index, std::byte* out, Stream& stream) const {
  if (OnCpu(PlaceOf(index).role)) return ReadChunk(index, out);
  for (const absl::Span<const std::byte> place : PlacesOf(index)) {
    stream.CopyToCpu(out, place.data(), place.size());
    out += place.size();
  }
}

void ShardedState::WriteChunk(int index, const std::byte* in) {
  Device& device = DeviceOf(PlaceOf(index).role);
  for (const absl::Span<std::byte> place : PlacesOf(index)) {
    device.CopyFromCpu(place.data(), in, place.size());
    in += place.size();
  }
}

void ShardedState::CopyChunk(int index, const ShardedState& from) {
  const Role role = PlaceOf(index).role;
  const Places here = PlacesOf(index), there = from.PlacesOf(index);
  if (OnCpu(role) == from.OnCpu(from.PlaceOf(index).role)) {
    for (size_t i = 0; i < here.size(); ++i) OpsOf(role).Copy(here[i].data(), there[i].data(), here[i].size());
    return;
  }
  std::vector<std::byte> bytes(layout_->ChunkBytes(ChunkAt(index)));
  from.ReadChunk(index, bytes.data());
  WriteChunk(index, bytes.data());
}

ShardedState::Places ShardedState::ChunkMemory(int index) {
  return DeviceOf(PlaceOf(index).role).is_cpu() ? PlacesOf(index) : Places{};
}

void ShardedState::RefreshComputeWeights() {
  if (ComputeWeightsAreMaster(kServed)) return;
  const auto chunks = static_cast<int>(places_.size());
  for (int first = 0, end = 0; first < chunks; first = end) {
    end = EndOfRange(first, chunks);
    const Place& place = PlaceOf(first);
    if (place.role != kServed) continue;
    const int64_t n = CountElements(first, end);
    if (map_->ComputeWeightDType(ChunkAt(first).parameter) == DType::kBF16) {
      stream_->ops().CastToBf16(reinterpret_cast<uint16_t*>(ComputeWeightsOf(place)), Weight(first), n);
    } else {
      stream_->ops().Copy(ComputeWeightsOf(place), Weight(first), FloatBytes(n));
    }
  }
}

uint64_t ShardedState::ChunkDigest(int chunk) const {
  std::vector<std::byte> bytes(layout_->ChunkBytes(ChunkAt(chunk)));
  ReadChunk(chunk, bytes.data());
  return XXH3_64bits(bytes.data(), bytes.size());
}

size_t ShardedState::CountTogether(absl::Span<const ChunkGradient> chunks) const {
  const size_t bytes = layout_->ChunkBytes(ChunkAt(chunks[0].chunk));
  const size_t most = std::min({std::max<size_t>(kPlanesBytes / bytes, 1), kMostTogether, chunks.size()});
  size_t count = 1;
  while (count < most) {
    const ChunkGradient &last = chunks[count - 1], &next = chunks[count];
    const bool follows = next.chunk == last.chunk + 1 && EndOfRange(last.chunk, next.chunk + 1) == next.chunk + 1 &&
                         next.gradient == last.gradient + ChunkAt(last.chunk).elements;
    if (!follows) break;
    ++count;
  }
  return count;
}

void ShardedState::QueueDigestsAfter(absl::Span<const ChunkGradient> chunks, const UpdateArguments& arguments,
                                     std::byte* memory, uint64_t* out) const {
  const int first = chunks[0].chunk;
  const Role role = PlaceOf(first).role;
  const bool on_cpu = DeviceOf(role).is_cpu();
  if (!on_cpu) memory = planes_after_.as<std::byte>();
  kernels::Ops& ops = OpsOf(role);
  PlaneRange range = RangeOf(first, CountElements(first, chunks.back().chunk + 1));
  range.gradient = chunks[0].gradient;
  if (!arguments.updates.empty()) range.update = arguments.updates[static_cast<size_t>(first)];
  kernels::ChunkDigestsArgs digested{.digests = on_cpu ? out : reinterpret_cast<uint64_t*>(memory),
                                     .num_planes = static_cast<int>(range.planes.size()),
                                     .n = range.n,
                                     .chunk = ChunkAt(first).elements};
  auto* copy = reinterpret_cast<float*>(memory + kMostTogether * sizeof(uint64_t));
  const size_t stride = (static_cast<size_t>(range.n) + kPlaneAlignment - 1) / kPlaneAlignment * kPlaneAlignment;
  for (size_t plane = 0; plane < range.planes.size(); ++plane, copy += stride) {
    ops.Copy(copy, range.planes[plane], FloatBytes(range.n));
    digested.planes[plane] = range.planes[plane] = copy;
  }
  if (OnCpu(role)) {
    UpdateOnCpu(range, arguments);
  } else {
    arguments.optimizer->Apply(ops, range, arguments.scalars, nullptr);
  }
  ops.ChunkDigests(digested);
  if (!on_cpu) stream_->CopyToCpu(out, digested.digests, chunks.size() * sizeof(uint64_t));
}

std::map<int, uint64_t> ShardedState::DigestsAfter(absl::Span<const ChunkGradient> chunks,
                                                   const UpdateArguments& arguments) const {
  const auto lies_on_cpu = [this](const ChunkGradient& of) { return DeviceOf(PlaceOf(of.chunk).role).is_cpu(); };
  const CpuBytes memory = std::any_of(chunks.begin(), chunks.end(), lies_on_cpu)
                              ? digest_memory_->Take(DigestMemoryBytes(*layout_))
                              : CpuBytes();
  const CpuBytes out = digests_->Take(chunks.size() * sizeof(uint64_t));
  auto* const digests = reinterpret_cast<uint64_t*>(out.data());
  for (size_t first = 0, count = 0; first < chunks.size(); first += count) {
    count = CountTogether(chunks.subspan(first));
    QueueDigestsAfter(chunks.subspan(first, count), arguments, memory.data(), digests + first);
  }
  const absl::Status made = stream_->Synchronize();
  if (!made.ok()) LogError("digests of the state cannot be made: ", made.message());
  HOLDFAST_CHECK(made.ok());  // else as Device::CopyToCpu: the process is lost with its GPU
  std::map<int, uint64_t> by_chunk;
  for (size_t i = 0; i < chunks.size(); ++i) by_chunk[chunks[i].chunk] = digests[i];
  return by_chunk;
}

uint64_t StateDigest(absl::Span<const uint64_t> chunk_digests) {
  return XXH3_64bits(chunk_digests.data(), chunk_digests.size() * sizeof(uint64_t));
}

}  // namespace holdfast
