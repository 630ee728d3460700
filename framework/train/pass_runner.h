#pragma once
// Runs a model over microbatches on one stream: carries tokens in and losses out. Used by training, evaluation and
// sampling alike. Training passes are queued one behind the other: nothing waits for the device until their losses are
// asked for.

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
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
    int64_t max_passes = 1;  // of which the losses are to wait on the device; beyond a bound they are fetched early
    size_t arena_bytes = 0;  // what the passes to be run need (models/plan.h)
    uint64_t seed = 0;       // of dropout
  };

  /// `model` and `device` must outlive the runner.
  static absl::StatusOr<std::unique_ptr<PassRunner>> Create(Model& model, Device& device, const Options& options);

  /// Forgets the losses of passes that nobody asked for: their step was given up.
  void BeginStep();
  /// Queues forward and backward; gradients of loss_scale * (sum of losses) go to `store`.
  absl::Status ForwardBackward(const Microbatch& microbatch, float loss_scale, UnitStore& store);
  /// Of all passes since BeginStep, in order. Waits for them.
  absl::StatusOr<std::vector<LossSum>> TakeLosses();
  absl::StatusOr<LossSum> Evaluate(const Microbatch& microbatch, UnitStore& store);
  /// Logits (V) of the token that follows `tokens`.
  absl::StatusOr<std::vector<float>> NextLogits(absl::Span<const int32_t> tokens, int64_t vocab_size, UnitStore& store);

  Stream& stream() { return *stream_; }
  size_t activation_bytes() const { return arena_.peak_bytes(); }

 private:
  PassRunner(Model& model, Device& device, const Options& options, std::unique_ptr<Stream> stream, Arena arena)
      : model_(model), device_(device), options_(options), stream_(std::move(stream)), arena_(std::move(arena)) {}

  /// Tokens of a pass on the device; the next pass but one takes the same memory.
  struct Inputs {
    Buffer inputs, targets;
    std::shared_ptr<Event> read;  // by the last pass that used them
  };
  struct QueuedPass {
    size_t rows = 0;     // B * T
    int64_t tokens = 0;  // counted
  };
  using RunModel = absl::FunctionRef<absl::Status(const TokenBatch& batch, const PassContext& context, float* losses)>;

  TokenBatch Upload(const Microbatch& microbatch);
  absl::Status Queue(const Microbatch& microbatch, UnitStore& store, RunModel run);
  absl::Status FetchLosses();

  Model& model_;
  Device& device_;
  Options options_;
  std::unique_ptr<Stream> stream_;
  Arena arena_;
  std::array<Inputs, 2> inputs_;
  size_t next_inputs_ = 0;
  Buffer losses_;  // (passes, max_tokens)
  std::vector<QueuedPass> queued_;
  std::vector<LossSum> sums_;  // of those before
};

}  // namespace holdfast
