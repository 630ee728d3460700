#include "framework/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "framework/base/status.h"
#include "framework/optim/schedule.h"

namespace holdfast {

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(Model& model, Device& device, const TrainerOptions& options) {
  const PassRunner::Options pass{
      .max_tokens = options.batch.microbatch_tokens(), .arena_bytes = options.arena_bytes, .seed = options.seed};
  HF_ASSIGN_OR_RETURN(auto runner, PassRunner::Create(model, device, pass));
  HF_ASSIGN_OR_RETURN(TrainingState state,
                      TrainingState::Create(model.layout(), model.compute_dtype(), device, runner->stream().ops()));
  state.weights().Initialize(options.seed);
  return std::unique_ptr<Trainer>(new Trainer(model.layout(), device, options, std::move(runner), std::move(state)));
}

Trainer::Trainer(const ParameterLayout& layout, Device& device, const TrainerOptions& options,
                 std::unique_ptr<PassRunner> runner, TrainingState state)
    : layout_(layout),
      options_(options),
      runner_(std::move(runner)),
      state_(std::move(state)),
      store_(layout, state_.weights().compute(), device, runner_->stream().ops()) {}

absl::StatusOr<StepResult> Trainer::Prepare(int64_t step, MicrobatchSource source, std::stop_token stop) {
  const int64_t tokens = options_.batch.step_tokens();
  store_.BeginStep(std::move(stop));
  ScalarSummationTree loss;
  for (int64_t i = 0; i < options_.batch.microbatches; ++i) {
    HF_ASSIGN_OR_RETURN(const Microbatch microbatch, source(i));
    HF_ASSIGN_OR_RETURN(const LossSum sum,
                        runner_->ForwardBackward(microbatch, 1.0f / static_cast<float>(tokens), store_));
    loss.Add(sum.sum);
  }

  StepResult result;
  result.step = step;
  result.loss = static_cast<float>(loss.Sum() / static_cast<double>(tokens));
  result.grad_norm = GradientNorm();
  result.lr = LearningRate(options_.optimizer, options_.schedule, step, options_.total_steps);
  if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm)) {
    return absl::InternalError(absl::StrCat("step ", step + 1, " diverged: loss ", result.loss, ", gradient norm ",
                                            result.grad_norm,
                                            "; lower optimizer.lr, raise schedule.warmup_steps or check the data"));
  }
  return result;
}

float Trainer::GradientNorm() {
  double total = 0;
  for (int u = 0; u < layout_.num_units(); ++u) {
    const Unit& unit = layout_.units()[static_cast<size_t>(u)];
    std::vector<int64_t> offsets{0};
    for (const Chunk& chunk :
         layout_.chunks().subspan(static_cast<size_t>(unit.first_chunk), static_cast<size_t>(unit.num_chunks))) {
      offsets.push_back(offsets.back() + chunk.elements);
    }
    std::vector<double> sums(static_cast<size_t>(unit.num_chunks));
    runner_->stream().ops().ChunkSumSquares(sums.data(), store_.Gradient(u), offsets.data(), unit.num_chunks);
    runner_->stream().Synchronize();
    for (const double sum : sums) total += sum;
  }
  return static_cast<float>(std::sqrt(total));
}

void Trainer::Commit(const StepResult& result) {
  const UpdateScalars scalars = ComputeUpdateScalars(options_.optimizer, result.lr, result.step, result.grad_norm);
  for (int u = 0; u < layout_.num_units(); ++u) {
    state_.ApplyAdamW(u, store_.Gradient(u), options_.optimizer, scalars);
  }
  runner_->stream().Synchronize();
}

absl::StatusOr<double> Trainer::Evaluate(int64_t count, MicrobatchSource source, std::stop_token stop) {
  store_.BeginStep(std::move(stop));
  double sum = 0;
  int64_t tokens = 0;
  for (int64_t i = 0; i < count; ++i) {
    HF_ASSIGN_OR_RETURN(const Microbatch microbatch, source(i));
    HF_ASSIGN_OR_RETURN(const LossSum loss, runner_->Evaluate(microbatch, store_));
    sum += loss.sum;
    tokens += loss.tokens;
  }
  if (tokens == 0) return absl::FailedPreconditionError("the validation set has no whole sample");
  return sum / static_cast<double>(tokens);
}

absl::StatusOr<std::vector<float>> Trainer::NextLogits(absl::Span<const int32_t> tokens, int64_t vocab_size) {
  store_.BeginStep({});
  return runner_->NextLogits(tokens, vocab_size, store_);
}

TrainerMemory Trainer::memory() const {
  return {.weights = state_.weights().bytes(),
          .gradients = store_.gradient_bytes(),
          .optimizer = state_.optimizer_bytes(),
          .activations = runner_->activation_bytes(),
          .scratch = runner_->stream().scratch_bytes()};
}

}  // namespace holdfast
