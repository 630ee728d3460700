#include "checkpoint/admin/model_export.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "checkpoint/admin/checkpoint_values.h"
#include "checkpoint/saved_model.h"
#include "framework/base/status.h"
#include "framework/config/load.h"
#include "models/families/families.h"
#include "models/families/huggingface.h"
#include "models/runtime/make_model.h"
#include "models/runtime/run_device.h"
#include "models/runtime/saved_model_files.h"

namespace holdfast {
namespace {

constexpr char kBytes[] = "bytes";

/// The config that the checkpoint was written with; where it is read does not matter for its weights.
absl::StatusOr<Config> ConfigOf(const Manifest& manifest) {
  auto config = ParseConfig(manifest.config, manifest.name.ToString() + "/config", {}, {.families = FamilyPresets()});
  if (!config.ok()) return Annotate(config.status(), "the config inside the checkpoint cannot be read");
  config->train.device = DeviceKind::kCpu;
  config->train.threads = 1;
  return config;
}

absl::Status CheckTokenizer(const std::string& tokenizer) {
  std::error_code error;
  if (tokenizer == kBytes || std::filesystem::is_regular_file(tokenizer, error)) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat("the run's tokenizer ", tokenizer, " is not here; give its place with --tokenizer FILE"));
}

absl::Status CheckHasEma(const Manifest& manifest) {
  for (const StoredTensor& tensor : manifest.tensors) {
    if (std::find(tensor.planes.begin(), tensor.planes.end(), kEmaPlane) != tensor.planes.end()) continue;
    return absl::NotFoundError(absl::StrCat("--ema: ", manifest.name.ToString(), " has no moving average of ",
                                            tensor.name, ": its run had no optimizer.ema_decay"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelExport> ExportModel(const CheckpointReader& checkpoint, const ModelExportOptions& options,
                                        const ByteProgress& progress) {
  ASSIGN_OR_RETURN(Config config, ConfigOf(checkpoint.manifest()));
  if (!options.tokenizer.empty()) config.data.tokenizer = options.tokenizer;
  RETURN_IF_ERROR(CheckTokenizer(config.data.tokenizer));
  ASSIGN_OR_RETURN(const auto device, MakeDevice(config.train));
  ASSIGN_OR_RETURN(const auto model, MakeModel(config, *device));
  const ParameterLayout& layout = model->layout();
  RETURN_IF_ERROR(checkpoint.CheckLayout(layout));
  if (options.ema) RETURN_IF_ERROR(CheckHasEma(checkpoint.manifest()));

  ByteCounter counter(static_cast<uint64_t>(layout.elements()) * sizeof(float), progress);
  CheckpointValues values(checkpoint, layout, options.threads, options.ema ? kEmaPlane : kWeightPlane);
  const auto read = [&](int64_t first, absl::Span<float> out) {
    RETURN_IF_ERROR(values.Read(first, out));
    counter.Add(out.size() * sizeof(float));
    return absl::OkStatus();
  };
  ASSIGN_OR_RETURN(const SavedModelFiles files, MakeSavedModelFiles(config.model, config.data.tokenizer));
  RETURN_IF_ERROR(
      SaveModel(options.output, layout, HuggingFaceTensorMap(config.model, layout), read, options.dtype, files));
  return ModelExport{.elements = layout.elements(),
                     .bytes = layout.elements() * (options.dtype == FileDType::kF32 ? 4 : 2)};
}

}  // namespace holdfast
