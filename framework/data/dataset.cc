#include "framework/data/dataset.h"

#include <algorithm>

#define XXH_INLINE_ALL
#include "framework/base/status.h"
#include "xxhash.h"

namespace holdfast {
namespace {

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

void ReadRow(const Dataset& dataset, int64_t sample, int64_t row, Microbatch& microbatch) {
  const int64_t sequence = microbatch.sequence;
  dataset.Read(sample, absl::MakeSpan(microbatch.inputs).subspan(row * sequence, sequence),
               absl::MakeSpan(microbatch.targets).subspan(row * sequence, sequence));
}

}  // namespace

absl::StatusOr<Dataset> Dataset::OpenFiles(absl::Span<const std::string> paths, int64_t sequence) {
  if (paths.empty()) return absl::InvalidArgumentError("no token files given");
  if (sequence < 1) return absl::InvalidArgumentError(absl::StrCat("sequence length ", sequence, " is not positive"));
  Dataset dataset;
  dataset.sequence_ = sequence;
  dataset.first_sample_.push_back(0);
  for (const std::string& path : paths) {
    HF_ASSIGN_OR_RETURN(auto file, TokenFile::Open(path));
    const int64_t samples = std::max<int64_t>(file->num_tokens() - 1, 0) / sequence;
    dataset.first_sample_.push_back(dataset.first_sample_.back() + samples);
    dataset.files_.push_back(std::move(file));
  }
  if (dataset.num_samples() > 0) return dataset;
  int64_t longest = 0;
  for (const auto& file : dataset.files_) longest = std::max(longest, file->num_tokens());
  return absl::FailedPreconditionError(
      absl::StrCat("no sample of ", sequence, " tokens in ", paths.size() == 1 ? "" : "any of ", paths[0],
                   paths.size() == 1 ? "" : ", ...", ": a sample needs ", sequence,
                   " + 1 tokens, the longest file has ", longest, "; shorten batch.sequence_length or give more data"));
}

absl::StatusOr<Dataset> Dataset::Open(absl::Span<const std::string> paths, int64_t sequence, int64_t vocab_size) {
  HF_ASSIGN_OR_RETURN(Dataset dataset, OpenFiles(paths, sequence));
  for (const auto& file : dataset.files_) {
    HF_ASSIGN_OR_RETURN(const uint64_t digest, file->CheckVocabulary(vocab_size));
    dataset.digests_.push_back(digest);
  }
  return dataset;
}

absl::StatusOr<DatasetSize> Dataset::Measure(absl::Span<const std::string> paths, int64_t sequence) {
  HF_ASSIGN_OR_RETURN(const Dataset dataset, OpenFiles(paths, sequence));
  return DatasetSize{.tokens = dataset.num_tokens(), .samples = dataset.num_samples()};
}

int64_t Dataset::num_tokens() const {
  int64_t sum = 0;
  for (const auto& file : files_) sum += file->num_tokens();
  return sum;
}

uint64_t Dataset::digest() const { return XXH3_64bits(digests_.data(), digests_.size() * sizeof(uint64_t)); }

void Dataset::Read(int64_t index, absl::Span<int32_t> inputs, absl::Span<int32_t> targets) const {
  HF_CHECK(index >= 0 && index < num_samples());
  HF_CHECK(static_cast<int64_t>(inputs.size()) == sequence_ && static_cast<int64_t>(targets.size()) == sequence_);
  const auto after = std::upper_bound(first_sample_.begin(), first_sample_.end(), index);
  const int64_t file = after - first_sample_.begin() - 1;
  const int64_t first = (index - first_sample_[file]) * sequence_;
  files_[file]->Read(first, inputs);
  // The targets are the inputs moved by one: only the last one is new.
  std::copy(inputs.begin() + 1, inputs.end(), targets.begin());
  files_[file]->Read(first + sequence_, targets.last(1));
}

Microbatch ReadMicrobatch(const Dataset& dataset, const SampleOrder& order, const BatchShape& shape, int64_t step,
                          int64_t index) {
  Microbatch microbatch = EmptyMicrobatch(shape.microbatch_size, dataset.sequence(), step, index);
  const int64_t first = (step * shape.microbatches + index) * shape.microbatch_size;
  for (int64_t row = 0; row < shape.microbatch_size; ++row) {
    ReadRow(dataset, order.At(first + row), row, microbatch);
  }
  return microbatch;
}

Microbatch ReadValidationMicrobatch(const Dataset& dataset, int64_t microbatch_size, int64_t index) {
  Microbatch microbatch = EmptyMicrobatch(microbatch_size, dataset.sequence(), 0, index);
  const int64_t first = index * microbatch_size;
  const int64_t rows = std::clamp<int64_t>(dataset.num_samples() - first, 0, microbatch_size);
  for (int64_t row = 0; row < rows; ++row) ReadRow(dataset, first + row, row, microbatch);
  return microbatch;
}

}  // namespace holdfast
