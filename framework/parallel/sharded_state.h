#pragma once
// The part of the training state that one rank holds: fp32 master weights and both AdamW moments of the chunks that it
// serves or mirrors, and the image (shard_map.h) of what it serves. Everything is addressed by chunk, so state moves
// between placements chunk by chunk.

#include <array>
#include <cstddef>
#include <cstdint>
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
    int rank = 0;
    /// Images are of whole units, of which this rank keeps what it serves up to date and others fill in the rest.
    bool whole_images = false;
    HostSide host = {};            // must outlive the state; not needed where the device is a host
    bool mirrors_on_host = false;  // what is not served lies there, and is updated there
  };

  /// Weights uninitialised, moments zero. `map`, `device` and `stream` must outlive the state.
  static absl::StatusOr<ShardedState> Create(const ShardMap& map, const Options& options, Device& device,
                                             Stream& stream);

  const ShardMap& map() const { return *map_; }
  bool Holds(int chunk) const { return PlaceOf(chunk).part != kNone; }
  bool whole_images() const { return options_.whole_images; }

  /// Weights by the layout's initialisers: a value depends on (seed, parameter, element) only. Moments become zero.
  void Initialize(uint64_t seed);
  /// Weights from the model's flat vector, given by `read(first, out)`. Moments become zero.
  template <typename Read>
  absl::Status SetWeights(Read&& read);

  /// Updates held chunks with their gradient.
  void Update(Range chunks, const float* gradient, const UpdateArguments& arguments);

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

  /// Where the image of a unit is kept: whole, or the runs of it that are served here, one after the other.
  std::byte* Image(int unit) const {
    return static_cast<std::byte*>(image_.data()) + image_offset_[static_cast<size_t>(unit)];
  }
  /// To be called when weights were written by WriteChunk.
  void RefreshImages();

 private:
  enum Part : int8_t { kServed, kMirrored, kNone };
  /// Chunks of unit 0, then those of unit 1, ...
  struct Memory {
    int64_t elements = 0;
    Buffer weight, exp_avg, exp_avg_sq;  // fp32; no weight if the image is fp32 and serves as the master copy
  };
  struct Place {
    Part part = kNone;
    int64_t element = 0;  // of the part's memory
    int64_t image = 0;    // byte of image_; of what is served
  };

  ShardedState(const ShardMap& map, Options options, Device& device, Stream& stream)
      : map_(&map), options_(std::move(options)), device_(&device), stream_(&stream) {}

  void PlaceUnit(int unit);
  absl::Status Allocate(Part part);
  const Place& PlaceOf(int chunk) const { return places_[static_cast<size_t>(chunk)]; }
  const Chunk& ChunkAt(int index) const { return map_->layout().chunks()[static_cast<size_t>(index)]; }
  const ParameterSpec& ParameterOf(int index) const {
    return map_->layout().parameters()[static_cast<size_t>(ChunkAt(index).parameter)];
  }
  /// From `first` on, the end of the chunks that lie behind each other in one parameter and in memory.
  int EndOfRun(int first, int end) const;
  /// As ChunkMemory, on whichever device they lie.
  Places PlacesOf(int index) const;
  bool OnHost(Part part) const { return options_.mirrors_on_host && part == kMirrored; }
  Device& DeviceOf(Part part) const { return OnHost(part) ? *options_.host.device : *device_; }
  kernels::Ops& OpsOf(Part part) const { return OnHost(part) ? options_.host.stream->ops() : stream_->ops(); }
  void UpdateRun(int first, int end, const float* gradient, const UpdateArguments& arguments);
  void UpdateOnHost(const kernels::AdamWArgs& whole) const;
  bool ImageIsMaster(Part part) const { return part == kServed && map_->compute_dtype() == DType::kF32; }
  std::byte* ImageOf(const Place& place) const { return static_cast<std::byte*>(image_.data()) + place.image; }
  float* Weight(const Place& place) const;

  const ShardMap* map_;
  Options options_;
  Device* device_;
  Stream* stream_;
  std::vector<Place> places_;  // by chunk
  std::array<Memory, 2> memory_;
  std::shared_ptr<HostBlocks> gradient_memory_;
  Buffer image_;
  std::vector<int64_t> image_offset_;  // by unit
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
