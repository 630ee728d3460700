#include "models/runtime/loaded_model.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "checkpoint/model_directory.h"
#include "framework/base/status.h"
#include "models/families/huggingface.h"
#include "models/runtime/adapter_config.h"
#include "models/runtime/adapter_deltas.h"
#include "models/runtime/initial_model.h"
#include "models/runtime/initial_weights.h"
#include "models/runtime/make_model.h"
#include "models/runtime/pass_plans.h"
#include "models/runtime/run_device.h"
#include "models/runtime/saved_weights.h"

namespace holdfast {
namespace {

constexpr int64_t kDefaultContext = 1024;

bool Exists(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0;
}

absl::Status AddAdapter(const std::string& directory, const ModelConfig& model, const ParameterLayout& layout,
                        std::vector<float>* values) {
  ASSIGN_OR_RETURN(const AdapterDeltas deltas, AdapterDeltas::Read(directory, model, WeightsDigest(*values)));
  for (const ParameterSpec& spec : layout.parameters()) {
    const auto first = static_cast<size_t>(spec.offset), n = static_cast<size_t>(spec.shape.elements());
    deltas.AddTo(layout, spec.offset, absl::MakeSpan(*values).subspan(first, n));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<float>> LoadedModel::NextLogits(absl::Span<const int32_t> tokens) const {
  Microbatch microbatch;
  microbatch.batch = 1;
  microbatch.sequence = static_cast<int64_t>(tokens.size());
  microbatch.inputs.assign(tokens.begin(), tokens.end());
  microbatch.targets.assign(tokens.size(), -1);
  return runner->Compute(std::move(microbatch), config.vocab_size, *store,
                         [&](const Batch& batch, const PassContext& context, float* logits) {
                           return model->LastLogits(TokenBatch::Of(batch), context, logits);
                         });
}

absl::StatusOr<std::unique_ptr<CachedDecoder>> LoadedModel::MakeDecoder(int64_t sequences, int64_t context) const {
  return CachedDecoder::Create(*model, config, *device, runner->stream(), *store,
                               {.sequences = sequences, .capacity = context});
}

absl::StatusOr<SavedModel> OpenSavedModel(const std::string& path) {
  SavedModel saved;
  const std::string of_run = path + "/model";
  saved.directory = Exists(of_run + "/config.json") || HoldsAdapter(of_run) ? of_run : path;
  if (HoldsAdapter(saved.directory)) {
    saved.adapter = saved.directory;
    ASSIGN_OR_RETURN(saved.directory, BaseModelOf(saved.adapter));
  }
  const auto read = ReadModelConfig(saved.directory);
  if (absl::IsNotFound(read.status()) && !saved.adapter.empty()) {
    return Annotate(read.status(), absl::StrCat("the model that the adapters in ", saved.adapter, " are for (",
                                                kAdapterConfigFile, ", base_model_name_or_path) is not there"));
  }
  if (absl::IsNotFound(read.status())) {
    return Annotate(read.status(), absl::StrCat(path,
                                                " holds no saved model; a run has one when it has ended, and "
                                                "`holdfast ckpt export RUN OUT_DIR` writes one of a checkpoint"));
  }
  RETURN_IF_ERROR(read.status());
  const HuggingFaceConfig& parsed = *read;
  saved.config = parsed.model;
  const std::string tokenizer = saved.directory + "/tokenizer.json";
  if (parsed.byte_tokenizer || Exists(tokenizer)) {
    ASSIGN_OR_RETURN(saved.tokenizer, OpenTokenizer(parsed.byte_tokenizer ? "bytes" : tokenizer));
    RETURN_IF_ERROR(CheckVocabulary(*saved.tokenizer, tokenizer, saved.config.vocab_size));
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
  config.train.compute_dtype = options.compute_dtype;
  config.train.threads = options.threads;
  ASSIGN_OR_RETURN(loaded->device, MakeDevice(config.train));
  ASSIGN_OR_RETURN(loaded->model, MakeModel(config, *loaded->device));
  LanguageModel& model = *loaded->model;
  const size_t arena_bytes =
      options.whole_batches ? EvaluationArenaBytes(model, config.model.vocab_size, options.batch, sequence) : 0;
  ASSIGN_OR_RETURN(
      loaded->runner,
      PassRunner::Create(model, *loaded->device, {.max_rows = options.batch * sequence, .arena_bytes = arena_bytes}));
  kernels::Ops& ops = loaded->runner->stream().ops();
  ASSIGN_OR_RETURN(Weights weights, Weights::Create(model.layout(), model.compute_dtype(), *loaded->device, ops));
  loaded->weights = std::make_unique<Weights>(std::move(weights));
  ASSIGN_OR_RETURN(std::vector<float> values, LoadSavedWeights(loaded->directory, loaded->config, model.layout()));
  if (!loaded->adapter.empty()) {
    RETURN_IF_ERROR(AddAdapter(loaded->adapter, loaded->config, model.layout(), &values));
  }
  loaded->weights->Set(values);
  loaded->store = std::make_unique<ResidentStore>(model.layout(), loaded->weights->compute());
  return loaded;
}

absl::StatusOr<std::unique_ptr<LoadedModel>> LoadSavedModel(const std::string& path, const LoadOptions& options) {
  ASSIGN_OR_RETURN(SavedModel saved, OpenSavedModel(path));
  return LoadWeightsOf(std::move(saved), options);
}

}  // namespace holdfast
