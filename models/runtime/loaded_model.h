#pragma once
// A saved model directory as a model ready to run, for evaluation and sampling.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/config/config.h"
#include "framework/data/tokenizer.h"
#include "framework/parallel/resident_store.h"
#include "framework/train/pass_runner.h"
#include "framework/train/read_only_weights.h"
#include "models/cached_decoder.h"
#include "models/language_model.h"

namespace holdfast {

/// What a saved model directory says besides its weights.
struct SavedModel {
  std::string directory, adapter;  // of adapters that are added to its weights; empty = none
  ModelConfig config;
  std::unique_ptr<const Tokenizer> tokenizer;  // null if there is none
  std::string tokenizer_directory;             // where it lies, with its settings and chat templates

  /// With the tokenizer that there is. InvalidArgument if the text has a token beyond the vocabulary.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text) const;
};

/// Members are in order of construction.
struct LoadedModel : SavedModel {
  std::unique_ptr<Device> device;
  std::unique_ptr<LanguageModel> model;
  std::unique_ptr<PassRunner> runner;
  std::optional<ReadOnlyWeights> weights;
  std::unique_ptr<ResidentStore> store;

  /// Says what follows in so many sequences at a time, each of `context` tokens at most, which is at most the sequence
  /// length that this was loaded for.
  absl::StatusOr<std::unique_ptr<CachedDecoder>> MakeDecoder(int64_t sequences, int64_t context) const;
};

struct LoadOptions {
  ComputeDType compute_dtype = ComputeDType::kBF16;
  int64_t threads = 0;
  int64_t batch = 1;
  int64_t sequence = 0;       // 0 = the model's maximum, but at most 1024
  bool whole_batches = true;  // takes memory for passes over batches of sequences, which a decoder does not need
};

/// `path`: a saved model directory, or a run directory that holds one. Adapters (PEFT) are added to the weights of the
/// model that they name. A tokenizer beside them, and a length that they say, count instead of the model's.
absl::StatusOr<SavedModel> OpenSavedModel(const std::string& path);
absl::StatusOr<std::unique_ptr<LoadedModel>> LoadWeightsOf(SavedModel saved, const LoadOptions& options);
/// Both.
absl::StatusOr<std::unique_ptr<LoadedModel>> LoadSavedModel(const std::string& path, const LoadOptions& options);

}  // namespace holdfast
