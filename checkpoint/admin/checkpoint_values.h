#pragma once
// The weights of a checkpoint as one flat vector in canonical order, read front to back with bounded memory.

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "checkpoint/sharded/checkpoint_reader.h"
#include "framework/nn/layout.h"

namespace holdfast {

/// Chunks are read whole, so every value has passed its digest, and a window of them ahead, so that who reads in order
/// reads each once. Thread-safety: none.
class CheckpointValues {
 public:
  /// About 32 MiB of weights; the reader needs three times that for a moment, as the digest covers the moments too.
  static constexpr int64_t kWindowElements = int64_t{8} << 20;

  /// `layout` must be that of the checkpoint; both outlive this.
  CheckpointValues(const CheckpointReader& reader, const ParameterLayout& layout, int threads)
      : reader_(reader), layout_(layout), threads_(threads) {}

  /// Values [first, first + out.size()).
  absl::Status Read(int64_t first, absl::Span<float> out);

 private:
  absl::Status LoadWindow(int64_t element);

  const CheckpointReader& reader_;
  const ParameterLayout& layout_;
  int threads_;
  int64_t begin_ = 0;          // of the window in the flat vector
  std::vector<float> window_;  // whole chunks
};

}  // namespace holdfast
