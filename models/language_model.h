#pragma once
// What a language model has beyond what a trainer needs of any model: its batches are tokens, and it says which comes
// next.

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
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

/// Keys and values that are kept of sequences, in the compute dtype: for each layer the keys (sequences, G, capacity,
/// D), behind them the values.
struct KeyValues {
  std::byte* data = nullptr;  // of the device; null in a planning pass
  int64_t sequences = 0, capacity = 0;

  /// Of the keys of one layer, or of its values.
  int64_t Bytes(int64_t kv_heads, int64_t head_dim, kernels::DType dtype) const {
    return sequences * kv_heads * capacity * head_dim * static_cast<int64_t>(kernels::SizeOf(dtype));
  }
};

/// R tokens that continue sequences, each at its position. Device views.
struct ContinuedBatch {
  int64_t rows = 0;
  const int32_t* tokens = nullptr;       // (R)
  const int32_t* sequence_of = nullptr;  // (R); rows of one sequence ascend by one position
  const int32_t* position_of = nullptr;  // (R)
  const int32_t* begins = nullptr;       // (R): -position_of, as Positions take it of rows that stand alone
  KeyValues kept = {};                   // of all positions before
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

  /// What Evaluate does, and see(logits) with the logits (n, V) fp32 of the rows in their order, some at a time, in
  /// memory of the device that is readable during the call, once the stream has been synchronized.
  using SeeLogits = absl::FunctionRef<absl::Status(kernels::ConstMatrix logits)>;
  virtual absl::Status EvaluateLogits(const TokenBatch& /*batch*/, const PassContext& /*context*/, float* /*losses*/,
                                      SeeLogits /*see*/) {
    return absl::UnimplementedError("this model shows no logits");
  }

  /// Keeps the keys and values of the batch's rows; `wants_logits`: logits (R, V) fp32 of each row, what LastLogits
  /// gives for the sequence up to it, on a CPU with the same bits.
  virtual absl::Status Continue(const ContinuedBatch& /*batch*/, const PassContext& /*context*/, bool /*wants_logits*/,
                                float* /*logits*/) {
    return absl::UnimplementedError("this model keeps no keys and values");
  }
};

}  // namespace holdfast
