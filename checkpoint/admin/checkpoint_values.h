#pragma once
// The weights of a checkpoint, or another plane of all its tensors, as one flat vector in canonical order, read with
// bounded memory, best from front to back.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "checkpoint/sharded/checkpoint_reader.h"
#include "framework/nn/layout.h"

namespace holdfast {

/// Chunks are read whole, so every value has passed its digest, and where values follow those that were read before, a
/// window of them ahead, so that who reads in order reads each once. Thread-safety: none.
class CheckpointValues {
 public:
  /// About 32 MiB of weights; the reader needs more for a moment, as the digest covers all planes.
  static constexpr int64_t kWindowElements = int64_t{8} << 20;

  /// `layout` must be that of the checkpoint, all of whose tensors have this plane; both outlive this.
  CheckpointValues(const CheckpointReader& reader, const ParameterLayout& layout, int threads,
                   std::string plane = kWeightPlane)
      : reader_(reader), layout_(layout), threads_(threads), plane_(std::move(plane)) {}

  /// Values [first, first + out.size()).
  absl::Status Read(int64_t first, absl::Span<float> out);

 private:
  /// From this element on, `count` of them are wanted.
  absl::Status LoadWindow(int64_t element, int64_t count);

  const CheckpointReader& reader_;
  const ParameterLayout& layout_;
  int threads_;
  std::string plane_;
  int64_t begin_ = 0;          // of the window in the flat vector
  std::vector<float> window_;  // whole chunks
};

}  // namespace holdfast
