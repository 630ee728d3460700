#pragma once
// What a language model has beyond what a trainer needs of any model: its batches are tokens, and it says which comes
// next.

#include <array>
#include <cstdint>

#include "framework/nn/model.h"

namespace holdfast {

/// Device views of one microbatch: B sequences of T tokens.
struct TokenBatch {
  const int32_t* inputs = nullptr;   // (B * T)
  const int32_t* targets = nullptr;  // (B * T); -1 = not counted
  int64_t batch = 0, sequence = 0;
  kernels::Documents documents = {};  // none: a sequence is one document

  /// The arrays of a language model's batch.
  static TokenBatch Of(const Batch& batch) {
    return {.inputs = batch.array<int32_t>(0),
            .targets = batch.array<int32_t>(1),
            .batch = batch.batch,
            .sequence = batch.sequence,
            .documents = {.begin = batch.array<int32_t>(2), .end = batch.array<int32_t>(3)}};
  }
  operator Batch() const {  // NOLINT(google-explicit-constructor): it is one
    return {.batch = batch, .sequence = sequence, .arrays = {inputs, targets, documents.begin, documents.end}};
  }
};

class LanguageModel : public Model {
 public:
  absl::Span<const BatchArray> batch_arrays() const final {
    static constexpr std::array<BatchArray, 4> kArrays = {
        {{"tokens", 1}, {"targets", 1}, {"document begins", 1}, {"document ends", 1}}};
    return kArrays;
  }

  /// Logits (B, V) fp32 of the last token of each sequence; `logits` is a device pointer.
  virtual absl::Status LastLogits(const TokenBatch& batch, const PassContext& context, float* logits) = 0;
};

}  // namespace holdfast
