#pragma once
// The part of the training state that one rank holds: fp32 master weights and both AdamW moments of its shards, and the
// image (shard_map.h) of the shard it serves. Everything is addressed by chunk or by element of a unit, so state moves
// between placements chunk by chunk.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/base/status.h"
#include "framework/config/config.h"
#include "framework/optim/update.h"
#include "framework/parallel/shard_map.h"
#include "framework/tensor/host_bytes.h"

namespace holdfast {

/// What an update needs to know of the step it belongs to.
struct UpdateArguments {
  OptimizerConfig optimizer;
  UpdateScalars scalars;
};

/// The CPU beside a device that is not one.
struct HostSide {
  Device* device = nullptr;
  Stream* stream = nullptr;
};

/// Thread-safety: const methods may run together, but for ChunkDigestAfter; an update excludes everything else.
class ShardedState {
 public:
  struct Options {
    std::vector<int> held_shards;
    int served_shard = -1;  // one of them, or -1
    /// Images are of whole units, of which this rank keeps its shard up to date and others fill in the rest.
    bool whole_images = false;
    HostSide host = {};            // must outlive the state; not needed where the device is a host
    bool mirrors_on_host = false;  // shards that are not served lie there, and are updated there
  };

  /// Weights uninitialised, moments zero. `map`, `device` and `stream` must outlive the state.
  static absl::StatusOr<ShardedState> Create(const ShardMap& map, const Options& options, Device& device,
                                             Stream& stream);

  const ShardMap& map() const { return *map_; }
  bool Holds(int chunk) const { return shards_.contains(map_->ShardOfChunk(chunk)); }
  bool whole_images() const { return options_.whole_images; }

  /// Weights by the layout's initialisers: a value depends on (seed, parameter, element) only. Moments become zero.
  void Initialize(uint64_t seed);
  /// Weights from the model's flat vector, given by `read(first, out)`. Moments become zero.
  template <typename Read>
  absl::Status SetWeights(Read&& read);

  /// Updates elements `range` of a unit, of one held shard, with their gradient.
  void Update(int unit, Range range, const float* gradient, const UpdateArguments& arguments);

  /// A held chunk's weight and moments, 12 bytes an element, in host memory.
  static size_t ChunkBytes(const Chunk& chunk) { return static_cast<size_t>(chunk.elements) * 3 * sizeof(float); }
  void ReadChunk(int index, std::byte* out) const;
  /// The same, queued on `stream` of the state's device, where the chunk lies there.
  void QueueReadChunk(int index, std::byte* out, Stream& stream) const;
  void WriteChunk(int index, const std::byte* in);
  /// As both hold it. Queued, where it stays on the device.
  void CopyChunk(int index, const ShardedState& from);
  void ReadWeights(int index, float* out) const;
  /// Where a held chunk's weight and moments lie, to be written to like WriteChunk; empty if the host cannot.
  using Places = std::array<absl::Span<std::byte>, 3>;
  Places ChunkMemory(int index);

  /// XXH3 of ReadChunk's bytes: now, and as they will be after an update with `gradient` (of the chunk).
  uint64_t ChunkDigest(int chunk) const;
  uint64_t ChunkDigestAfter(int index, const float* gradient, const UpdateArguments& arguments) const;

  /// Where the image of a unit is kept: whole, or from the first byte of the served shard on.
  std::byte* Image(int unit) const {
    return static_cast<std::byte*>(image_.data()) + image_offset_[static_cast<size_t>(unit)];
  }
  std::byte* ServedImage(int unit) const;
  /// To be called when weights were written by WriteChunk.
  void RefreshImages();

 private:
  /// State of one shard: its elements of unit 0, then those of unit 1, ...
  struct Shard {
    std::vector<int64_t> unit_offset;  // minus the shard's first element there: index = unit_offset[u] + element
    int64_t elements = 0;
    Buffer weight, exp_avg, exp_avg_sq;  // fp32; no weight if the image is fp32 and serves as the master copy
  };

  ShardedState(const ShardMap& map, Options options, Device& device, Stream& stream)
      : map_(&map), options_(std::move(options)), device_(&device), stream_(&stream) {}

  /// As ChunkMemory, on whichever device they lie.
  Places PlacesOf(int index) const;
  absl::Status AllocateShard(int index);
  absl::Status AllocateImages();
  bool OnHost(int shard) const { return options_.mirrors_on_host && shard != options_.served_shard; }
  Device& DeviceOf(int shard) const { return OnHost(shard) ? *options_.host.device : *device_; }
  kernels::Ops& OpsOf(int shard) const { return OnHost(shard) ? options_.host.stream->ops() : stream_->ops(); }
  void UpdateOnHost(const kernels::AdamWArgs& whole) const;
  const Shard& ShardOf(int chunk) const { return shards_.at(map_->ShardOfChunk(chunk)); }
  bool ImageIsMaster(int shard) const { return shard == options_.served_shard && map_->compute_dtype() == DType::kF32; }
  /// Element `element` of `parameter` in the image this rank keeps; only for what it serves.
  void* InImage(int parameter, int64_t element) const;
  float* Weight(int shard, int unit, int parameter, int64_t element) const;

  const ShardMap* map_;
  Options options_;
  Device* device_;
  Stream* stream_;
  std::map<int, Shard> shards_;
  std::shared_ptr<HostBlocks> gradient_memory_;
  Buffer image_;
  std::vector<int64_t> image_offset_;
};

/// One hash over all weights and moments: XXH3 of the chunks' digests in canonical order.
uint64_t StateDigest(absl::Span<const uint64_t> chunk_digests);

template <typename Read>
absl::Status ShardedState::SetWeights(Read&& read) {
  for (int index = 0; index < static_cast<int>(map_->layout().chunks().size()); ++index) {
    if (!Holds(index)) continue;
    const Chunk& chunk = map_->layout().chunks()[static_cast<size_t>(index)];
    std::vector<float> values(static_cast<size_t>(3 * chunk.elements), 0.0f);
    HF_RETURN_IF_ERROR(read(chunk.offset, absl::MakeSpan(values).first(static_cast<size_t>(chunk.elements))));
    WriteChunk(index, reinterpret_cast<const std::byte*>(values.data()));
  }
  RefreshImages();
  return absl::OkStatus();
}

}  // namespace holdfast
