// holdfast ckpt import: a saved model becomes the checkpoint of step 0, from which a run of the given config starts.
// Streamed: one chunk after the other, with the state of an optimizer that has made no step.

#include <cstddef>
#include <cstdio>
#include <ctime>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/saved_model_reader.h"
#include "checkpoint/sharded/digest.h"
#include "checkpoint/sharded/shard_writer.h"
#include "elastic/coordinator/checkpoint_keeper.h"
#include "framework/base/status.h"
#include "framework/config/load.h"
#include "framework/optim/optimizer.h"
#include "models/families/huggingface.h"
#include "tools/ckpt_actions.h"
#include "tools/ckpt_text.h"
#include "tools/command.h"
#include "tools/fence_owner.h"
#include "tools/gemm_table.h"
#include "tools/session.h"

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

absl::StatusOr<CapturedChunk> ReadChunk(const SavedModelReader& model, const StateLayout& layout, int index) {
  const Chunk& chunk = layout.parameters().chunks()[static_cast<size_t>(index)];
  CapturedChunk captured{.chunk = index, .bytes = HostBytes(layout.ChunkBytes(chunk))};
  const absl::Span<float> values(reinterpret_cast<float*>(captured.bytes.data()),
                                 captured.bytes.size() / sizeof(float));
  HF_RETURN_IF_ERROR(model.Read(chunk.offset, values.first(static_cast<size_t>(chunk.elements))));
  BeginPlanes(layout, chunk, values);
  captured.digest = DigestBytes(captured.bytes);
  return captured;
}

absl::StatusOr<ShardReport> WriteShard(Storage& storage, const Config& config, const StateLayout& layout,
                                       const SavedModelReader& model) {
  const absl::Span<const Chunk> chunks = layout.parameters().chunks();
  std::vector<int> all(chunks.size());
  std::iota(all.begin(), all.end(), 0);
  ShardWriterOptions options;
  // Most of an optimizer's state begins as zeros: they alone make compressing worth while.
  options.compression =
      config.checkpoint.compression == CheckpointCompression::kNone ? Compression::kNone : Compression::kZstd;
  options.level = static_cast<int>(config.checkpoint.compression_level);
  options.threads = static_cast<int>(config.checkpoint.threads);
  HF_ASSIGN_OR_RETURN(const auto writer, ShardWriter::Create(storage, options, layout, all));
  SharedProgress progress("importing", static_cast<uint64_t>(layout.parameters().elements()) * sizeof(float));
  for (const int index : all) {
    HF_ASSIGN_OR_RETURN(CapturedChunk chunk, ReadChunk(model, layout, index));
    HF_RETURN_IF_ERROR(writer->Add(std::move(chunk)));
    progress.Add(static_cast<uint64_t>(chunks[static_cast<size_t>(index)].elements) * sizeof(float));
  }
  auto report = writer->Commit();
  if (report.ok()) progress.Finish();
  return report;
}

/// Clears away what an import that was killed has left.
absl::Status MakeRoom(Storage& storage) {
  HF_ASSIGN_OR_RETURN(const Catalog catalog, ScanCheckpoints(storage));
  if (catalog.valid.empty()) return DeleteCheckpoint(storage, CheckpointName().ToString());
  return absl::AlreadyExistsError(
      absl::StrCat(storage.Describe(), ": there are checkpoints already, the newest of step ",
                   catalog.valid.front().manifest.name.step, "; import into a new directory"));
}

}  // namespace

absl::StatusOr<int> CkptImport(const CkptImportOptions& options) {
  HF_ASSIGN_OR_RETURN(Config config, options.config.LoadUnresolved(options.model));
  HF_RETURN_IF_ERROR(ResolveGemmTable(&config.train));
  Config on_cpu = config;
  on_cpu.train.device = DeviceKind::kCpu;
  HF_ASSIGN_OR_RETURN(const auto device, MakeDevice(on_cpu.train));
  HF_ASSIGN_OR_RETURN(const auto model, MakeModel(on_cpu, *device));
  const ParameterLayout& layout = model->layout();
  const auto ignorable = [&](const std::string& name) { return IsIgnorableHuggingFaceTensor(config.model, name); };
  HF_ASSIGN_OR_RETURN(
      const SavedModelReader saved,
      SavedModelReader::Open(options.model, layout, HuggingFaceTensorMap(config.model, layout), ignorable));

  PlaceOptions place_options = options.place;
  place_options.access = PlaceAccess::kCreate;
  HF_ASSIGN_OR_RETURN(const CheckpointPlace place, OpenCheckpointPlace(options.where, place_options));
  HF_RETURN_IF_ERROR(CheckNotInUse(*place.storage));
  HF_ASSIGN_OR_RETURN(const auto fence, Fence::Claim(*place.storage, FenceOwner("holdfast ckpt import")));
  HF_RETURN_IF_ERROR(MakeRoom(*place.storage));
  const std::unique_ptr<Optimizer> optimizer = MakeOptimizer(config.optimizer);
  const StateLayout state = LayoutOf(*optimizer, layout);
  Manifest manifest = NewManifest(config, state);
  HF_ASSIGN_OR_RETURN(ShardReport report, WriteShard(*place.storage, config, state, saved));
  manifest.shards.push_back(std::move(report.shard));
  HF_ASSIGN_OR_RETURN(manifest, CommitCheckpoint(*place.storage, *fence, std::move(manifest)));
  std::printf("%s: %s parameters, state digest %s\n", Describe(manifest.name, *place.storage).c_str(),
              WithCommas(static_cast<uint64_t>(layout.elements())).c_str(), DigestText(manifest.state_digest).c_str());
  return kExitDone;
}

}  // namespace holdfast
