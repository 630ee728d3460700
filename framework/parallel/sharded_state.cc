#include "framework/parallel/sharded_state.h"

#include <algorithm>

#define XXH_INLINE_ALL
#include "framework/base/status.h"
#include "xxhash.h"

namespace holdfast {
namespace {

kernels::AdamWArgs MakeAdamW(const ParameterSpec& p, const UpdateArguments& a) {
  return {.grad_scale = a.scalars.grad_scale,
          .lr = a.scalars.lr,
          .beta1 = static_cast<float>(a.optimizer.beta1),
          .beta2 = static_cast<float>(a.optimizer.beta2),
          .eps = static_cast<float>(a.optimizer.eps),
          .weight_decay = p.decay ? static_cast<float>(a.optimizer.weight_decay) : 0.0f,
          .bias_correction1 = a.scalars.bias_correction1,
          .bias_correction2_sqrt = a.scalars.bias_correction2_sqrt};
}

constexpr int64_t kGradientBlock = 1 << 20;  // elements of a gradient that come to the host at a time

size_t FloatBytes(int64_t elements) { return static_cast<size_t>(elements) * sizeof(float); }

}  // namespace

absl::StatusOr<ShardedState> ShardedState::Create(const ShardMap& map, const Options& options, Device& device,
                                                  Stream& stream) {
  ShardedState state(map, options, device, stream);
  state.gradient_memory_ = HostBlocks::Create(device, FloatBytes(kGradientBlock));
  state.places_.resize(map.layout().chunks().size());
  for (int u = 0; u < map.layout().num_units(); ++u) state.PlaceUnit(u);
  for (const Part part : {kServed, kMirrored}) HF_RETURN_IF_ERROR(state.Allocate(part));
  const auto image_bytes = static_cast<size_t>(state.image_offset_.back());
  HF_ASSIGN_OR_RETURN(state.image_, Buffer::Allocate(device, image_bytes, "weights"));
  HF_RETURN_IF_ERROR(stream.Synchronize());  // what is written next is not written by the stream
  return state;
}

void ShardedState::PlaceUnit(int u) {
  constexpr int64_t kAlignment = 64;
  const Unit& unit = map_->layout().units()[static_cast<size_t>(u)];
  const auto place = [&](int chunk, Part part) {
    Memory& memory = memory_[part];
    places_[static_cast<size_t>(chunk)] = {part, memory.elements, 0};
    memory.elements += ChunkAt(chunk).elements;
  };
  if (image_offset_.empty()) image_offset_.push_back(0);
  const int64_t image = image_offset_.back();
  int64_t image_end = image;
  for (const Range& run : map_->Served(u, options_.rank)) {
    const Range bytes = map_->ImageOfChunks(u, run);
    const int64_t begin = options_.whole_images ? image + bytes.begin : image_end;
    for (auto chunk = static_cast<int>(run.begin); chunk < run.end; ++chunk) {
      place(chunk, kServed);
      places_[static_cast<size_t>(chunk)].image =
          begin + map_->ImageOfChunks(u, {chunk, chunk + 1}).begin - bytes.begin;
    }
    image_end = begin + bytes.size();
  }
  if (options_.whole_images) image_end = image + map_->ImageBytes(u);
  image_offset_.push_back((image_end + kAlignment - 1) / kAlignment * kAlignment);
  for (int chunk = unit.first_chunk; chunk < unit.first_chunk + unit.num_chunks; ++chunk) {
    if (PlaceOf(chunk).part == kServed) continue;
    const std::vector<int> holders = map_->Holders(chunk);
    if (std::find(holders.begin(), holders.end(), options_.rank) != holders.end()) place(chunk, kMirrored);
  }
}

absl::Status ShardedState::Allocate(Part part) {
  Memory& memory = memory_[part];
  const size_t bytes = FloatBytes(memory.elements);
  Device& device = DeviceOf(part);
  if (!ImageIsMaster(part)) {
    HF_ASSIGN_OR_RETURN(memory.weight, Buffer::Allocate(device, bytes, "fp32 weights"));
  }
  HF_ASSIGN_OR_RETURN(memory.exp_avg, Buffer::Allocate(device, bytes, "AdamW moments"));
  HF_ASSIGN_OR_RETURN(memory.exp_avg_sq, Buffer::Allocate(device, bytes, "AdamW moments"));
  OpsOf(part).Zero(memory.exp_avg.data(), bytes);
  OpsOf(part).Zero(memory.exp_avg_sq.data(), bytes);
  return absl::OkStatus();
}

float* ShardedState::Weight(const Place& place) const {
  if (ImageIsMaster(place.part)) return reinterpret_cast<float*>(ImageOf(place));
  return memory_[place.part].weight.as<float>() + place.element;
}

int ShardedState::EndOfRun(int first, int end) const {
  int last = first;
  while (last + 1 < end) {
    const Place &here = PlaceOf(last), &next = PlaceOf(last + 1);
    const int64_t elements = ChunkAt(last).elements;
    const auto image = elements * static_cast<int64_t>(kernels::SizeOf(map_->ImageDType(ChunkAt(last).parameter)));
    const bool follows = next.part == here.part && next.element == here.element + elements &&
                         ChunkAt(last + 1).parameter == ChunkAt(last).parameter &&
                         (here.part != kServed || next.image == here.image + image);
    if (!follows) break;
    ++last;
  }
  return last + 1;
}

void ShardedState::Initialize(uint64_t seed) {
  for (const Part part : {kServed, kMirrored}) {
    const Memory& memory = memory_[part];
    OpsOf(part).Zero(memory.exp_avg.data(), memory.exp_avg.bytes());
    OpsOf(part).Zero(memory.exp_avg_sq.data(), memory.exp_avg_sq.bytes());
  }
  const auto chunks = static_cast<int>(places_.size());
  for (int first = 0, end = 0; first < chunks; first = end) {
    end = EndOfRun(first, chunks);
    const Place& place = PlaceOf(first);
    if (place.part == kNone) continue;
    const ParameterSpec& p = ParameterOf(first);
    const int64_t begin = ChunkAt(first).offset - p.offset;
    const int64_t n = ChunkAt(end - 1).offset + ChunkAt(end - 1).elements - ChunkAt(first).offset;
    if (p.init == InitKind::kNormal) {
      const kernels::RandomKey key{.seed = seed, .site = static_cast<uint32_t>(ChunkAt(first).parameter)};
      OpsOf(place.part).FillNormal(Weight(place), n, begin, p.init_std, key);
    } else {
      const std::vector<float> constant(static_cast<size_t>(n), p.init == InitKind::kOnes ? 1.f : 0.f);
      DeviceOf(place.part).CopyFromHost(Weight(place), constant.data(), FloatBytes(n));
    }
  }
  RefreshImages();
}

void ShardedState::Update(Range chunks, const float* gradient, const UpdateArguments& arguments) {
  for (auto first = static_cast<int>(chunks.begin); first < chunks.end;) {
    const int end = EndOfRun(first, static_cast<int>(chunks.end));
    const int64_t before = ChunkAt(first).offset - ChunkAt(static_cast<int>(chunks.begin)).offset;
    UpdateRun(first, end, gradient + before, arguments);
    first = end;
  }
}

void ShardedState::UpdateRun(int first, int end, const float* gradient, const UpdateArguments& arguments) {
  const Place& place = PlaceOf(first);
  HF_CHECK(place.part != kNone);
  const int parameter = ChunkAt(first).parameter;
  const Memory& memory = memory_[place.part];
  kernels::AdamWArgs adamw = MakeAdamW(ParameterOf(first), arguments);
  adamw.n = ChunkAt(end - 1).offset + ChunkAt(end - 1).elements - ChunkAt(first).offset;
  adamw.weight = Weight(place);
  adamw.exp_avg = memory.exp_avg.as<float>() + place.element;
  adamw.exp_avg_sq = memory.exp_avg_sq.as<float>() + place.element;
  adamw.grad = gradient;
  if (OnHost(place.part)) return UpdateOnHost(adamw);
  const bool served = place.part == kServed;
  if (served && map_->ImageDType(parameter) == DType::kBF16) {
    adamw.weight_bf16 = reinterpret_cast<uint16_t*>(ImageOf(place));
  }
  stream_->ops().AdamW(adamw);
  if (served && !ImageIsMaster(kServed) && map_->ImageDType(parameter) == DType::kF32) {
    stream_->ops().Copy(ImageOf(place), adamw.weight, FloatBytes(adamw.n));
  }
}

// The gradient is on the device, and comes block by block.
void ShardedState::UpdateOnHost(const kernels::AdamWArgs& whole) const {
  const HostBytes memory = gradient_memory_->Take(FloatBytes(kGradientBlock));
  auto* const gradient = reinterpret_cast<float*>(memory.data());
  for (int64_t i = 0; i < whole.n; i += kGradientBlock) {
    kernels::AdamWArgs block = whole;
    block.n = std::min(kGradientBlock, whole.n - i);
    device_->CopyToHost(gradient, whole.grad + i, FloatBytes(block.n));
    block.grad = gradient;
    block.weight += i;
    block.exp_avg += i;
    block.exp_avg_sq += i;
    options_.host.stream->ops().AdamW(block);
  }
}

ShardedState::Places ShardedState::PlacesOf(int index) const {
  const Place& place = PlaceOf(index);
  const Memory& memory = memory_[place.part];
  const auto bytes = [&](float* values) {
    return absl::MakeSpan(reinterpret_cast<std::byte*>(values), FloatBytes(ChunkAt(index).elements));
  };
  return {bytes(Weight(place)), bytes(memory.exp_avg.as<float>() + place.element),
          bytes(memory.exp_avg_sq.as<float>() + place.element)};
}

void ShardedState::ReadWeights(int index, float* out) const {
  const absl::Span<const std::byte> weight = PlacesOf(index)[0];
  DeviceOf(PlaceOf(index).part).CopyToHost(out, weight.data(), weight.size());
}

void ShardedState::ReadChunk(int index, std::byte* out) const {
  Device& device = DeviceOf(PlaceOf(index).part);
  for (const absl::Span<const std::byte> place : PlacesOf(index)) {
    device.CopyToHost(out, place.data(), place.size());
    out += place.size();
  }
}

void ShardedState::QueueReadChunk(int index, std::byte* out, Stream& stream) const {
  if (OnHost(PlaceOf(index).part)) return ReadChunk(index, out);
  for (const absl::Span<const std::byte> place : PlacesOf(index)) {
    stream.CopyToHost(out, place.data(), place.size());
    out += place.size();
  }
}

void ShardedState::WriteChunk(int index, const std::byte* in) {
  Device& device = DeviceOf(PlaceOf(index).part);
  for (const absl::Span<std::byte> place : PlacesOf(index)) {
    device.CopyFromHost(place.data(), in, place.size());
    in += place.size();
  }
}

void ShardedState::CopyChunk(int index, const ShardedState& from) {
  const Part part = PlaceOf(index).part;
  const Places here = PlacesOf(index), there = from.PlacesOf(index);
  if (OnHost(part) == from.OnHost(from.PlaceOf(index).part)) {
    for (size_t i = 0; i < here.size(); ++i) OpsOf(part).Copy(here[i].data(), there[i].data(), here[i].size());
    return;
  }
  std::vector<std::byte> bytes(ChunkBytes(ChunkAt(index)));
  from.ReadChunk(index, bytes.data());
  WriteChunk(index, bytes.data());
}

ShardedState::Places ShardedState::ChunkMemory(int index) {
  return DeviceOf(PlaceOf(index).part).is_host() ? PlacesOf(index) : Places{};
}

void ShardedState::RefreshImages() {
  if (ImageIsMaster(kServed)) return;
  const auto chunks = static_cast<int>(places_.size());
  for (int first = 0, end = 0; first < chunks; first = end) {
    end = EndOfRun(first, chunks);
    const Place& place = PlaceOf(first);
    if (place.part != kServed) continue;
    const int64_t n = ChunkAt(end - 1).offset + ChunkAt(end - 1).elements - ChunkAt(first).offset;
    if (map_->ImageDType(ChunkAt(first).parameter) == DType::kBF16) {
      stream_->ops().CastToBf16(reinterpret_cast<uint16_t*>(ImageOf(place)), Weight(place), n);
    } else {
      stream_->ops().Copy(ImageOf(place), Weight(place), FloatBytes(n));
    }
  }
}

uint64_t ShardedState::ChunkDigest(int chunk) const {
  std::vector<std::byte> bytes(ChunkBytes(ChunkAt(chunk)));
  ReadChunk(chunk, bytes.data());
  return XXH3_64bits(bytes.data(), bytes.size());
}

uint64_t ShardedState::ChunkDigestAfter(int index, const float* gradient, const UpdateArguments& arguments) const {
  const Chunk& chunk = ChunkAt(index);
  std::vector<float> values(static_cast<size_t>(3 * chunk.elements));
  ReadChunk(index, reinterpret_cast<std::byte*>(values.data()));
  kernels::AdamWArgs adamw = MakeAdamW(ParameterOf(index), arguments);
  adamw.n = chunk.elements;
  adamw.weight = values.data();
  adamw.exp_avg = adamw.weight + chunk.elements;
  adamw.exp_avg_sq = adamw.exp_avg + chunk.elements;
  adamw.grad = gradient;
  if (device_->is_host()) {
    stream_->ops().AdamW(adamw);
  } else {
    UpdateOnHost(adamw);  // the same bits
  }
  return XXH3_64bits(values.data(), values.size() * sizeof(float));
}

uint64_t StateDigest(absl::Span<const uint64_t> chunk_digests) {
  return XXH3_64bits(chunk_digests.data(), chunk_digests.size() * sizeof(uint64_t));
}

}  // namespace holdfast
