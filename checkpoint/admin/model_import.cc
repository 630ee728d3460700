#include "checkpoint/admin/model_import.h"

#include <cstddef>
#include <ctime>
#include <memory>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/admin/fence_owner.h"
#include "checkpoint/sharded/catalog.h"
#include "checkpoint/sharded/commit.h"
#include "checkpoint/sharded/digest.h"
#include "checkpoint/sharded/fence.h"
#include "checkpoint/sharded/shard_writer.h"
#include "framework/base/status.h"
#include "framework/config/decides.h"
#include "framework/config/load.h"
#include "framework/optim/optimizer.h"
#include "models/runtime/initial_weights.h"
#include "models/runtime/make_model.h"
#include "models/runtime/run_device.h"

namespace holdfast {
namespace {

Manifest NewManifest(const Config& config, const StateLayout& layout) {
  Manifest manifest;
  manifest.config = PrintConfig(config);
  manifest.config_digest = BitsDigest(config);
  manifest.world_size = 1;
  manifest.sharding = kImported;
  manifest.time = static_cast<double>(std::time(nullptr));
  manifest.tensors = StoredTensorsOf(layout);
  return manifest;
}

absl::StatusOr<CapturedChunk> ReadChunk(const ReadWeightsFn& model, const StateLayout& layout, int index) {
  const Chunk& chunk = layout.parameters().chunks()[static_cast<size_t>(index)];
  CapturedChunk captured{.chunk = index, .bytes = CpuBytes(layout.ChunkBytes(chunk))};
  const absl::Span<float> values(reinterpret_cast<float*>(captured.bytes.data()),
                                 captured.bytes.size() / sizeof(float));
  RETURN_IF_ERROR(model(chunk.offset, values.first(static_cast<size_t>(chunk.elements))));
  BeginPlanes(layout, chunk, values);
  captured.digest = DigestBytes(captured.bytes);
  return captured;
}

absl::StatusOr<ShardReport> WriteShard(Storage& storage, const Config& config, const StateLayout& layout,
                                       const ReadWeightsFn& model, const ByteProgress& progress,
                                       const std::stop_token& stop) {
  const absl::Span<const Chunk> chunks = layout.parameters().chunks();
  std::vector<int> all(chunks.size());
  std::iota(all.begin(), all.end(), 0);
  ShardWriterOptions options;
  // Most of an optimizer's state begins as zeros: they alone make compressing worth while.
  options.compression =
      config.checkpoint.compression == CheckpointCompression::kNone ? Compression::kNone : Compression::kZstd;
  options.level = static_cast<int>(config.checkpoint.compression_level);
  options.threads = static_cast<int>(config.checkpoint.threads);
  ASSIGN_OR_RETURN(const auto writer, ShardWriter::Create(storage, options, layout, all));
  ByteCounter counter(static_cast<uint64_t>(layout.parameters().elements()) * sizeof(float), progress);
  for (const int index : all) {
    if (stop.stop_requested()) return absl::CancelledError("stopped");
    ASSIGN_OR_RETURN(CapturedChunk chunk, ReadChunk(model, layout, index));
    RETURN_IF_ERROR(writer->Add(std::move(chunk)));
    counter.Add(static_cast<uint64_t>(chunks[static_cast<size_t>(index)].elements) * sizeof(float));
  }
  return writer->Commit();
}

/// Clears away what an import that was killed has left.
absl::Status MakeRoom(Storage& storage, Fence& fence) {
  ASSIGN_OR_RETURN(const Catalog catalog, ScanCheckpoints(storage));
  if (catalog.valid.empty()) {
    return DeleteCheckpoint(storage, CheckpointName().ToString(), [&] { return fence.Check(); });
  }
  return absl::AlreadyExistsError(
      absl::StrCat(storage.Describe(), ": there are checkpoints already, the newest of step ",
                   catalog.valid.front().manifest.name.step, "; import into a new directory"));
}

}  // namespace

absl::StatusOr<ModelImport> ModelImport::Open(const Config& config, const std::string& directory) {
  if (config.trains_part()) {
    return absl::InvalidArgumentError(
        "a checkpoint of a whole model is of no use to a config that trains a part of it, or adapters: set "
        "train.init_from to the saved model instead");
  }
  Config here = config;
  here.train.device = DeviceKind::kCpu;
  here.train.init_from = directory;
  ASSIGN_OR_RETURN(const auto device, MakeDevice(here.train));
  ASSIGN_OR_RETURN(const auto model, MakeModel(here, *device));
  const ParameterLayout& layout = model->layout();
  ASSIGN_OR_RETURN(ReadWeightsFn weights, OpenInitialWeights(here, layout));
  return ModelImport(config, layout, std::move(weights));
}

absl::StatusOr<Manifest> ModelImport::WriteTo(Storage& storage, const std::string& owner, const ByteProgress& progress,
                                              const std::stop_token& stop) const {
  RETURN_IF_ERROR(CheckNotInUse(storage));
  ASSIGN_OR_RETURN(const auto fence, Fence::Claim(storage, owner));
  RETURN_IF_ERROR(MakeRoom(storage, *fence));
  const std::unique_ptr<Optimizer> optimizer = MakeOptimizer(config_.optimizer);
  const StateLayout state = LayoutOf(*optimizer, layout_);
  Manifest manifest = NewManifest(config_, state);
  ASSIGN_OR_RETURN(ShardReport report, WriteShard(storage, config_, state, weights_, progress, stop));
  manifest.shards.push_back(std::move(report.shard));
  return CommitCheckpoint(storage, *fence, std::move(manifest));
}

}  // namespace holdfast
