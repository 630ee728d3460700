#pragma once
// The token files of a config.

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/config/config.h"
#include "framework/data/dataset.h"
#include "framework/data/tokenizer.h"
#include "framework/storage/file_access.h"

namespace holdfast {

struct TrainingData {
  Dataset training;
  std::optional<Dataset> validation;

  /// Of all tokens, wherever the files lie, and of the one that ends a document, if one does: what the workers of a run
  /// must agree on.
  uint64_t digest() const;
  /// Of all tokens alone; equal to digest() where none ends a document.
  uint64_t token_digest() const;
};

/// Checks every token, by the index of a file that has one, the tokenizer against the model's vocabulary, and that
/// validation has something to measure. `stop`, here and below: as in PlaceSettings; here of every read of the data,
/// too, that has none of its own.
absl::StatusOr<TrainingData> OpenTrainingData(const Config& config, const std::stop_token& stop = {});

/// Size of the training files, by their headers alone.
absl::StatusOr<DatasetSize> MeasureTraining(const Config& config, const std::stop_token& stop = {});

/// The same. Checks all that OpenTrainingData does but the tokens (CheckAddedTokens alone): for a process that starts a
/// run and leaves reading to the workers.
absl::StatusOr<DatasetSize> MeasureTrainingData(const Config& config, const std::stop_token& stop = {});

/// Whether every token of the training files is learned in every step, by their headers and the config. False also
/// where that cannot be told.
bool LearnsEveryToken(const Config& config, const std::stop_token& stop = {});

/// InvalidArgument, with the file and the token, if one holds a token of the tokenizer for which the model has no
/// embedding; of those that the tokenizer has not either Dataset::Open tells. By the indexes of the first hundred
/// files.
absl::Status CheckAddedTokens(const Tokenizer& tokenizer, absl::Span<const std::string> files, FileAccess& access,
                              int64_t vocab_size);

/// Of token files with a token that the tokenizer has not, which says that they were packed with another one, as a file
/// does not name its own: what to say of the first, "has 256 tokens, but FILE holds token 300, so ...". Else "". By the
/// indexes of the first hundred files.
std::string WithTokensOfAnother(const Tokenizer& tokenizer, absl::Span<const std::string> files, FileAccess& access);

/// Warns of a tokenizer that cannot be the one that the data was packed with: training is none the worse for it,
/// samples and the saved model are. Else of one with far fewer tokens than the model's vocabulary, more than what that
/// is rounded up by.
void WarnOfTokenizer(const Config& config, const std::stop_token& stop = {});

/// Warns of a file of data.validation that no validation comes to: microbatches are read in the order of the files, up
/// to train.validation_microbatches. Names the first such file.
void WarnOfUnreadValidation(const Config& config, const std::stop_token& stop = {});

/// The same as MeasureTrainingData for who only looks at the config: InvalidArgument with all that is wrong, by key;
/// DataLoss if some of it is damage. Another code if it could not be looked at. Warns as above.
absl::Status CheckTrainingData(const Config& config, const std::stop_token& stop = {});

}  // namespace holdfast
