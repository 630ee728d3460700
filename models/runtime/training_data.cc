#include "models/runtime/training_data.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/counted.h"
#include "framework/base/log.h"
#include "framework/base/parallel.h"
#include "framework/base/status.h"
#include "framework/data/token_index.h"
#include "framework/data/tokenizer.h"
#include "models/runtime/data_places.h"
#include "xxhash.h"

namespace holdfast {
namespace {

constexpr size_t kMostIndexesRead = 100;  // there may be thousands
constexpr int kIndexesAtOnce = 16;        // they may be behind a network

/// Of the first files, by their indexes; 0 for one that has none.
std::vector<uint32_t> LargestTokens(absl::Span<const std::string> files, FileAccess& access) {
  files = files.first(std::min(files.size(), kMostIndexesRead));
  std::vector<uint32_t> largest(files.size());
  const auto read = [&](int64_t i) {
    const auto at = static_cast<size_t>(i);
    const auto index = ReadTokenIndex(access, files[at]);
    if (index.ok()) largest[at] = index->largest;
    return absl::OkStatus();
  };
  if (!RunParallel(std::ssize(largest), kIndexesAtOnce, read).ok()) return {};
  return largest;
}

/// The token that ends a document, where documents are to be taken apart by it.
absl::StatusOr<std::optional<int32_t>> EndOfDocument(const Config& config, const Tokenizer& tokenizer) {
  if (!config.data.document_mask) return std::nullopt;
  const std::optional<int32_t> end = tokenizer.end_of_text();
  if (end.has_value() && *end < config.model.vocab_size) return end;
  const std::string why =
      end.has_value()
          ? absl::StrCat("the tokenizer ", config.data.tokenizer, " ends a text with token ", *end,
                         ", for which the model has no embedding (model.vocab_size: ", config.model.vocab_size, ")")
          : NoEndOfText(config.data.tokenizer);
  return absl::InvalidArgumentError(
      absl::StrCat("data.document_mask: ", why,
                   "; pack the data with --documents, whose files say where documents begin and need no such key"));
}

/// The same. Checks the tokenizer, and the files against what it has beyond the model.
absl::StatusOr<std::optional<int32_t>> CheckTokenizer(const Config& config, const std::stop_token& stop) {
  const auto tokenizer = OpenTokenizer(config.data.tokenizer);
  if (!tokenizer.ok()) return Annotate(tokenizer.status(), "data.tokenizer");
  const absl::Status fits = CheckVocabulary(**tokenizer, config.data.tokenizer, config.model.vocab_size);
  if (!fits.ok()) return Annotate(fits, "data.tokenizer");
  Places places(DataPlaces(config.data, stop));
  for (const auto& [key, files] :
       {std::pair("data.train", &config.data.train), {"data.validation", &config.data.validation}}) {
    const absl::Status known = CheckAddedTokens(**tokenizer, *files, places, config.model.vocab_size);
    if (!known.ok()) return Annotate(known, key);
  }
  return EndOfDocument(config, **tokenizer);
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
      absl::StrCat("data.validation has no token that is learned in the ", Counted(count, "microbatch"),
                   " read of it: name other files there, or leave it empty",
                   config.train.validation_microbatches > 0 ? ", or raise train.validation_microbatches" : ""));
}

absl::StatusOr<Dataset> Open(const char* key, const std::vector<std::string>& files, const Config& config,
                             const DatasetOptions& options) {
  auto opened = Dataset::Open(files, config.batch.sequence_length, config.model.vocab_size, options);
  if (!opened.ok()) return Annotate(opened.status(), key);
  return opened;
}

absl::StatusOr<DatasetSize> Measure(const char* key, const std::vector<std::string>& files, const Config& config,
                                    const std::stop_token& stop) {
  Places places(DataPlaces(config.data, stop));
  auto size = Dataset::Measure(files, config.batch.sequence_length, {.files = &places});
  if (!size.ok()) return Annotate(size.status(), key);
  return size;
}

absl::Status MeasureValidation(const Config& config, const std::stop_token& stop) {
  if (config.data.validation.empty()) return absl::OkStatus();
  return Measure("data.validation", config.data.validation, config, stop).status();
}

/// A vocabulary is rounded up to a multiple of 128, or of more for the sake of sharding: DeepSeek's by 2.4 %.
void WarnOfUnusedVocabulary(const Config& config, int64_t tokens) {
  const int64_t rounded = (tokens + 127) / 128 * 128, rows = config.model.vocab_size;
  if (10 * rows <= 11 * rounded) return;
  LogWarning("model.vocab_size: ", rows, ", but the tokenizer ", config.data.tokenizer, " has ",
             Counted(tokens, "token"), ": ", rows - tokens, " rows of the embeddings are those of no token; ", rounded,
             " would do");
}

/// Others, of a storage that does not answer, say, may be gone the next time.
bool IsOfTheConfig(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status) ||
         absl::IsDataLoss(status);
}

}  // namespace

uint64_t TrainingData::digest() const {
  std::optional<int32_t> end = training.end_of_document();
  if (!end.has_value() && validation.has_value()) end = validation->end_of_document();
  if (!end.has_value()) return token_digest();
  const std::array<uint64_t, 2> digests{token_digest(), static_cast<uint64_t>(*end)};
  return XXH3_64bits(digests.data(), sizeof(digests));
}

uint64_t TrainingData::token_digest() const {
  const std::array<uint64_t, 2> digests{training.digest(), validation.has_value() ? validation->digest() : 0};
  return XXH3_64bits(digests.data(), sizeof(digests));
}

absl::StatusOr<TrainingData> OpenTrainingData(const Config& config, const std::stop_token& stop) {
  Places places(DataPlaces(config.data, stop));
  ASSIGN_OR_RETURN(const std::optional<int32_t> end_of_document, CheckTokenizer(config, stop));
  const DatasetOptions options{.files = &places, .end_of_document = end_of_document, .on_scan = ScanNotice()};
  TrainingData data;
  ASSIGN_OR_RETURN(data.training, Open("data.train", config.data.train, config, options));
  if (!config.data.validation.empty()) {
    ASSIGN_OR_RETURN(data.validation, Open("data.validation", config.data.validation, config, options));
    RETURN_IF_ERROR(CheckValidation(config, *data.validation));
  }
  return data;
}

absl::StatusOr<DatasetSize> MeasureTraining(const Config& config, const std::stop_token& stop) {
  return Measure("data.train", config.data.train, config, stop);
}

absl::StatusOr<DatasetSize> MeasureTrainingData(const Config& config, const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const DatasetSize size, MeasureTraining(config, stop));
  RETURN_IF_ERROR(MeasureValidation(config, stop));
  RETURN_IF_ERROR(CheckTokenizer(config, stop).status());
  return size;
}

bool LearnsEveryToken(const Config& config, const std::stop_token& stop) {
  if (config.data.document_mask) return false;
  const absl::StatusOr<DatasetSize> size = MeasureTraining(config, stop);
  return size.ok() && !size->has_documents;
}

absl::Status CheckAddedTokens(const Tokenizer& tokenizer, absl::Span<const std::string> files, FileAccess& access,
                              int64_t vocab_size) {
  if (tokenizer.vocab_size() <= vocab_size) return absl::OkStatus();
  const std::vector<uint32_t> largest = LargestTokens(files, access);
  for (size_t i = 0; i < largest.size(); ++i) {
    if (largest[i] >= tokenizer.vocab_size()) continue;
    const auto token = static_cast<int32_t>(largest[i]);
    const absl::Status known = CheckTokens(tokenizer, {&token, 1}, vocab_size);
    if (!known.ok()) return Annotate(known, files[i]);
  }
  return absl::OkStatus();
}

std::string WithTokensOfAnother(const Tokenizer& tokenizer, absl::Span<const std::string> files, FileAccess& access) {
  const std::vector<uint32_t> largest = LargestTokens(files, access);
  for (size_t i = 0; i < largest.size(); ++i) {
    if (largest[i] < tokenizer.vocab_size()) continue;
    return absl::StrCat("has ", Counted(tokenizer.vocab_size(), "token"), ", but ", files[i], " holds token ",
                        largest[i], ", so it was packed with another tokenizer");
  }
  return "";
}

void WarnOfTokenizer(const Config& config, const std::stop_token& stop) {
  const auto tokenizer = OpenTokenizer(config.data.tokenizer);
  if (!tokenizer.ok()) return;
  Places places(DataPlaces(config.data, stop));
  std::string found = WithTokensOfAnother(**tokenizer, config.data.train, places);
  if (found.empty()) found = WithTokensOfAnother(**tokenizer, config.data.validation, places);
  if (found.empty()) return WarnOfUnusedVocabulary(config, (*tokenizer)->vocab_size());
  LogWarning("data.tokenizer: ", config.data.tokenizer, " ", found, "; samples and the saved model will turn tokens ",
             "into the wrong text: set data.tokenizer to that one");
}

void WarnOfUnreadValidation(const Config& config, const std::stop_token& stop) {
  const int64_t limit = config.train.validation_microbatches, read = limit * config.batch.microbatch_size;
  if (limit == 0) return;
  Places places(DataPlaces(config.data, stop));
  int64_t before = 0;  // sequences
  for (const std::string& file : config.data.validation) {
    if (before >= read) {
      return LogWarning("train.validation_microbatches: ", Counted(limit, "microbatch"), limit == 1 ? " is" : " are",
                        " the first ", read, " sequences of data.validation, which end before ", file,
                        ": no loss is of that file; set it to 0 to validate on all, or higher");
    }
    const auto size = Dataset::Measure({&file, 1}, config.batch.sequence_length, {.files = &places});
    before += size.ok() ? size->samples : 0;
  }
}

absl::Status CheckTrainingData(const Config& config, const std::stop_token& stop) {
  std::vector<std::string> problems;
  bool is_damaged = false;
  for (const absl::Status& status : {MeasureTraining(config, stop).status(), MeasureValidation(config, stop),
                                     CheckTokenizer(config, stop).status()}) {
    if (status.ok()) continue;
    if (!IsOfTheConfig(status)) return status;
    problems.emplace_back(status.message());
    is_damaged = is_damaged || absl::IsDataLoss(status);
  }
  if (!problems.empty()) {
    return absl::Status(is_damaged ? absl::StatusCode::kDataLoss : absl::StatusCode::kInvalidArgument,
                        absl::StrJoin(problems, "; "));
  }
  WarnOfTokenizer(config, stop);
  WarnOfUnreadValidation(config, stop);
  return absl::OkStatus();
}

}  // namespace holdfast
