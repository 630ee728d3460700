#pragma once
// Joins rooms that do not know each other: a model from a config or a saved model directory, ready to run.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/config/config.h"
#include "framework/data/tokenizer.h"
#include "framework/nn/weights.h"
#include "framework/parallel/resident_store.h"
#include "framework/train/trainer.h"
#include "models/language_model.h"

namespace holdfast {

/// The GPU of a worker, from its number on its machine. With fewer GPUs than workers several share one.
int GpuOf(int64_t local_index);

/// `local_index`: of the worker on its machine.
absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const TrainConfig& config, int64_t local_index = 0);

/// The model of a config on `device`.
absl::StatusOr<std::unique_ptr<LanguageModel>> MakeModel(const Config& config, Device& device);

/// Writes the weights that `read` gives, and the tokenizer of `config`, as a saved model.
absl::Status SaveWeights(const std::string& directory, const Config& config, const ParameterLayout& layout,
                         const ReadWeightsFn& read);

/// What the trainer of a config needs to know; plans the model's passes and reads train.init_from, if it is set.
absl::StatusOr<TrainerOptions> MakeTrainerOptions(const Config& config, LanguageModel& model);

/// A saved model for evaluation and sampling. Members are in order of construction.
struct LoadedModel {
  ModelConfig config;
  std::unique_ptr<const Tokenizer> tokenizer;  // null if the directory has none
  std::unique_ptr<Device> device;
  std::unique_ptr<LanguageModel> model;
  std::unique_ptr<PassRunner> runner;
  std::unique_ptr<Weights> weights;
  std::unique_ptr<ResidentStore> store;

  /// Logits (V) of the token that follows `tokens`.
  absl::StatusOr<std::vector<float>> NextLogits(absl::Span<const int32_t> tokens);
};

struct LoadOptions {
  ComputeDType compute_dtype = ComputeDType::kBF16;
  int64_t threads = 0;
  int64_t batch = 1;
  int64_t sequence = 0;  // 0 = the model's maximum, but at most 1024
};

/// `path`: a saved model directory, or a run directory that holds one.
absl::StatusOr<std::unique_ptr<LoadedModel>> LoadSavedModel(const std::string& path, const LoadOptions& options);

/// Bytes one microbatch of training, evaluation and sampling needs at most.
absl::StatusOr<size_t> ArenaBytes(LanguageModel& model, int64_t vocab_size, int64_t batch, int64_t sequence,
                                  bool training);

}  // namespace holdfast
