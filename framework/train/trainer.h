#pragma once
// Exactly one step: forward and backward over its microbatches, the sums over them, and, once somebody decided that the
// step happened, the update. Prepare changes no weight, so a step can be abandoned and done again at any moment.
//
//   HF_ASSIGN_OR_RETURN(StepResult result, trainer->Prepare(step, next_microbatch, stop));
//   ...                                     // vote, commit
//   trainer->Commit(result);                // needs no communication, cannot fail

#include <cstdint>
#include <memory>
#include <stop_token>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/config/config.h"
#include "framework/data/dataset.h"
#include "framework/optim/training_state.h"
#include "framework/parallel/resident_store.h"
#include "framework/train/pass_runner.h"

namespace holdfast {

struct TrainerOptions {
  BatchConfig batch;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  int64_t total_steps = 0;
  uint64_t seed = 0;
  size_t arena_bytes = 0;  // what one pass of the model needs (PlanTraining, PlanEvaluation)
};

struct StepResult {
  int64_t step = 0;  // from 0
  float loss = 0;    // mean over the tokens of the global batch
  float grad_norm = 0;
  double lr = 0;
};

/// Memory in use, by kind.
struct TrainerMemory {
  size_t weights = 0, gradients = 0, optimizer = 0, activations = 0, scratch = 0;
};

/// Microbatch `index` of the step at hand.
using MicrobatchSource = absl::FunctionRef<absl::StatusOr<Microbatch>(int64_t index)>;

/// Thread-safety: none.
class Trainer {
 public:
  /// `model` and `device` must outlive the trainer. Weights are initialised from options.seed.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(Model& model, Device& device, const TrainerOptions& options);

  /// Loss and gradient of step `step`. Cancelled soon after `stop` is requested; Internal, naming loss and norm, if
  /// either is not finite.
  absl::StatusOr<StepResult> Prepare(int64_t step, MicrobatchSource source, std::stop_token stop);

  /// Applies the update of the step prepared last.
  void Commit(const StepResult& result);

  /// Mean loss over microbatches 0 .. count - 1 of `source`, counting targets >= 0 only. Touches nothing of training.
  absl::StatusOr<double> Evaluate(int64_t count, MicrobatchSource source, std::stop_token stop);

  /// Logits (V) of the token that follows `tokens`.
  absl::StatusOr<std::vector<float>> NextLogits(absl::Span<const int32_t> tokens, int64_t vocab_size);

  TrainingState& state() { return state_; }
  const TrainingState& state() const { return state_; }
  TrainerMemory memory() const;

 private:
  Trainer(const ParameterLayout& layout, Device& device, const TrainerOptions& options,
          std::unique_ptr<PassRunner> runner, TrainingState state);

  float GradientNorm();

  const ParameterLayout& layout_;
  TrainerOptions options_;
  std::unique_ptr<PassRunner> runner_;
  TrainingState state_;
  ResidentStore store_;
};

}  // namespace holdfast
