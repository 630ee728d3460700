#include "models/runtime/loaded_model.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "framework/base/status.h"
#include "models/families/huggingface.h"
#include "models/runtime/adapter_files.h"
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

absl::StatusOr<std::unique_ptr<LoadedModel>> LoadSavedModel(const std::string& path, const LoadOptions& options) {
  const std::string saved = Exists(path + "/model") ? path + "/model" : path;  // of a run
  const bool adapted = HoldsAdapter(saved);
  std::string directory = saved;
  if (adapted) {
    ASSIGN_OR_RETURN(directory, BaseModelOf(saved));
  }
  ASSIGN_OR_RETURN(const HuggingFaceConfig parsed, ReadModelConfig(directory));
  const int64_t longest = parsed.model.max_sequence_length;
  const int64_t sequence = options.sequence > 0 ? options.sequence : std::min(kDefaultContext, longest);
  if (sequence > longest) {
    return absl::InvalidArgumentError(
        absl::StrCat("a sequence length of ", sequence, " is longer than the model's ", longest));
  }

  auto loaded = std::make_unique<LoadedModel>();
  loaded->directory = directory;
  loaded->config = parsed.model;
  const std::string tokenizer = directory + "/tokenizer.json";
  if (parsed.byte_tokenizer || Exists(tokenizer)) {
    ASSIGN_OR_RETURN(loaded->tokenizer, OpenTokenizer(parsed.byte_tokenizer ? "bytes" : tokenizer));
  }
  Config config;
  config.model = parsed.model;
  config.batch.sequence_length = sequence;
  config.train.compute_dtype = options.compute_dtype;
  config.train.threads = options.threads;
  ASSIGN_OR_RETURN(loaded->device, MakeDevice(config.train));
  ASSIGN_OR_RETURN(loaded->model, MakeModel(config, *loaded->device));
  LanguageModel& model = *loaded->model;
  const size_t arena_bytes = EvaluationArenaBytes(model, parsed.model.vocab_size, options.batch, sequence);
  ASSIGN_OR_RETURN(
      loaded->runner,
      PassRunner::Create(model, *loaded->device, {.max_rows = options.batch * sequence, .arena_bytes = arena_bytes}));
  kernels::Ops& ops = loaded->runner->stream().ops();
  ASSIGN_OR_RETURN(Weights weights, Weights::Create(model.layout(), model.compute_dtype(), *loaded->device, ops));
  loaded->weights = std::make_unique<Weights>(std::move(weights));
  ASSIGN_OR_RETURN(std::vector<float> values, LoadSavedWeights(directory, parsed.model, model.layout()));
  if (adapted) RETURN_IF_ERROR(AddAdapter(saved, parsed.model, model.layout(), &values));
  loaded->weights->Set(values);
  loaded->store = std::make_unique<ResidentStore>(model.layout(), loaded->weights->compute());
  return loaded;
}

}  // namespace holdfast
