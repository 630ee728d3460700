#include "framework/data/dataset.h"

#include <algorithm>
#include <random>

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

}  // namespace

absl::StatusOr<Dataset> Dataset::OpenFiles(absl::Span<const std::string> paths, int64_t sequence, FileAccess& files) {
  if (paths.empty()) return absl::InvalidArgumentError("no token files given");
  if (sequence < 1) return absl::InvalidArgumentError(absl::StrCat("sequence length ", sequence, " is not positive"));
  Dataset dataset;
  dataset.sequence_ = sequence;
  dataset.files_.resize(paths.size());
  RETURN_IF_ERROR(RunParallel(static_cast<int64_t>(paths.size()), kFilesAtOnce, [&](int64_t at) {
    const auto i = static_cast<size_t>(at);
    ASSIGN_OR_RETURN(dataset.files_[i], TokenFile::Open(files, paths[i]));
    return absl::OkStatus();
  }));
  dataset.first_sample_.push_back(0);
  for (const auto& file : dataset.files_) {
    const int64_t samples = std::max<int64_t>(file->num_tokens() - 1, 0) / sequence;
    dataset.first_sample_.push_back(dataset.first_sample_.back() + samples);
  }
  if (dataset.num_samples() > 0) return dataset;
  int64_t longest = 0;
  for (const auto& file : dataset.files_) longest = std::max(longest, file->num_tokens());
  return absl::FailedPreconditionError(
      absl::StrCat("no sample of ", sequence, " tokens in ", paths.size() == 1 ? "" : "any of ", paths[0],
                   paths.size() == 1 ? "" : ", ...", ": a sample needs ", sequence,
                   " + 1 tokens, the longest file has ", longest, "; shorten batch.sequence_length or give more data"));
}

absl::StatusOr<Dataset> Dataset::Open(absl::Span<const std::string> paths, int64_t sequence, int64_t vocab_size,
                                      const DatasetOptions& options) {
  LocalFileAccess local;
  FileAccess& files = options.files != nullptr ? *options.files : local;
  ASSIGN_OR_RETURN(Dataset dataset, OpenFiles(paths, sequence, files));
  dataset.digests_.resize(paths.size());
  const uint64_t seed = std::random_device()();  // other blocks at each start, on each host
  RETURN_IF_ERROR(RunParallel(static_cast<int64_t>(paths.size()), kFilesAtOnce, [&](int64_t at) {
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
  ASSIGN_OR_RETURN(const Dataset dataset,
                   OpenFiles(paths, sequence, options.files != nullptr ? *options.files : local));
  return DatasetSize{.tokens = dataset.num_tokens(), .samples = dataset.num_samples()};
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

absl::Status Dataset::Read(int64_t index, absl::Span<int32_t> inputs, absl::Span<int32_t> targets) const {
  HOLDFAST_CHECK(index >= 0 && index < num_samples());
  HOLDFAST_CHECK(static_cast<int64_t>(inputs.size()) == sequence_ && static_cast<int64_t>(targets.size()) == sequence_);
  const auto after = std::upper_bound(first_sample_.begin(), first_sample_.end(), index);
  const int64_t file = after - first_sample_.begin() - 1;
  const int64_t first = (index - first_sample_[file]) * sequence_;
  std::vector<int32_t> tokens(static_cast<size_t>(sequence_) + 1);  // one read: the targets are the inputs moved by one
  RETURN_IF_ERROR(files_[file]->Read(first, absl::MakeSpan(tokens)));
  std::copy(tokens.begin(), tokens.end() - 1, inputs.begin());
  std::copy(tokens.begin() + 1, tokens.end(), targets.begin());
  return absl::OkStatus();
}

Microbatch EmptyMicrobatch(int64_t batch, int64_t sequence, int64_t step, int64_t index) {
  Microbatch microbatch;
  microbatch.batch = batch;
  microbatch.sequence = sequence;
  microbatch.inputs.assign(batch * sequence, 0);
  microbatch.targets.assign(batch * sequence, -1);
  microbatch.step = static_cast<uint32_t>(step);
  microbatch.index = static_cast<uint32_t>(index);
  return microbatch;
}

absl::Status ReadRow(const Dataset& dataset, int64_t sample, int64_t row, Microbatch& microbatch) {
  const int64_t sequence = microbatch.sequence;
  return dataset.Read(sample, absl::MakeSpan(microbatch.inputs).subspan(row * sequence, sequence),
                      absl::MakeSpan(microbatch.targets).subspan(row * sequence, sequence));
}

int64_t SampleOf(const SampleOrder& order, const BatchShape& shape, int64_t step, int64_t index, int64_t row) {
  return order.At(((step - 1) * shape.microbatches + index) * shape.microbatch_size + row);
}

absl::StatusOr<Microbatch> ReadMicrobatch(const Dataset& dataset, const SampleOrder& order, const BatchShape& shape,
                                          int64_t step, int64_t index) {
  Microbatch microbatch = EmptyMicrobatch(shape.microbatch_size, dataset.sequence(), step, index);
  for (int64_t row = 0; row < shape.microbatch_size; ++row) {
    RETURN_IF_ERROR(ReadRow(dataset, SampleOf(order, shape, step, index, row), row, microbatch));
  }
  return microbatch;
}

absl::StatusOr<Microbatch> ReadValidationMicrobatch(const Dataset& dataset, int64_t microbatch_size, int64_t index) {
  Microbatch microbatch = EmptyMicrobatch(microbatch_size, dataset.sequence(), 0, index);
  const int64_t first = index * microbatch_size;
  const int64_t rows = std::clamp<int64_t>(dataset.num_samples() - first, 0, microbatch_size);
  RETURN_IF_ERROR(RunParallel(rows, dataset.reads_at_once(),
                              [&](int64_t row) { return ReadRow(dataset, first + row, row, microbatch); }));
  return microbatch;
}

}  // namespace holdfast
