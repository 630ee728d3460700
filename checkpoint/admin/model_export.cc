#include "checkpoint/admin/model_export.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "checkpoint/admin/checkpoint_values.h"
#include "checkpoint/admin/new_directory.h"
#include "checkpoint/model_directory.h"
#include "checkpoint/saved_model.h"
#include "framework/base/status.h"
#include "framework/config/load.h"
#include "framework/data/tokenizer.h"
#include "framework/nn/trained_part.h"
#include "models/families/families.h"
#include "models/families/huggingface.h"
#include "models/runtime/adapter_deltas.h"
#include "models/runtime/adapter_files.h"
#include "models/runtime/initial_weights.h"
#include "models/runtime/make_model.h"
#include "models/runtime/run_device.h"
#include "models/runtime/saved_model_files.h"
#include "models/transformer.h"

namespace holdfast {
namespace {

constexpr char kBytes[] = "bytes";

/// The config that the checkpoint was written with; where it is read does not matter for its weights.
absl::StatusOr<Config> ConfigOf(const Manifest& manifest) {
  auto config = ParseStoredConfig(manifest.config, manifest.name.ToString() + "/config", FamilyPresets());
  if (!config.ok()) return Annotate(config.status(), "the config inside the checkpoint cannot be read");
  config->train.device = DeviceKind::kCpu;
  config->train.threads = 1;
  return config;
}

bool IsThere(const std::string& tokenizer) {
  std::error_code error;
  return tokenizer == kBytes || std::filesystem::is_regular_file(TokenizerFileOf(tokenizer), error);
}

/// That of a run which began with a model has moved with it if it lay beside it, or is not where it was.
std::string TokenizerOf(const Config& config, const ModelExportOptions& options) {
  if (!options.tokenizer.empty()) return options.tokenizer;
  const std::string& tokenizer = config.data.tokenizer;
  if (options.base.empty() || tokenizer == kBytes || !IsThere(options.base)) return tokenizer;
  const bool lay_beside = tokenizer == absl::StrCat(config.train.init_from, "/", kTokenizerFile);
  return lay_beside || !IsThere(tokenizer) ? options.base : tokenizer;
}

absl::Status CheckTokenizer(const std::string& tokenizer) {
  if (IsThere(tokenizer)) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("the run's tokenizer ", tokenizer,
                                          " is not here; give its place with --tokenizer FILE, or with --base DIR if ",
                                          "it lies beside the model that the run began with"));
}

absl::Status CheckHasEma(const Manifest& manifest) {
  for (const StoredTensor& tensor : manifest.tensors) {
    if (std::find(tensor.planes.begin(), tensor.planes.end(), kEmaPlane) != tensor.planes.end()) continue;
    return absl::NotFoundError(absl::StrCat("--ema: ", manifest.name.ToString(), " has no moving average of ",
                                            tensor.name, ": its run had no optimizer.ema_decay"));
  }
  return absl::OkStatus();
}

/// Of a config whose train.init_from is --base, if that is given.
absl::Status CheckOptions(const Config& config, const ModelExportOptions& options) {
  if (!options.base.empty() && !config.trains_part()) {
    return absl::InvalidArgumentError("--base: the run trained all of its model, nothing is read of another");
  }
  if (options.merge && config.lora.rank == 0) {
    return absl::InvalidArgumentError("--merge: the run had no adapters (lora.rank)");
  }
  std::error_code error;
  if (config.trains_part() && std::filesystem::equivalent(options.output, config.train.init_from, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.output, " is the model that the run began with, and needs: ", "give another directory"));
  }
  if (!options.overwrite && !IsAbsentOrEmpty(options.output)) {
    return absl::AlreadyExistsError(absl::StrCat(
        options.output, ": there is something already; name a new directory, or pass --overwrite to replace a model"));
  }
  if (!HoldsModel(options.output)) {
    return absl::AlreadyExistsError(
        absl::StrCat("--overwrite: what is in ", options.output, " is no model; name a new directory"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelExport> ExportModel(const CheckpointReader& checkpoint, const ModelExportOptions& options,
                                        const ByteProgress& progress) {
  ASSIGN_OR_RETURN(Config config, ConfigOf(checkpoint.manifest()));
  config.data.tokenizer = TokenizerOf(config, options);
  RETURN_IF_ERROR(CheckTokenizer(config.data.tokenizer));
  if (!options.base.empty()) config.train.init_from = options.base;
  RETURN_IF_ERROR(CheckOptions(config, options));
  ASSIGN_OR_RETURN(const auto device, MakeDevice(config.train));
  ASSIGN_OR_RETURN(const auto model, MakeModel(config, *device));
  const ParameterLayout& layout = model->layout();
  const TrainedPart trained(layout);
  RETURN_IF_ERROR(checkpoint.CheckLayout(trained.layout()));
  if (options.ema) RETURN_IF_ERROR(CheckHasEma(checkpoint.manifest()));

  const bool adapters_alone = config.lora.rank > 0 && !options.merge;
  const ParameterLayout base = TransformerLayout(config.model);
  const int64_t elements = adapters_alone ? trained.layout().elements() : base.elements();
  const int64_t read_elements = elements + (options.merge ? trained.layout().elements() : 0);
  ByteCounter counter(static_cast<uint64_t>(read_elements) * sizeof(float), progress);
  CheckpointValues values(checkpoint, trained.layout(), options.threads, options.ema ? kEmaPlane : kWeightPlane);
  ReadWeightsFn initial;
  // Adapters alone need nothing of their model, but name the one that --base says: it must be theirs.
  if (!trained.is_all() && (!adapters_alone || !options.base.empty())) {
    auto opened = OpenInitialWeights(config, config.lora.rank > 0 ? base : layout);
    if (!opened.ok())
      return Annotate(opened.status(), "the model that the run began with (--base DIR says where it is)");
    initial = *std::move(opened);
  }
  const ReadWeightsFn read = [&](int64_t first, absl::Span<float> out) {
    if (options.stop.stop_requested()) return absl::CancelledError("stopped");
    counter.Add(out.size() * sizeof(float));
    return trained.Read(
        first, out, [&](int64_t at, absl::Span<float> part) { return values.Read(at, part); }, initial);
  };
  ModelExport made{.elements = elements, .bytes = elements * (options.dtype == FileDType::kF32 ? 4 : 2)};
  if (adapters_alone) {
    RETURN_IF_ERROR(SaveAdapter(options.output, config, layout, read, options.dtype));
    return made;
  }
  ReadWeightsFn all = read;
  AdapterDeltas deltas;
  if (options.merge) {
    ASSIGN_OR_RETURN(deltas, AdapterDeltas::Of(config, layout, read));
    all = [&](int64_t first, absl::Span<float> out) {
      if (options.stop.stop_requested()) return absl::CancelledError("stopped");
      counter.Add(out.size() * sizeof(float));
      RETURN_IF_ERROR(initial(first, out));
      deltas.AddTo(base, first, out);
      return absl::OkStatus();
    };
  }
  ASSIGN_OR_RETURN(SavedModelFiles files,
                   MakeSavedModelFiles(config.model, config.data.tokenizer, options.dtype, config.train.init_from));
  made.kept_chat_template = !HasChatTemplate(files) && KeepChatTemplate(options.output, &files);
  RETURN_IF_ERROR(SaveModel(options.output, base, HuggingFaceTensorMap(config.model, base), all, options.dtype, files));
  return made;
}

}  // namespace holdfast
