#include "tools/session.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "checkpoint/saved_model.h"
#include "framework/base/status.h"
#include "framework/tensor/cuda_device.h"
#include "models/families/huggingface.h"
#include "models/plan.h"
#include "models/transformer.h"
#include "tools/arithmetic.h"
#include "tools/gemm_table.h"
#include "tools/initial_model.h"
#include "tools/saved_model_files.h"

namespace holdfast {
namespace {

constexpr int64_t kDefaultContext = 1024;

/// All values of a saved model whose shape must be that of `config`.
absl::StatusOr<std::vector<float>> LoadSavedWeights(const std::string& directory, const ModelConfig& config,
                                                    const ParameterLayout& layout) {
  std::vector<float> values(static_cast<size_t>(layout.elements()));
  const auto ignorable = [&](const std::string& name) { return IsIgnorableHuggingFaceTensor(config, name); };
  HF_RETURN_IF_ERROR(
      LoadWeights(directory, layout, HuggingFaceTensorMap(config, layout), ignorable, absl::MakeSpan(values)));
  return values;
}

bool Exists(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0;
}

}  // namespace

int GpuOf(int64_t local_index) { return static_cast<int>(local_index % std::max(1, NumCudaDevices())); }

absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const TrainConfig& config, int64_t local_index) {
  if (config.device == DeviceKind::kCuda) {
    HF_ASSIGN_OR_RETURN(const std::string table, ReadGemmTable(config));
    return MakeCudaDevice(GpuOf(local_index), {.gemm_table = table});
  }
  HF_ASSIGN_OR_RETURN(const kernels::Arithmetic arithmetic, ArithmeticOf(config));
  return MakeCpuDevice(static_cast<int>(config.threads), arithmetic);
}

// Every run of rows reads and writes the whole fp32 gradient of the projection: on a GPU as much work as the products
// of 512 rows; 4096 hold 0.8 GiB of logits at GPT-2's vocabulary. On a CPU 512 (98 MiB) are enough.
constexpr int64_t kHeadRowsOnGpu = 4096;

absl::StatusOr<std::unique_ptr<LanguageModel>> MakeModel(const Config& config, Device& device) {
  TransformerOptions options{
      .compute_dtype = config.train.compute_dtype == ComputeDType::kBF16 ? DType::kBF16 : DType::kF32,
      .recompute_blocks = config.train.recompute == RecomputeMode::kBlock};
  if (config.train.device == DeviceKind::kCuda) options.head_rows = kHeadRowsOnGpu;
  // Rotary tables are as long as they are used: a config.json may say any length.
  ModelConfig model = config.model;
  if (model.position == PositionKind::kRope) {
    model.max_sequence_length = std::min(model.max_sequence_length, config.batch.sequence_length);
  }
  return MakeTransformer(model, options, device);
}

absl::Status SaveWeights(const std::string& directory, const Config& config, const ParameterLayout& layout,
                         const ReadWeightsFn& read) {
  HF_ASSIGN_OR_RETURN(const SavedModelFiles files, MakeSavedModelFiles(config.model, config.data.tokenizer));
  return SaveModel(directory, layout, HuggingFaceTensorMap(config.model, layout), read, FileDType::kF32, files);
}

absl::StatusOr<size_t> ArenaBytes(LanguageModel& model, int64_t vocab_size, int64_t batch, int64_t sequence,
                                  bool training) {
  size_t bytes = PlanEvaluation(model, batch, sequence).arena_bytes;
  if (training) bytes = std::max(bytes, PlanTraining(model, batch, sequence).arena_bytes);
  const size_t logits = (static_cast<size_t>(vocab_size) * sizeof(float) + 63) / 64 * 64;
  return std::max(bytes, PlanLastLogits(model, 1, sequence).arena_bytes + logits);
}

absl::StatusOr<TrainerOptions> MakeTrainerOptions(const Config& config, LanguageModel& model) {
  const int64_t batch = config.batch.microbatch_size, sequence = config.batch.sequence_length;
  TrainerOptions options{.batch = config.batch,
                         .optimizer = config.optimizer,
                         .schedule = config.schedule,
                         .parallel = config.parallel,
                         .total_steps = config.train.steps,
                         .seed = config.run.seed,
                         .training_schedule = PlanTraining(model, batch, sequence).schedule,
                         .evaluation_schedule = PlanEvaluation(model, batch, sequence).schedule,
                         .transfer_timeout = std::chrono::milliseconds(config.elastic.collective_timeout_ms),
                         .host_threads = static_cast<int>(config.train.threads)};
  HF_ASSIGN_OR_RETURN(options.arena_bytes,
                      ArenaBytes(model, config.model.vocab_size, batch, sequence, /*training=*/true));
  if (config.train.init_from.empty()) return options;
  HF_ASSIGN_OR_RETURN(std::vector<float> values,
                      LoadSavedWeights(config.train.init_from, config.model, model.layout()));
  options.initial_weights = [values = std::move(values)](int64_t first, absl::Span<float> out) {
    std::copy_n(values.begin() + first, out.size(), out.begin());
    return absl::OkStatus();
  };
  return options;
}

absl::StatusOr<std::vector<float>> LoadedModel::NextLogits(absl::Span<const int32_t> tokens) {
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
  const std::string directory = Exists(path + "/model/config.json") ? path + "/model" : path;
  HF_ASSIGN_OR_RETURN(const HuggingFaceConfig parsed, ReadModelConfig(directory));
  const int64_t longest = parsed.model.max_sequence_length;
  const int64_t sequence = options.sequence > 0 ? options.sequence : std::min(kDefaultContext, longest);
  if (sequence > longest) {
    return absl::InvalidArgumentError(
        absl::StrCat("a sequence length of ", sequence, " is longer than the model's ", longest));
  }

  auto loaded = std::make_unique<LoadedModel>();
  loaded->config = parsed.model;
  const std::string tokenizer = directory + "/tokenizer.json";
  if (parsed.byte_tokenizer || Exists(tokenizer)) {
    HF_ASSIGN_OR_RETURN(loaded->tokenizer, OpenTokenizer(parsed.byte_tokenizer ? "bytes" : tokenizer));
  }
  Config config;
  config.model = parsed.model;
  config.batch.sequence_length = sequence;
  config.train.compute_dtype = options.compute_dtype;
  config.train.threads = options.threads;
  HF_ASSIGN_OR_RETURN(loaded->device, MakeDevice(config.train));
  HF_ASSIGN_OR_RETURN(loaded->model, MakeModel(config, *loaded->device));
  LanguageModel& model = *loaded->model;
  HF_ASSIGN_OR_RETURN(const size_t arena_bytes,
                      ArenaBytes(model, parsed.model.vocab_size, options.batch, sequence, /*training=*/false));
  HF_ASSIGN_OR_RETURN(
      loaded->runner,
      PassRunner::Create(model, *loaded->device, {.max_rows = options.batch * sequence, .arena_bytes = arena_bytes}));
  kernels::Ops& ops = loaded->runner->stream().ops();
  HF_ASSIGN_OR_RETURN(Weights weights, Weights::Create(model.layout(), model.compute_dtype(), *loaded->device, ops));
  loaded->weights = std::make_unique<Weights>(std::move(weights));
  HF_ASSIGN_OR_RETURN(const std::vector<float> values, LoadSavedWeights(directory, parsed.model, model.layout()));
  loaded->weights->Set(values);
  loaded->store = std::make_unique<ResidentStore>(model.layout(), loaded->weights->compute());
  return loaded;
}

}  // namespace holdfast
