#include "models/runtime/loaded_model.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/model_directory.h"
#include "framework/base/log.h"
#include "framework/base/status.h"
#include "framework/config/validate.h"
#include "models/families/huggingface.h"
#include "models/plan.h"
#include "models/runtime/adapter_config.h"
#include "models/runtime/adapter_deltas.h"
#include "models/runtime/adapter_files.h"
#include "models/runtime/initial_model.h"
#include "models/runtime/initial_weights.h"
#include "models/runtime/make_model.h"
#include "models/runtime/memory_estimate.h"
#include "models/runtime/run_device.h"

namespace holdfast {
namespace {

constexpr int64_t kDefaultContext = 1024;

bool Exists(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0;
}

/// Whose tokens a model of `vocab_size` has.
absl::StatusOr<std::unique_ptr<const Tokenizer>> OpenFitting(const std::string& name, int64_t vocab_size) {
  ASSIGN_OR_RETURN(auto tokenizer, OpenTokenizer(name));
  RETURN_IF_ERROR(CheckVocabulary(*tokenizer, name, vocab_size));
  return tokenizer;
}

/// Those of TRL have one beside them, with the chat template that they were trained with.
bool OpenTokenizerOfAdapter(SavedModel* saved) {
  const std::string name = saved->adapter + "/tokenizer.json";
  if (saved->adapter.empty() || !Exists(name)) return false;
  auto opened = OpenFitting(name, saved->config.vocab_size);
  if (!opened.ok()) {
    LogWarning("the tokenizer beside the adapters is not used, but their model's: ", opened.status().message());
    return false;
  }
  saved->tokenizer = *std::move(opened);
  saved->tokenizer_directory = saved->adapter;
  return true;
}

/// Adapters have no config.json, and with LongRoPE the length chooses the angles that they were trained with.
absl::Status TakeLengthOfAdapter(SavedModel* saved) {
  if (saved->adapter.empty() || saved->config.rope_scaling != RopeScaling::kLongRope) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::optional<int64_t> length, LengthOfAdapter(saved->adapter));
  if (!length.has_value()) return absl::OkStatus();
  saved->config.max_sequence_length = *length;
  return Annotate(CheckModel(saved->config), saved->adapter);
}

/// The values in train.init_from with what the adapters, if there are any, add to them.
absl::StatusOr<ReadWeightsFn> OpenWeights(const Config& config, const std::string& adapter,
                                          const ParameterLayout& layout) {
  ASSIGN_OR_RETURN(ReadWeightsFn read, OpenInitialWeights(config, layout));
  if (adapter.empty()) return read;
  ASSIGN_OR_RETURN(const std::string digest, InitialWeightsDigest(config));
  ASSIGN_OR_RETURN(AdapterDeltas of_all, AdapterDeltas::Read(adapter, config.model, digest));
  return [read, deltas = std::make_shared<const AdapterDeltas>(std::move(of_all)), &layout](
             int64_t first, absl::Span<float> out) -> absl::Status {
    RETURN_IF_ERROR(read(first, out));
    deltas->AddTo(layout, first, out);
    return absl::OkStatus();
  };
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> SavedModel::Encode(std::string_view text) const {
  ASSIGN_OR_RETURN(std::vector<int32_t> tokens, tokenizer->Encode(text));
  RETURN_IF_ERROR(CheckTokens(*tokenizer, tokens, config.vocab_size));
  return tokens;
}

absl::StatusOr<std::unique_ptr<CachedDecoder>> LoadedModel::MakeDecoder(int64_t sequences, int64_t context) const {
  return CachedDecoder::Create(*model, config, *device, runner->stream(), *store,
                               {.sequences = sequences, .capacity = context});
}

absl::StatusOr<SavedModel> OpenSavedModel(const std::string& path) {
  RETURN_IF_ERROR(CheckIsLocal(path));
  SavedModel saved;
  const std::string of_run = path + "/model";
  const auto has = [&](const char* name) { return Exists(absl::StrCat(of_run, "/", name)); };
  saved.directory = has(kConfigFile) || has(kAdapterConfigFile) ? of_run : path;
  ASSIGN_OR_RETURN(const bool is_adapter, HoldsAdapter(saved.directory));
  if (is_adapter) {
    saved.adapter = saved.directory;
    ASSIGN_OR_RETURN(saved.directory, BaseModelOf(saved.adapter));
  }
  const auto read = ReadModelConfig(saved.directory);
  if (absl::IsNotFound(read.status()) && !saved.adapter.empty()) {
    return Annotate(read.status(),
                    absl::StrCat("the model that the adapters in ", saved.adapter, " are for (", kAdapterConfigFile,
                                 ", base_model_name_or_path) is not there; correct the path, or say its place to ",
                                 "`holdfast ckpt export RUN OUT_DIR --merge --base DIR`"));
  }
  if (struct stat info{}; stat(path.c_str(), &info) != 0) {
    return errno == ENOENT ? absl::NotFoundError(absl::StrCat(path, " does not exist")) : ErrnoToStatus(errno, path);
  }
  if (absl::IsNotFound(read.status())) {
    return absl::NotFoundError(absl::StrCat(path, " holds no saved model, or not all of one (", read.status().message(),
                                            "); a run saves its model when it ends, and `holdfast ckpt export ", path,
                                            " OUT_DIR` writes one of its newest checkpoint before that"));
  }
  RETURN_IF_ERROR(read.status());
  const HuggingFaceConfig& parsed = *read;
  saved.config = parsed.model;
  RETURN_IF_ERROR(TakeLengthOfAdapter(&saved));
  if (OpenTokenizerOfAdapter(&saved)) return saved;
  saved.tokenizer_directory = saved.directory;
  const std::string tokenizer = saved.directory + "/tokenizer.json";
  if (parsed.byte_tokenizer || Exists(tokenizer)) {
    ASSIGN_OR_RETURN(saved.tokenizer,
                     OpenFitting(parsed.byte_tokenizer ? "bytes" : tokenizer, saved.config.vocab_size));
  }
  return saved;
}

absl::StatusOr<std::unique_ptr<LoadedModel>> LoadWeightsOf(SavedModel saved, const LoadOptions& options) {
  const int64_t longest = saved.config.max_sequence_length;
  const int64_t sequence = options.sequence > 0 ? options.sequence : std::min(kDefaultContext, longest);
  if (sequence > longest) {
    return absl::InvalidArgumentError(
        absl::StrCat("a sequence length of ", sequence, " is longer than the model's ", longest));
  }

  auto loaded = std::make_unique<LoadedModel>();
  static_cast<SavedModel&>(*loaded) = std::move(saved);
  Config config;
  config.model = loaded->config;
  config.batch.sequence_length = sequence;
  config.train.init_from = loaded->directory;
  config.train.compute_dtype = options.compute_dtype;
  config.train.threads = options.threads;
  ASSIGN_OR_RETURN(loaded->device, MakeDevice(config.train));
  ASSIGN_OR_RETURN(loaded->model, MakeModel(config, *loaded->device));
  LanguageModel& model = *loaded->model;
  const size_t arena_bytes = options.whole_batches ? PlanEvaluation(model, options.batch, sequence).arena_bytes : 0;
  if (loaded->device->is_cpu())
    RETURN_IF_ERROR(CheckHostMemory(loaded->directory, model.layout(), model.compute_dtype(), arena_bytes));
  ASSIGN_OR_RETURN(
      loaded->runner,
      PassRunner::Create(model, *loaded->device, {.max_rows = options.batch * sequence, .arena_bytes = arena_bytes}));
  ASSIGN_OR_RETURN(const ReadWeightsFn read, OpenWeights(config, loaded->adapter, model.layout()));
  ASSIGN_OR_RETURN(loaded->weights, ReadOnlyWeights::Load(model.layout(), ReadOnlyWeights::All, model.compute_dtype(),
                                                          *loaded->device, loaded->runner->stream(), read));
  loaded->store = std::make_unique<ResidentStore>(model.layout(), loaded->weights->tensors());
  return loaded;
}

absl::StatusOr<std::unique_ptr<LoadedModel>> LoadSavedModel(const std::string& path, const LoadOptions& options) {
  ASSIGN_OR_RETURN(SavedModel saved, OpenSavedModel(path));
  return LoadWeightsOf(std::move(saved), options);
}

}  // namespace holdfast
