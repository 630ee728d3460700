#pragma once
// Runs a model over microbatches on one stream: carries arrays in and losses out. Used by training, evaluation and
// sampling alike. Training passes are queued one behind the other: nothing waits for the device until their losses are
// asked for.

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/nn/model.h"
#include "framework/train/host_batch.h"

namespace holdfast {

struct LossSum {
  double sum = 0;       // over the counted rows, in order
  int64_t counted = 0;  // of them
};

/// Thread-safety: none.
class PassRunner {
 public:
  struct Options {
    int64_t max_rows = 0;    // of one microbatch: B * T
    int64_t max_passes = 1;  // of which the losses are to wait on the device; beyond a bound they are fetched early
    size_t arena_bytes = 0;  // what the passes to be run need (models/plan.h)
    uint64_t seed = 0;       // of dropout
  };

  /// `model` and `device` must outlive the runner.
  static absl::StatusOr<std::unique_ptr<PassRunner>> Create(Model& model, Device& device, const Options& options);

  /// Forgets the losses of passes that nobody asked for: their step was given up.
  void BeginStep();
  /// Queues forward and backward; gradients of loss_scale * (sum of losses) go to `store`.
  absl::Status ForwardBackward(const HostBatch& microbatch, float loss_scale, UnitStore& store);
  /// Of all passes since BeginStep, in order. Waits for them.
  absl::StatusOr<std::vector<LossSum>> TakeLosses();
  absl::StatusOr<LossSum> Evaluate(const HostBatch& microbatch, UnitStore& store);
  /// A pass that writes `outputs` values on the device, which are brought here.
  using Pass = absl::FunctionRef<absl::Status(const Batch& batch, const PassContext& context, float* outputs)>;
  absl::StatusOr<std::vector<float>> Compute(const HostBatch& microbatch, int64_t outputs, UnitStore& store, Pass pass);

  Stream& stream() { return *stream_; }
  size_t activation_bytes() const { return arena_.peak_bytes(); }

 private:
  PassRunner(Model& model, Device& device, const Options& options, std::unique_ptr<Stream> stream, Arena arena)
      : model_(model), device_(device), options_(options), stream_(std::move(stream)), arena_(std::move(arena)) {}

  /// A batch on the device; the next pass but one takes the same memory.
  struct Inputs {
    std::vector<Buffer> arrays;
    std::shared_ptr<Event> read;  // by the last pass that used them
  };
  struct QueuedPass {
    size_t rows = 0;  // B * T
    int64_t counted = 0;
  };
  Batch Upload(const HostBatch& microbatch);
  absl::Status Queue(const HostBatch& microbatch, UnitStore& store, Pass run);
  absl::Status FetchLosses();

  Model& model_;
  Device& device_;
  Options options_;
  std::unique_ptr<Stream> stream_;
  Arena arena_;
  std::array<Inputs, 2> inputs_;
  size_t next_inputs_ = 0;
  Buffer losses_;  // (passes, max_rows)
  std::vector<QueuedPass> queued_;
  std::vector<LossSum> sums_;  // of those before
};

}  // namespace holdfast
