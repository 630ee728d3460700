#include "framework/parallel/sharded_state.h"

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
  for (const int shard : options.held_shards) HF_RETURN_IF_ERROR(state.AllocateShard(shard));
  HF_RETURN_IF_ERROR(state.AllocateImages());
  HF_RETURN_IF_ERROR(stream.Synchronize());  // what is written next is not written by the stream
  return state;
}

absl::Status ShardedState::AllocateShard(int index) {
  Shard shard;
  for (int u = 0; u < map_->layout().num_units(); ++u) {
    const Range range = map_->ShardElements(u, index);
    shard.unit_offset.push_back(shard.elements - range.begin);
    shard.elements += range.size();
  }
  const size_t bytes = FloatBytes(shard.elements);
  Device& device = DeviceOf(index);
  if (!ImageIsMaster(index)) {
    HF_ASSIGN_OR_RETURN(shard.weight, Buffer::Allocate(device, bytes, "fp32 weights"));
  }
  HF_ASSIGN_OR_RETURN(shard.exp_avg, Buffer::Allocate(device, bytes, "AdamW moments"));
  HF_ASSIGN_OR_RETURN(shard.exp_avg_sq, Buffer::Allocate(device, bytes, "AdamW moments"));
  OpsOf(index).Zero(shard.exp_avg.data(), bytes);
  OpsOf(index).Zero(shard.exp_avg_sq.data(), bytes);
  shards_[index] = std::move(shard);
  return absl::OkStatus();
}

absl::Status ShardedState::AllocateImages() {
  constexpr int64_t kAlignment = 64;
  int64_t bytes = 0;
  for (int u = 0; u < map_->layout().num_units(); ++u) {
    image_offset_.push_back(bytes);
    int64_t size = 0;
    if (options_.whole_images) {
      size = map_->ImageBytes(u);
    } else if (options_.served_shard >= 0) {
      size = map_->ShardImage(u, options_.served_shard).size();
    }
    bytes += (size + kAlignment - 1) / kAlignment * kAlignment;
  }
  HF_ASSIGN_OR_RETURN(image_, Buffer::Allocate(*device_, static_cast<size_t>(bytes), "weights"));
  return absl::OkStatus();
}

std::byte* ShardedState::ServedImage(int unit) const {
  return Image(unit) + (options_.whole_images ? map_->ShardImage(unit, options_.served_shard).begin : 0);
}

void* ShardedState::InImage(int parameter, int64_t element) const {
  const int unit = map_->layout().parameters()[static_cast<size_t>(parameter)].unit;
  const int64_t first = options_.whole_images ? 0 : map_->ShardImage(unit, options_.served_shard).begin;
  const auto size = static_cast<int64_t>(kernels::SizeOf(map_->ImageDType(parameter)));
  return Image(unit) + map_->ImageOffset(parameter) + element * size - first;
}

float* ShardedState::Weight(int shard, int unit, int parameter, int64_t element) const {
  if (ImageIsMaster(shard)) return static_cast<float*>(InImage(parameter, element));
  const Shard& s = shards_.at(shard);
  const int64_t offset = map_->layout().parameters()[static_cast<size_t>(parameter)].unit_offset;
  return s.weight.as<float>() + s.unit_offset[static_cast<size_t>(unit)] + offset + element;
}

void ShardedState::Initialize(uint64_t seed) {
  for (auto& [index, shard] : shards_) {
    OpsOf(index).Zero(shard.exp_avg.data(), shard.exp_avg.bytes());
    OpsOf(index).Zero(shard.exp_avg_sq.data(), shard.exp_avg_sq.bytes());
    for (int u = 0; u < map_->layout().num_units(); ++u) {
      for (const ParameterPiece& piece : map_->Pieces(u, map_->ShardElements(u, index))) {
        const ParameterSpec& p = map_->layout().parameters()[static_cast<size_t>(piece.parameter)];
        float* weight = Weight(index, u, piece.parameter, piece.begin);
        const int64_t n = piece.end - piece.begin;
        if (p.init == InitKind::kNormal) {
          const kernels::RandomKey key{.seed = seed, .site = static_cast<uint32_t>(piece.parameter)};
          OpsOf(index).FillNormal(weight, n, piece.begin, p.init_std, key);
        } else {
          const std::vector<float> constant(static_cast<size_t>(n), p.init == InitKind::kOnes ? 1.f : 0.f);
          DeviceOf(index).CopyFromHost(weight, constant.data(), FloatBytes(n));
        }
      }
    }
  }
  RefreshImages();
}

void ShardedState::Update(int unit, Range range, const float* gradient, const UpdateArguments& arguments) {
  if (range.empty()) return;
  for (const ParameterPiece& piece : map_->Pieces(unit, range)) {
    const ParameterSpec& p = map_->layout().parameters()[static_cast<size_t>(piece.parameter)];
    const int64_t element = p.unit_offset + piece.begin;  // of the unit
    const auto owner = std::find_if(shards_.begin(), shards_.end(), [&](const auto& entry) {
      const Range held = map_->ShardElements(unit, entry.first);
      return held.begin <= element && element < held.end;
    });
    HF_CHECK(owner != shards_.end());
    const auto& [index, shard] = *owner;
    const int64_t local = shard.unit_offset[static_cast<size_t>(unit)] + element;
    kernels::AdamWArgs adamw = MakeAdamW(p, arguments);
    adamw.n = piece.end - piece.begin;
    adamw.weight = Weight(index, unit, piece.parameter, piece.begin);
    adamw.exp_avg = shard.exp_avg.as<float>() + local;
    adamw.exp_avg_sq = shard.exp_avg_sq.as<float>() + local;
    adamw.grad = gradient + (element - range.begin);
    if (OnHost(index)) {
      UpdateOnHost(adamw);
      continue;
    }
    const bool served = index == options_.served_shard;
    if (served && map_->ImageDType(piece.parameter) == DType::kBF16) {
      adamw.weight_bf16 = static_cast<uint16_t*>(InImage(piece.parameter, piece.begin));
    }
    stream_->ops().AdamW(adamw);
    if (served && !ImageIsMaster(index) && map_->ImageDType(piece.parameter) == DType::kF32) {
      stream_->ops().Copy(InImage(piece.parameter, piece.begin), adamw.weight, FloatBytes(adamw.n));
    }
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
  const Chunk& chunk = map_->layout().chunks()[static_cast<size_t>(index)];
  const ParameterSpec& p = map_->layout().parameters()[static_cast<size_t>(chunk.parameter)];
  const Shard& shard = ShardOf(index);
  const int64_t element = chunk.offset - p.offset;
  const int64_t local = shard.unit_offset[static_cast<size_t>(p.unit)] + p.unit_offset + element;
  const auto bytes = [&](float* values) {
    return absl::MakeSpan(reinterpret_cast<std::byte*>(values), FloatBytes(chunk.elements));
  };
  return {bytes(Weight(map_->ShardOfChunk(index), p.unit, chunk.parameter, element)),
          bytes(shard.exp_avg.as<float>() + local), bytes(shard.exp_avg_sq.as<float>() + local)};
}

void ShardedState::ReadWeights(int index, float* out) const {
  const absl::Span<const std::byte> weight = PlacesOf(index)[0];
  DeviceOf(map_->ShardOfChunk(index)).CopyToHost(out, weight.data(), weight.size());
}

void ShardedState::ReadChunk(int index, std::byte* out) const {
  Device& device = DeviceOf(map_->ShardOfChunk(index));
  for (const absl::Span<const std::byte> place : PlacesOf(index)) {
    device.CopyToHost(out, place.data(), place.size());
    out += place.size();
  }
}

void ShardedState::QueueReadChunk(int index, std::byte* out, Stream& stream) const {
  if (OnHost(map_->ShardOfChunk(index))) return ReadChunk(index, out);
  for (const absl::Span<const std::byte> place : PlacesOf(index)) {
    stream.CopyToHost(out, place.data(), place.size());
    out += place.size();
  }
}

void ShardedState::WriteChunk(int index, const std::byte* in) {
  Device& device = DeviceOf(map_->ShardOfChunk(index));
  for (const absl::Span<std::byte> place : PlacesOf(index)) {
    device.CopyFromHost(place.data(), in, place.size());
    in += place.size();
  }
}

void ShardedState::CopyChunk(int index, const ShardedState& from) {
  const int shard = map_->ShardOfChunk(index);
  const Places here = PlacesOf(index), there = from.PlacesOf(index);
  if (OnHost(shard) == from.OnHost(from.map_->ShardOfChunk(index))) {
    for (size_t i = 0; i < here.size(); ++i) OpsOf(shard).Copy(here[i].data(), there[i].data(), here[i].size());
    return;
  }
  std::vector<std::byte> bytes(ChunkBytes(map_->layout().chunks()[static_cast<size_t>(index)]));
  from.ReadChunk(index, bytes.data());
  WriteChunk(index, bytes.data());
}

ShardedState::Places ShardedState::ChunkMemory(int index) {
  return DeviceOf(map_->ShardOfChunk(index)).is_host() ? PlacesOf(index) : Places{};
}

void ShardedState::RefreshImages() {
  if (options_.served_shard < 0 || ImageIsMaster(options_.served_shard)) return;
  for (int u = 0; u < map_->layout().num_units(); ++u) {
    for (const ParameterPiece& piece : map_->Pieces(u, map_->ShardElements(u, options_.served_shard))) {
      const float* weight = Weight(options_.served_shard, u, piece.parameter, piece.begin);
      void* image = InImage(piece.parameter, piece.begin);
      const int64_t n = piece.end - piece.begin;
      if (map_->ImageDType(piece.parameter) == DType::kBF16) {
        stream_->ops().CastToBf16(static_cast<uint16_t*>(image), weight, n);
      } else {
        stream_->ops().Copy(image, weight, FloatBytes(n));
      }
    }
  }
}

uint64_t ShardedState::ChunkDigest(int chunk) const {
  std::vector<std::byte> bytes(ChunkBytes(map_->layout().chunks()[static_cast<size_t>(chunk)]));
  ReadChunk(chunk, bytes.data());
  return XXH3_64bits(bytes.data(), bytes.size());
}

uint64_t ShardedState::ChunkDigestAfter(int index, const float* gradient, const UpdateArguments& arguments) const {
  const Chunk& chunk = map_->layout().chunks()[static_cast<size_t>(index)];
  const ParameterSpec& p = map_->layout().parameters()[static_cast<size_t>(chunk.parameter)];
  std::vector<float> values(static_cast<size_t>(3 * chunk.elements));
  ReadChunk(index, reinterpret_cast<std::byte*>(values.data()));
  kernels::AdamWArgs adamw = MakeAdamW(p, arguments);
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
