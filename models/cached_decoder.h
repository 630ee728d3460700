#pragma once
// A language model that says token by token what follows: keys and values of what came before are kept, so that a token
// costs one row of every product. A sequence that begins anew keeps those of the tokens that it begins with as before:
// the earlier turns of a conversation, the prompt of the sample before. On a CPU its logits have the bits of
// LanguageModel::LastLogits over the whole sequence, whatever other sequences are there or were there before.

#include <memory>
#include <vector>

#include "framework/config/config.h"
#include "framework/tensor/device.h"
#include "framework/tensor/tensor.h"
#include "models/language_model.h"
#include "models/sampler.h"

namespace holdfast {

/// Of no use after an error. Thread-safety: none.
class CachedDecoder final : public Decoder {
 public:
  struct Options {
    int64_t sequences = 1;  // at a time
    int64_t capacity = 0;   // tokens of each, at most what the model takes
  };

  /// All arguments must outlive it.
  static absl::StatusOr<std::unique_ptr<CachedDecoder>> Create(LanguageModel& model, const ModelConfig& config,
                                                               Device& device, Stream& stream, UnitStore& store,
                                                               const Options& options);

  int64_t sequences() const override { return kept_.sequences; }
  int64_t capacity() const override { return kept_.capacity; }
  absl::Status Begin(absl::Span<const Beginning> beginnings) override;
  absl::StatusOr<absl::Span<const float>> Add(absl::Span<const Token> tokens) override;

 private:
  CachedDecoder(LanguageModel& model, int64_t vocab_size, Device& device, Stream& stream, UnitStore& store)
      : model_(model), vocab_size_(vocab_size), device_(device), stream_(stream), store_(store) {}

  /// Puts a token at the end of a sequence into the batch to come.
  void Push(int64_t sequence, int32_t token);
  /// Runs that batch.
  absl::Status Run(bool wants_logits);

  LanguageModel& model_;
  int64_t vocab_size_;
  Device& device_;
  Stream& stream_;
  UnitStore& store_;
  int64_t rows_max_ = 0;  // of a batch
  KeyValues kept_;
  Arena arena_ = Arena::Counting();
  Buffer kept_memory_, rows_memory_, logits_memory_;
  std::vector<std::vector<int32_t>> held_;                            // tokens of each sequence
  std::vector<int32_t> tokens_, sequence_of_, position_of_, begins_;  // of the batch
  std::vector<float> logits_;                                         // of a device whose memory the CPU cannot read
};

}  // namespace holdfast
