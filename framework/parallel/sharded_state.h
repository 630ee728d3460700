#pragma once
// The part of the training state that one rank holds: the planes (framework/nn/state_layout.h) of the chunks that it
// serves or mirrors, and the compute weights (shard_map.h) of what it serves. Everything is addressed by chunk, so
// state moves between placements chunk by chunk.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/base/status.h"
#include "framework/nn/state_layout.h"
#include "framework/optim/optimizer.h"
#include "framework/parallel/shard_map.h"
#include "framework/tensor/cpu_bytes.h"

namespace holdfast {

/// What an update needs to know of the step it belongs to.
struct UpdateArguments {
  const Optimizer* optimizer = nullptr;
  UpdateScalars scalars;
  /// By chunk: the part of the update that was made of its whole parameter, where the chunk is held and the optimizer
  /// takes it whole, or that was made of the step's counts; on the state's device. Empty if there are none.
  absl::Span<const float* const> updates = {};
};

struct ChunkGradient {
  int chunk = 0;
  const float* gradient = nullptr;  // of the chunk
};

/// The CPU beside a device that is not one.
struct CpuSide {
  Device* device = nullptr;
  Stream* stream = nullptr;
};

/// What DigestsAfter works in: bytes that a state keeps on its device, where that is no CPU.
size_t DigestMemoryBytes(const StateLayout& layout);

/// Thread-safety: const methods may run together, but for DigestsAfter; an update excludes everything else.
class ShardedState {
 public:
  struct Options {
    int rank = 0;
    /// Compute weights are kept of whole units: this rank keeps what it serves up to date, others fill in the rest.
    bool whole_units = false;
    bool in_parts = false;        // but of units that are cut at parts what is served here, part after part
    CpuSide cpu = {};             // must outlive the state; not needed where the device is a CPU
    bool mirrors_on_cpu = false;  // what is not served lies there, and is updated there
  };

  /// Values uninitialised. `map`, `layout` (of the map's parameters), `device` and `stream` must outlive the state.
  static absl::StatusOr<ShardedState> Create(const ShardMap& map, const StateLayout& layout, const Options& options,
                                             Device& device, Stream& stream);

  const ShardMap& map() const { return *map_; }
  const StateLayout& layout() const { return *layout_; }
  bool Holds(int chunk) const { return PlaceOf(chunk).role != kNone; }
  bool whole_units() const { return options_.whole_units; }

  /// Weights by the layout's initialisers: a value depends on (seed, parameter, element) only. The other planes as they
  /// begin.
  void Initialize(uint64_t seed);
  /// Weights from the model's flat vector, given by `read(first, out)`. The other planes as they begin.
  template <typename Read>
  absl::Status SetWeights(Read&& read);

  /// Updates held chunks with their gradient.
  void Update(Range chunks, const float* gradient, const UpdateArguments& arguments);

  /// Queues what a chunk that is served here contributes to the update of its whole parameter.
  void Contribute(int chunk, const float* gradient, const UpdateArguments& arguments, float* out) const;

  /// A held chunk's planes, one after the other (layout().ChunkBytes), in CPU memory.
  void ReadChunk(int index, std::byte* out) const;
  /// The same, queued on `stream` of the state's device, where the chunk lies there.
  void QueueReadChunk(int index, std::byte* out, Stream& stream) const;
  void WriteChunk(int index, const std::byte* in);
  /// As both hold it. Queued, where it stays on the device.
  void CopyChunk(int index, const ShardedState& from);
  void ReadWeights(int index, float* out) const;
  /// Where a held chunk's planes lie, to be written to like WriteChunk; none if the CPU cannot.
  using Places = absl::InlinedVector<absl::Span<std::byte>, kMaxPlanes>;
  Places ChunkMemory(int index);

  /// XXH3 of ReadChunk's bytes: now, and as they will be after an update, by chunk.
  uint64_t ChunkDigest(int chunk) const;
  std::map<int, uint64_t> DigestsAfter(absl::Span<const ChunkGradient> chunks, const UpdateArguments& arguments) const;

  /// Where the compute weights of a unit are kept: whole, or the ranges of it that are served here, one after the
  /// other.
  std::byte* ComputeWeights(int unit) const {
    return static_cast<std::byte*>(compute_weights_.data()) + compute_weight_offset_[static_cast<size_t>(unit)];
  }
  /// The compute weights of a chunk that is served here.
  std::byte* ComputeWeightsOf(int chunk) const { return ComputeWeightsOf(PlaceOf(chunk)); }
  /// To be called when weights were written by WriteChunk.
  void RefreshComputeWeights();

 private:
  enum Role : int8_t { kServed, kMirrored, kNone };
  /// fp32, of each name of the layout: chunks of unit 0 that have such a plane, then those of unit 1, ... No memory for
  /// the weight if compute weights are fp32 and serve as the master copy.
  struct PlaneMemory {
    int64_t elements = 0;
    Buffer buffer;
  };
  struct Place {
    Role role = kNone;
    std::array<int64_t, kMaxPlanes> element = {};  // of each of the chunk's planes, in the memory of its name
    int64_t compute_weights = 0;                   // byte of compute_weights_; of what is served
  };

  ShardedState(const ShardMap& map, const StateLayout& layout, const Options& options, Device& device, Stream& stream)
      : map_(&map), layout_(&layout), options_(options), device_(&device), stream_(&stream) {}

  void PlaceUnit(int unit);
  absl::Status Allocate(Role role);
  const Place& PlaceOf(int chunk) const { return places_[static_cast<size_t>(chunk)]; }
  const Chunk& ChunkAt(int index) const { return map_->layout().chunks()[static_cast<size_t>(index)]; }
  const ParameterSpec& ParameterOf(int index) const {
    return map_->layout().parameters()[static_cast<size_t>(ChunkAt(index).parameter)];
  }
  /// From `first` on, the end of the chunks that lie behind each other in one parameter and in memory.
  int EndOfRange(int first, int end) const;
  /// As ChunkMemory, on whichever device they lie.
  Places PlacesOf(int index) const;
  bool OnCpu(Role role) const { return options_.mirrors_on_cpu && role == kMirrored; }
  Device& DeviceOf(Role role) const { return OnCpu(role) ? *options_.cpu.device : *device_; }
  kernels::Ops& OpsOf(Role role) const { return OnCpu(role) ? options_.cpu.stream->ops() : stream_->ops(); }
  void UpdateRange(int first, int end, const float* gradient, const UpdateArguments& arguments);
  void UpdateOnCpu(const PlaneRange& whole, const UpdateArguments& arguments) const;
  /// How many of `chunks`, from the first on, are digested together: those whose planes and gradients lie behind each
  /// other, as far as there is memory.
  size_t CountTogether(absl::Span<const ChunkGradient> chunks) const;
  /// Queues the digests of such chunks after the update. `memory`: of the CPU, for what lies there.
  void QueueDigestsAfter(absl::Span<const ChunkGradient> chunks, const UpdateArguments& arguments, std::byte* memory,
                         uint64_t* out) const;
  bool ComputeWeightsAreMaster(Role role) const { return role == kServed && map_->compute_dtype() == DType::kF32; }
  std::byte* ComputeWeightsOf(const Place& place) const {
    return static_cast<std::byte*>(compute_weights_.data()) + place.compute_weights;
  }
  /// The first element of a held chunk in one of its planes.
  float* Values(int chunk, size_t plane) const;
  float* Weight(int chunk) const { return Values(chunk, 0); }
  /// The planes of held chunks [first, end) of one parameter.
  PlaneRange RangeOf(int first, int64_t elements) const;
  int64_t CountElements(int first, int end) const {
    return ChunkAt(end - 1).offset + ChunkAt(end - 1).elements - ChunkAt(first).offset;
  }

  const ShardMap* map_;
  const StateLayout* layout_;
  Options options_;
  Device* device_;
  Stream* stream_;
  std::vector<Place> places_;                       // by chunk
  std::array<std::vector<PlaneMemory>, 2> memory_;  // by role and name
  std::shared_ptr<CpuBlocks> block_memory_, digest_memory_;
  std::shared_ptr<CpuBlocks> digests_;  // of all chunks, as they come from the device
  Buffer planes_after_;                 // as a block of digest_memory_, on a device that is no CPU
  Buffer compute_weights_;
  std::vector<int64_t> compute_weight_offset_;  // by unit
};

/// One hash over the whole state: XXH3 of the chunks' digests in canonical order.
uint64_t StateDigest(absl::Span<const uint64_t> chunk_digests);

template <typename Read>
absl::Status ShardedState::SetWeights(Read&& read) {
  for (int index = 0; index < static_cast<int>(map_->layout().chunks().size()); ++index) {
    if (!Holds(index)) continue;
    const Chunk& chunk = map_->layout().chunks()[static_cast<size_t>(index)];
    const auto elements = static_cast<size_t>(chunk.elements);
    std::vector<float> values(elements * layout_->NumPlanes(chunk), 0.0f);
    RETURN_IF_ERROR(read(chunk.offset, absl::MakeSpan(values).first(elements)));
    BeginPlanes(*layout_, chunk, absl::MakeSpan(values));
    WriteChunk(index, reinterpret_cast<const std::byte*>(values.data()));
  }
  RefreshComputeWeights();
  return absl::OkStatus();
}

}  // namespace holdfast
