#include "models/runtime/training_data.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "framework/base/status.h"
#include "framework/data/tokenizer.h"
#include "models/runtime/data_places.h"
#include "xxhash.h"

namespace holdfast {
namespace {

/// The token that ends a document, where documents are to be taken apart by it. Checks the tokenizer.
absl::StatusOr<std::optional<int32_t>> EndOfDocument(const Config& config) {
  ASSIGN_OR_RETURN(const auto tokenizer, OpenTokenizer(config.data.tokenizer));
  RETURN_IF_ERROR(CheckVocabulary(*tokenizer, config.data.tokenizer, config.model.vocab_size));
  if (!config.data.document_mask) return std::nullopt;
  if (tokenizer->end_of_text().has_value()) return tokenizer->end_of_text();
  return absl::InvalidArgumentError(
      absl::StrCat("data.document_mask: the tokenizer ", config.data.tokenizer,
                   " has no token that ends a text; pack the data with --documents, whose files say where documents "
                   "begin and need no such key"));
}

/// Else the first validation would fail, after hours of training. Reads up to the first token that is learned.
absl::Status CheckValidation(const Config& config, const Dataset& validation) {
  const int64_t size = config.batch.microbatch_size;
  const int64_t count = NumValidationMicrobatches(validation, size, config.train.validation_microbatches);
  for (int64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(const Microbatch microbatch, ReadValidationMicrobatch(validation, size, i));
    if (std::ranges::any_of(microbatch.targets, [](int32_t target) { return target >= 0; })) return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("data.validation has no token that is learned in the ", count,
                   " microbatches that are read of it: name other files there, or leave it empty",
                   config.train.validation_microbatches > 0 ? ", or raise train.validation_microbatches" : ""));
}

}  // namespace

uint64_t TrainingData::digest() const {
  const std::array<uint64_t, 2> digests{training.digest(), validation.has_value() ? validation->digest() : 0};
  return XXH3_64bits(digests.data(), sizeof(digests));
}

absl::StatusOr<TrainingData> OpenTrainingData(const Config& config) {
  const int64_t sequence = config.batch.sequence_length;
  Places places(DataPlaces(config.data));
  ASSIGN_OR_RETURN(const std::optional<int32_t> end_of_document, EndOfDocument(config));
  const DatasetOptions options{.files = &places, .end_of_document = end_of_document, .on_scan = ScanNotice()};
  TrainingData data;
  ASSIGN_OR_RETURN(data.training, Dataset::Open(config.data.train, sequence, config.model.vocab_size, options));
  if (!config.data.validation.empty()) {
    ASSIGN_OR_RETURN(data.validation,
                     Dataset::Open(config.data.validation, sequence, config.model.vocab_size, options));
    RETURN_IF_ERROR(CheckValidation(config, *data.validation));
  }
  return data;
}

absl::StatusOr<DatasetSize> MeasureTrainingData(const Config& config) {
  const int64_t sequence = config.batch.sequence_length;
  Places places(DataPlaces(config.data));
  const DatasetOptions options{.files = &places};
  ASSIGN_OR_RETURN(const DatasetSize size, Dataset::Measure(config.data.train, sequence, options));
  if (!config.data.validation.empty()) {
    RETURN_IF_ERROR(Dataset::Measure(config.data.validation, sequence, options).status());
  }
  RETURN_IF_ERROR(EndOfDocument(config).status());
  return size;
}

}  // namespace holdfast
