// holdfast ckpt import: a saved model becomes the checkpoint of step 0, from which a run of the given config starts.
// Streamed: one chunk after the other, with moments of zero.

#include <cstddef>
#include <cstdio>
#include <cstring>
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
#include "models/families/huggingface.h"
#include "tools/ckpt_actions.h"
#include "tools/ckpt_text.h"
#include "tools/command.h"
#include "tools/fence_owner.h"
#include "tools/gemm_table.h"
#include "tools/session.h"

namespace holdfast {
namespace {

Manifest NewManifest(const Config& config, const ParameterLayout& layout) {
  Manifest manifest;
  manifest.config = PrintConfig(config);
  manifest.config_digest = BitsDigest(config);
  manifest.world_size = 1;
  manifest.sharding = kImported;
  manifest.time = static_cast<double>(std::time(nullptr));
  for (const ParameterSpec& parameter : layout.parameters()) {
    StoredTensor tensor{.name = parameter.name, .shape = {}};
    for (int i = 0; i < parameter.shape.rank(); ++i) tensor.shape.push_back(parameter.shape[i]);
    manifest.tensors.push_back(std::move(tensor));
  }
  return manifest;
}

absl::StatusOr<CapturedChunk> ReadChunk(const SavedModelReader& model, const ParameterLayout& layout, int index,
                                        std::vector<float>& weights) {
  const Chunk& chunk = layout.chunks()[static_cast<size_t>(index)];
  weights.resize(static_cast<size_t>(chunk.elements));
  HF_RETURN_IF_ERROR(model.Read(chunk.offset, absl::MakeSpan(weights)));
  const size_t bytes = weights.size() * sizeof(float);
  CapturedChunk captured{.chunk = index, .bytes = HostBytes(kStateKinds * bytes)};
  std::memcpy(captured.bytes.data(), weights.data(), bytes);
  std::memset(captured.bytes.data() + bytes, 0, captured.bytes.size() - bytes);
  captured.digest = DigestBytes(captured.bytes);
  return captured;
}

absl::StatusOr<ShardReport> WriteShard(Storage& storage, const Config& config, const ParameterLayout& layout,
                                       const SavedModelReader& model) {
  std::vector<int> all(layout.chunks().size());
  std::iota(all.begin(), all.end(), 0);
  ShardWriterOptions options;
  // The moments are zeros: they alone make compressing worth while.
  options.compression =
      config.checkpoint.compression == CheckpointCompression::kNone ? Compression::kNone : Compression::kZstd;
  options.level = static_cast<int>(config.checkpoint.compression_level);
  options.threads = static_cast<int>(config.checkpoint.threads);
  HF_ASSIGN_OR_RETURN(const auto writer, ShardWriter::Create(storage, options, layout, all));
  SharedProgress progress("importing", static_cast<uint64_t>(layout.elements()) * sizeof(float));
  std::vector<float> weights;
  for (const int index : all) {
    HF_ASSIGN_OR_RETURN(CapturedChunk chunk, ReadChunk(model, layout, index, weights));
    HF_RETURN_IF_ERROR(writer->Add(std::move(chunk)));
    progress.Add(weights.size() * sizeof(float));
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
  Manifest manifest = NewManifest(config, layout);
  HF_ASSIGN_OR_RETURN(ShardReport report, WriteShard(*place.storage, config, layout, saved));
  manifest.shards.push_back(std::move(report.shard));
  HF_ASSIGN_OR_RETURN(manifest, CommitCheckpoint(*place.storage, *fence, std::move(manifest)));
  std::printf("%s: %s parameters, state digest %s\n", Describe(manifest.name, *place.storage).c_str(),
              WithCommas(static_cast<uint64_t>(layout.elements())).c_str(), DigestText(manifest.state_digest).c_str());
  return kExitDone;
}

}  // namespace holdfast
