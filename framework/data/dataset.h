#pragma once
// Token files as one row of samples. Sample i of a file holds tokens [i * T, i * T + T] (T inputs and, shifted by one,
// T targets; neighbours share one token); samples never cross files.

#include <cstdint>
#include <memory>
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
  uint32_t step = 0, index = 0;  // which microbatch of which step: the key of its random numbers
};

struct DatasetSize {
  int64_t tokens = 0, samples = 0;
};

class Dataset {
 public:
  /// What a dataset of these files holds, by their headers: no token is read. Fails as Open does, but for tokens.
  static absl::StatusOr<DatasetSize> Measure(absl::Span<const std::string> paths, int64_t sequence);
  /// FailedPrecondition with what to do if the files hold no whole sample; every token is checked against vocab_size.
  static absl::StatusOr<Dataset> Open(absl::Span<const std::string> paths, int64_t sequence, int64_t vocab_size);

  int64_t num_samples() const { return first_sample_.back(); }
  int64_t num_tokens() const;
  int64_t sequence() const { return sequence_; }
  /// Of all tokens of all files in their order, wherever the files lie.
  uint64_t digest() const;

  /// Writes sample `index` as T inputs and T targets.
  void Read(int64_t index, absl::Span<int32_t> inputs, absl::Span<int32_t> targets) const;

 private:
  static absl::StatusOr<Dataset> OpenFiles(absl::Span<const std::string> paths, int64_t sequence);

  std::vector<std::shared_ptr<const TokenFile>> files_;
  std::vector<uint64_t> digests_;      // of the files
  std::vector<int64_t> first_sample_;  // (files + 1) running sum
  int64_t sequence_ = 0;
};

/// The shape of a step's global batch.
struct BatchShape {
  int64_t microbatches = 1;     // M per step
  int64_t microbatch_size = 1;  // B sequences each
};

/// Microbatch `index` of step `step` (both from 0): samples order.At((step * M + index) * B + [0, B)).
Microbatch ReadMicrobatch(const Dataset& dataset, const SampleOrder& order, const BatchShape& shape, int64_t step,
                          int64_t index);

/// Validation microbatch `index`: samples [index * B, index * B + B) in file order; rows past the end have targets -1.
Microbatch ReadValidationMicrobatch(const Dataset& dataset, int64_t microbatch_size, int64_t index);

}  // namespace holdfast
