#include "models/runtime/training_data.h"

#include <array>

#include "framework/base/status.h"
#include "framework/data/tokenizer.h"
#include "models/runtime/data_places.h"
#include "xxhash.h"

namespace holdfast {
namespace {

absl::Status CheckTokenizer(const Config& config) {
  ASSIGN_OR_RETURN(const auto tokenizer, OpenTokenizer(config.data.tokenizer));
  return CheckVocabulary(*tokenizer, config.data.tokenizer, config.model.vocab_size);
}

}  // namespace

uint64_t TrainingData::digest() const {
  const std::array<uint64_t, 2> digests{training.digest(), validation.has_value() ? validation->digest() : 0};
  return XXH3_64bits(digests.data(), sizeof(digests));
}

absl::StatusOr<TrainingData> OpenTrainingData(const Config& config) {
  const int64_t sequence = config.batch.sequence_length;
  Places places(DataPlaces(config.data));
  const DatasetOptions options{.files = &places, .on_scan = ScanNotice()};
  TrainingData data;
  ASSIGN_OR_RETURN(data.training, Dataset::Open(config.data.train, sequence, config.model.vocab_size, options));
  if (!config.data.validation.empty()) {
    ASSIGN_OR_RETURN(data.validation,
                     Dataset::Open(config.data.validation, sequence, config.model.vocab_size, options));
  }
  RETURN_IF_ERROR(CheckTokenizer(config));
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
  RETURN_IF_ERROR(CheckTokenizer(config));
  return size;
}

}  // namespace holdfast
