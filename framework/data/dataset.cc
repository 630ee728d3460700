#include "framework/data/dataset.h"

#include <algorithm>
#include <random>
#include <utility>

#define XXH_INLINE_ALL
#include "framework/base/parallel.h"
#include "framework/base/status.h"
#include "xxhash.h"

namespace holdfast {
namespace {

constexpr int kFilesAtOnce = 16;
constexpr int kSampledBlocks = 2;  // of each file, besides the first and the last

absl::StatusOr<TokenIndex> IndexOf(FileAccess& files, const std::string& path, const TokenFile& file, uint64_t seed,
                                   const ReadProgress& on_scan) {
  absl::StatusOr<TokenIndex> index = ReadTokenIndex(files, path);
  if (absl::IsNotFound(index.status())) return IndexTokens(file, on_scan);
  RETURN_IF_ERROR(index.status());
  RETURN_IF_ERROR(CheckSomeBlocks(file, *index, kSampledBlocks, seed));
  return index;
}

/// DataLoss if one of `tokens`, which begin at token `first` of the file, is beyond the vocabulary: it becomes an index
/// into the embeddings. When the file was opened, only its index and a few blocks were looked at.
absl::Status CheckTokens(const TokenFile& file, int64_t first, absl::Span<const uint32_t> tokens, int64_t vocab_size) {
  const uint32_t bits = file.kind().has_marks ? kTokenBits : ~0U;
  const int64_t limit = std::min<int64_t>(vocab_size, int64_t{kTokenBits} + 1);
  uint32_t largest = 0;
  for (const uint32_t token : tokens) largest = std::max(largest, token & bits);
  if (largest < limit) return absl::OkStatus();
  const auto bad = std::find_if(tokens.begin(), tokens.end(), [&](uint32_t token) { return (token & bits) >= limit; });
  return absl::DataLossError(absl::StrCat(
      file.path(), " at byte ", TokenFile::OffsetOfStored((first + (bad - tokens.begin())) * file.bytes_per_token()),
      ": token ", *bad & bits, " is beyond the vocabulary of ", vocab_size,
      ": the file has changed since it was packed; holdfast data verify ", file.path()));
}

/// Of a sample from a file without marks.
void MarkDocuments(absl::Span<uint32_t> tokens, std::optional<int32_t> end_of_document) {
  if (!end_of_document.has_value()) return;
  const auto end = static_cast<uint32_t>(*end_of_document);
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    if ((tokens[i] & kTokenBits) == end) tokens[i + 1] |= kDocumentStart;
  }
}

void FindDocuments(absl::Span<const uint32_t> tokens, const SampleView& sample) {
  const size_t length = sample.document_begins.size();
  for (size_t begin = 0; begin < length;) {
    size_t end = begin + 1;
    while (end < length && (tokens[end] & kDocumentStart) == 0) ++end;
    std::fill(sample.document_begins.begin() + begin, sample.document_begins.begin() + end, begin);
    std::fill(sample.document_ends.begin() + begin, sample.document_ends.begin() + end, end);
    begin = end;
  }
}

/// Files whose rows are to be read as they are.
absl::Status CheckRows(const TokenFile& file, int64_t sequence) {
  const int64_t row = file.kind().row_tokens;
  if (row == 0 || row == sequence) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(file.path(), ": packed into rows of ", row, " tokens; set batch.sequence_length to ", row,
                   " (`holdfast eval`: --sequence-length), or pack it again with --sequence-length ", sequence));
}

}  // namespace

absl::StatusOr<std::vector<std::shared_ptr<const TokenFile>>> OpenTokenFiles(absl::Span<const std::string> paths,
                                                                             FileAccess& files) {
  std::vector<std::shared_ptr<const TokenFile>> opened(paths.size());
  RETURN_IF_ERROR(RunParallel(static_cast<int64_t>(paths.size()), kFilesAtOnce, [&](int64_t at) {
    const auto i = static_cast<size_t>(at);
    ASSIGN_OR_RETURN(opened[i], TokenFile::Open(files, paths[i]));
    return absl::OkStatus();
  }));
  return opened;
}

absl::StatusOr<Dataset> Dataset::SamplesOf(std::vector<std::shared_ptr<const TokenFile>> files, int64_t sequence) {
  if (files.empty()) return absl::InvalidArgumentError("no token files given");
  if (sequence < 1) return absl::InvalidArgumentError(absl::StrCat("sequence length ", sequence, " is not positive"));
  for (const auto& file : files) RETURN_IF_ERROR(CheckRows(*file, sequence));
  Dataset dataset;
  dataset.sequence_ = sequence;
  dataset.files_ = std::move(files);
  dataset.first_sample_.push_back(0);
  for (const auto& file : dataset.files_) {
    const int64_t samples = std::max<int64_t>(file->num_tokens() - 1, 0) / sequence;
    dataset.first_sample_.push_back(dataset.first_sample_.back() + samples);
  }
  if (dataset.num_samples() > 0) return dataset;
  int64_t longest = 0;
  for (const auto& file : dataset.files_) longest = std::max(longest, file->num_tokens());
  const bool is_one = dataset.files_.size() == 1;
  return absl::FailedPreconditionError(
      absl::StrCat("no sample of ", sequence, " tokens in ", is_one ? "" : "any of ", dataset.files_[0]->path(),
                   is_one ? "" : ", ...", ": a sample needs ", sequence, " + 1 tokens, the longest file has ", longest,
                   "; shorten batch.sequence_length (`holdfast eval`: --sequence-length) or give more data"));
}

absl::StatusOr<Dataset> Dataset::Open(absl::Span<const std::string> paths, int64_t sequence, int64_t vocab_size,
                                      const DatasetOptions& options) {
  LocalFileAccess local;
  FileAccess& files = options.files != nullptr ? *options.files : local;
  ASSIGN_OR_RETURN(auto opened, OpenTokenFiles(paths, files));
  return OfFiles(paths, std::move(opened), sequence, vocab_size, options);
}

absl::StatusOr<Dataset> Dataset::OfFiles(absl::Span<const std::string> paths,
                                         std::vector<std::shared_ptr<const TokenFile>> opened, int64_t sequence,
                                         int64_t vocab_size, const DatasetOptions& options) {
  LocalFileAccess local;
  FileAccess& files = options.files != nullptr ? *options.files : local;
  ASSIGN_OR_RETURN(Dataset dataset, SamplesOf(std::move(opened), sequence));
  dataset.vocab_size_ = vocab_size;
  dataset.end_of_document_ = options.end_of_document;
  dataset.digests_.resize(dataset.files_.size());
  const uint64_t seed = std::random_device()();  // other blocks at each start, on each host
  RETURN_IF_ERROR(RunParallel(std::ssize(dataset.files_), kFilesAtOnce, [&](int64_t at) {
    const auto i = static_cast<size_t>(at);
    const TokenFile& file = *dataset.files_[i];
    ASSIGN_OR_RETURN(const TokenIndex index, IndexOf(files, paths[i], file, seed + i, options.on_scan));
    dataset.digests_[i] = index.digest;
    return CheckVocabulary(file, index, vocab_size);
  }));
  return dataset;
}

absl::StatusOr<DatasetSize> Dataset::Measure(absl::Span<const std::string> paths, int64_t sequence,
                                             const DatasetOptions& options) {
  LocalFileAccess local;
  ASSIGN_OR_RETURN(auto opened, OpenTokenFiles(paths, options.files != nullptr ? *options.files : local));
  ASSIGN_OR_RETURN(Dataset dataset, SamplesOf(std::move(opened), sequence));
  dataset.end_of_document_ = options.end_of_document;
  return dataset.size();
}

DatasetSize Dataset::size() const {
  const auto is_of_rows = [](const auto& file) { return file->kind().row_tokens > 0; };
  return {.tokens = num_tokens(),
          .samples = num_samples(),
          .has_documents = has_documents(),
          .has_conversations = std::any_of(files_.begin(), files_.end(), is_of_rows)};
}

int64_t Dataset::num_tokens() const {
  int64_t sum = 0;
  for (const auto& file : files_) sum += file->num_tokens();
  return sum;
}

uint64_t Dataset::digest() const { return XXH3_64bits(digests_.data(), digests_.size() * sizeof(uint64_t)); }

int Dataset::reads_at_once() const {
  int most = 1;
  for (const auto& file : files_) most = std::max(most, file->reads_at_once());
  return most;
}

std::optional<int32_t> Dataset::end_of_document() const {
  const auto marked = [](const auto& file) { return file->kind().has_marks; };
  return std::all_of(files_.begin(), files_.end(), marked) ? std::nullopt : end_of_document_;
}

bool Dataset::has_documents() const {
  const auto marked = [](const auto& file) { return file->kind().has_marks; };
  return end_of_document_.has_value() || std::any_of(files_.begin(), files_.end(), marked);
}

absl::Status Dataset::Read(int64_t index, const SampleView& sample, const std::stop_token& stop) const {
  HOLDFAST_CHECK(index >= 0 && index < num_samples());
  const auto length = static_cast<size_t>(sequence_);
  HOLDFAST_CHECK(sample.inputs.size() == length && sample.targets.size() == length);
  const auto after = std::upper_bound(first_sample_.begin(), first_sample_.end(), index);
  const int64_t at = after - first_sample_.begin() - 1;
  const TokenFile& file = *files_[at];
  std::vector<uint32_t> tokens(length + 1);  // one read: the targets are the inputs moved by one
  const int64_t first = (index - first_sample_[at]) * sequence_;
  RETURN_IF_ERROR(file.ReadMarked(first, absl::MakeSpan(tokens), stop));
  RETURN_IF_ERROR(CheckTokens(file, first, tokens, vocab_size_));
  if (!file.kind().has_marks) MarkDocuments(absl::MakeSpan(tokens), end_of_document_);
  for (size_t i = 0; i < length; ++i) {
    sample.inputs[i] = static_cast<int32_t>(tokens[i] & kTokenBits);
    const bool learned = (tokens[i + 1] & (kNotLearned | kDocumentStart)) == 0;
    sample.targets[i] = learned ? static_cast<int32_t>(tokens[i + 1]) : -1;
  }
  if (!sample.document_begins.empty()) FindDocuments(tokens, sample);
  return absl::OkStatus();
}

Microbatch EmptyMicrobatch(const Dataset& dataset, int64_t batch, int64_t step, int64_t index) {
  Microbatch microbatch;
  microbatch.batch = batch;
  microbatch.sequence = dataset.sequence();
  const auto rows = static_cast<size_t>(batch * dataset.sequence());
  microbatch.inputs.assign(rows, 0);
  microbatch.targets.assign(rows, -1);
  if (dataset.has_documents()) {
    microbatch.document_begins.assign(rows, 0);
    microbatch.document_ends.assign(rows, static_cast<int32_t>(dataset.sequence()));
  }
  microbatch.step = static_cast<uint32_t>(step);
  microbatch.index = static_cast<uint32_t>(index);
  return microbatch;
}

absl::Status ReadRow(const Dataset& dataset, int64_t sample, int64_t row, Microbatch& microbatch,
                     const std::stop_token& stop) {
  const auto length = static_cast<size_t>(microbatch.sequence), first = static_cast<size_t>(row) * length;
  const auto of_row = [&](std::vector<int32_t>& all) {
    return all.empty() ? absl::Span<int32_t>() : absl::MakeSpan(all).subspan(first, length);
  };
  return dataset.Read(sample,
                      {.inputs = of_row(microbatch.inputs),
                       .targets = of_row(microbatch.targets),
                       .document_begins = of_row(microbatch.document_begins),
                       .document_ends = of_row(microbatch.document_ends)},
                      stop);
}

int64_t SampleOf(const SampleOrder& order, const BatchShape& shape, int64_t step, int64_t index, int64_t row) {
  return order.At(((step - 1) * shape.microbatches + index) * shape.microbatch_size + row);
}

absl::StatusOr<Microbatch> ReadMicrobatch(const Dataset& dataset, const SampleOrder& order, const BatchShape& shape,
                                          int64_t step, int64_t index, const std::stop_token& stop) {
  Microbatch microbatch = EmptyMicrobatch(dataset, shape.microbatch_size, step, index);
  for (int64_t row = 0; row < shape.microbatch_size; ++row) {
    RETURN_IF_ERROR(ReadRow(dataset, SampleOf(order, shape, step, index, row), row, microbatch, stop));
  }
  return microbatch;
}

int64_t NumValidationMicrobatches(const Dataset& dataset, int64_t microbatch_size, int64_t limit) {
  const int64_t all = (dataset.num_samples() + microbatch_size - 1) / microbatch_size;
  return limit > 0 ? std::min(limit, all) : all;
}

absl::StatusOr<Microbatch> ReadValidationMicrobatch(const Dataset& dataset, int64_t microbatch_size, int64_t index,
                                                    const std::stop_token& stop) {
  Microbatch microbatch = EmptyMicrobatch(dataset, microbatch_size, 0, index);
  const int64_t first = index * microbatch_size;
  const int64_t rows = std::clamp<int64_t>(dataset.num_samples() - first, 0, microbatch_size);
  RETURN_IF_ERROR(RunParallel(rows, dataset.reads_at_once(),
                              [&](int64_t row) { return ReadRow(dataset, first + row, row, microbatch, stop); }));
  return microbatch;
}

}  // namespace holdfast
