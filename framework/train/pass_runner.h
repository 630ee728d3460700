#pragma once
// Runs a model over microbatches on one stream: carries tokens in and losses out. Used by training, evaluation and
// sampling alike.

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/data/dataset.h"
#include "framework/nn/model.h"

namespace holdfast {

struct LossSum {
  double sum = 0;      // over the counted tokens, in order
  int64_t tokens = 0;  // counted: target >= 0
};

/// Thread-safety: none.
class PassRunner {
 public:
  struct Options {
    int64_t max_tokens = 0;  // of one microbatch: B * T
    size_t arena_bytes = 0;  // what the passes to be run need (models/plan.h)
    uint64_t seed = 0;       // of dropout
  };

  /// `model` and `device` must outlive the runner.
  static absl::StatusOr<std::unique_ptr<PassRunner>> Create(Model& model, Device& device, const Options& options);

  /// Forward and backward; gradients of loss_scale * (sum of losses) go to `store`.
  absl::StatusOr<LossSum> ForwardBackward(const Microbatch& microbatch, float loss_scale, UnitStore& store);
  absl::StatusOr<LossSum> Evaluate(const Microbatch& microbatch, UnitStore& store);
  /// Logits (V) of the token that follows `tokens`.
  absl::StatusOr<std::vector<float>> NextLogits(absl::Span<const int32_t> tokens, int64_t vocab_size, UnitStore& store);

  Stream& stream() { return *stream_; }
  size_t activation_bytes() const { return arena_.peak_bytes(); }

 private:
  PassRunner(Model& model, Device& device, const Options& options, std::unique_ptr<Stream> stream, Arena arena)
      : model_(model), device_(device), options_(options), stream_(std::move(stream)), arena_(std::move(arena)) {}

  TokenBatch Upload(const Microbatch& microbatch);
  PassContext Context(UnitStore& store);
  absl::StatusOr<LossSum> Download(const Microbatch& microbatch);

  Model& model_;
  Device& device_;
  Options options_;
  std::unique_ptr<Stream> stream_;
  Arena arena_;
  Buffer inputs_, targets_, losses_;  // one microbatch on the device
};

}  // namespace holdfast
