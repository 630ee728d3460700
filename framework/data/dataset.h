#pragma once
// Token files as one row of samples. Sample i of a file holds tokens [i * T, i * T + T] (T inputs and, shifted by one,
// T targets; neighbours share one token); samples never cross files.

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/data/sample_order.h"
#include "framework/data/token_file.h"

namespace holdfast {

/// One microbatch: B sequences of T tokens.
struct Microbatch {
  int64_t batch = 0;             // B
  int64_t sequence = 0;          // T
  std::vector<int32_t> inputs;   // (B, T)
  std::vector<int32_t> targets;  // (B, T); -1 = not counted in the loss
  uint32_t step = 0, index = 0;  // which microbatch of which step, which its random numbers follow from
  // (B, T) or empty: where, in its sequence, each token's document begins and, exclusive, ends. Documents do not see
  // each other, and positions restart with each.
  std::vector<int32_t> document_begins = {}, document_ends = {};
};

/// One sample: T inputs, T targets, and its documents, unless they are empty.
struct SampleView {
  absl::Span<int32_t> inputs, targets;
  absl::Span<int32_t> document_begins = {}, document_ends = {};
};

struct DatasetOptions {
  FileAccess* files = nullptr;  // where the paths are; null = this machine's file systems
  /// In files without marks a document ends with this token. None: they are not taken apart.
  std::optional<int32_t> end_of_document = std::nullopt;
  /// Called while a file that has no index is read as a whole, from several threads.
  ReadProgress on_scan = {};
};

struct DatasetSize {
  int64_t tokens = 0, samples = 0;
  /// Whether samples consist of documents, so that some tokens may be none to learn (Dataset::Read).
  bool has_documents = false;
  /// Whether files were packed from conversations (`data pack --chat`).
  bool has_conversations = false;
};

/// In the order of `paths`. Errors are those of TokenFile::Open.
absl::StatusOr<std::vector<std::shared_ptr<const TokenFile>>> OpenTokenFiles(absl::Span<const std::string> paths,
                                                                             FileAccess& files);

class Dataset {
 public:
  /// What a dataset of these files holds, by their headers: no token is read. Fails as Open does, but for tokens.
  static absl::StatusOr<DatasetSize> Measure(absl::Span<const std::string> paths, int64_t sequence,
                                             const DatasetOptions& options = {});
  /// Of each file, its index says the digest and the largest token, which must be below vocab_size, after some of its
  /// blocks have been compared with the file's (CheckSomeBlocks); a file without an index is read as a whole.
  /// FailedPrecondition with what to do if the files hold no whole sample.
  static absl::StatusOr<Dataset> Open(absl::Span<const std::string> paths, int64_t sequence, int64_t vocab_size,
                                      const DatasetOptions& options = {});
  /// Of files that were opened by `paths` of options.files; their indexes lie beside them.
  static absl::StatusOr<Dataset> OfFiles(absl::Span<const std::string> paths,
                                         std::vector<std::shared_ptr<const TokenFile>> opened, int64_t sequence,
                                         int64_t vocab_size, const DatasetOptions& options = {});

  /// As Measure says it.
  DatasetSize size() const;
  int64_t num_samples() const { return first_sample_.back(); }
  int64_t num_tokens() const;
  int64_t sequence() const { return sequence_; }
  /// Of all tokens of all files in their order, wherever the files lie.
  uint64_t digest() const;

  /// The token that ends a document, if there is a file in which it does.
  std::optional<int32_t> end_of_document() const;

  /// Whether samples consist of documents that do not see each other.
  bool has_documents() const;
  /// Reads sample `index`. Its targets are its inputs moved by one; those that are marked as not learned, and, where
  /// there are documents, the first of a document, are -1. DataLoss or Unavailable, naming file and offset, if it
  /// cannot be read; DataLoss also if a token is beyond the vocabulary. Cancelled soon after `stop` is requested, where
  /// a server is waited for. Thread-safe.
  absl::Status Read(int64_t index, const SampleView& sample, const std::stop_token& stop = {}) const;
  /// How many samples should be read at the same time (RandomAccessFile::reads_at_once).
  int reads_at_once() const;

 private:
  static absl::StatusOr<Dataset> SamplesOf(std::vector<std::shared_ptr<const TokenFile>> files, int64_t sequence);

  std::vector<std::shared_ptr<const TokenFile>> files_;
  std::vector<uint64_t> digests_;      // of the files
  std::vector<int64_t> first_sample_;  // (files + 1) running sum
  int64_t sequence_ = 0, vocab_size_ = 0;
  std::optional<int32_t> end_of_document_;
};

/// The shape of a step's global batch.
struct BatchShape {
  int64_t microbatches = 1;     // M per step
  int64_t microbatch_size = 1;  // B sequences each
};

/// Room for `batch` samples, of which no row is counted yet.
Microbatch EmptyMicrobatch(const Dataset& dataset, int64_t batch, int64_t step, int64_t index);
/// Reads a sample into row `row`, as Dataset::Read. Different rows of one microbatch may be read from different
/// threads.
absl::Status ReadRow(const Dataset& dataset, int64_t sample, int64_t row, Microbatch& microbatch,
                     const std::stop_token& stop = {});
/// The sample that is row `row` of microbatch `index` (both from 0) of step `step` (from 1):
/// order.At(((step - 1) * M + index) * B + row).
int64_t SampleOf(const SampleOrder& order, const BatchShape& shape, int64_t step, int64_t index, int64_t row);

/// Microbatch `index` of step `step`, one row after the other.
absl::StatusOr<Microbatch> ReadMicrobatch(const Dataset& dataset, const SampleOrder& order, const BatchShape& shape,
                                          int64_t step, int64_t index, const std::stop_token& stop = {});

/// Validation microbatches of a dataset: all, or the first `limit` if that is not 0.
int64_t NumValidationMicrobatches(const Dataset& dataset, int64_t microbatch_size, int64_t limit);

/// Validation microbatch `index`: samples [index * B, index * B + B) in file order; rows past the end have targets -1.
absl::StatusOr<Microbatch> ReadValidationMicrobatch(const Dataset& dataset, int64_t microbatch_size, int64_t index,
                                                    const std::stop_token& stop = {});

}  // namespace holdfast
