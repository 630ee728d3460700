#include "framework/train/pass_runner.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr int64_t kMostQueued = 64;  // passes; fetching losses costs one wait, little against so many

}  // namespace

absl::StatusOr<std::unique_ptr<PassRunner>> PassRunner::Create(Model& model, Device& device, const Options& options) {
  HF_ASSIGN_OR_RETURN(Arena arena, Arena::Create(device, options.arena_bytes));
  HF_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, device.CreateStream());
  std::unique_ptr<PassRunner> runner(new PassRunner(model, device, options, std::move(stream), std::move(arena)));
  const auto tokens = static_cast<size_t>(options.max_tokens);
  for (Inputs& inputs : runner->inputs_) {
    HF_ASSIGN_OR_RETURN(inputs.inputs, Buffer::Allocate(device, tokens * sizeof(int32_t), "tokens"));
    HF_ASSIGN_OR_RETURN(inputs.targets, Buffer::Allocate(device, tokens * sizeof(int32_t), "tokens"));
  }
  const auto passes = static_cast<size_t>(std::clamp<int64_t>(options.max_passes, 1, kMostQueued));
  HF_ASSIGN_OR_RETURN(runner->losses_, Buffer::Allocate(device, passes * tokens * sizeof(float), "losses"));
  return runner;
}

TokenBatch PassRunner::Upload(const Microbatch& microbatch) {
  Inputs& to = inputs_[next_inputs_];
  HF_CHECK(microbatch.inputs.size() * sizeof(int32_t) <= to.inputs.bytes());
  WaitFor(to.read);
  device_.CopyFromHost(to.inputs.data(), microbatch.inputs.data(), microbatch.inputs.size() * sizeof(int32_t));
  device_.CopyFromHost(to.targets.data(), microbatch.targets.data(), microbatch.targets.size() * sizeof(int32_t));
  return {to.inputs.as<int32_t>(), to.targets.as<int32_t>(), microbatch.batch, microbatch.sequence};
}

absl::Status PassRunner::Queue(const Microbatch& microbatch, UnitStore& store, RunModel run) {
  const size_t row_bytes = static_cast<size_t>(options_.max_tokens) * sizeof(float);
  if ((queued_.size() + 1) * row_bytes > losses_.bytes()) HF_RETURN_IF_ERROR(FetchLosses());
  const TokenBatch batch = Upload(microbatch);
  PassContext context{.ops = &stream_->ops(), .arena = &arena_, .store = &store, .random = {.seed = options_.seed}};
  context.random.step = microbatch.step;
  context.random.microbatch = microbatch.index;
  ArenaScope scope(arena_);
  const absl::Status status =
      run(batch, context, losses_.as<float>() + static_cast<int64_t>(queued_.size()) * options_.max_tokens);
  inputs_[next_inputs_].read = stream_->Record();  // also of a pass that was given up
  next_inputs_ = (next_inputs_ + 1) % inputs_.size();
  HF_RETURN_IF_ERROR(status);
  const auto counted =
      std::count_if(microbatch.targets.begin(), microbatch.targets.end(), [](int32_t target) { return target >= 0; });
  queued_.push_back({microbatch.inputs.size(), counted});
  return absl::OkStatus();
}

absl::Status PassRunner::FetchLosses() {
  HF_RETURN_IF_ERROR(stream_->Synchronize());
  std::vector<float> losses(queued_.size() * static_cast<size_t>(options_.max_tokens));
  device_.CopyToHost(losses.data(), losses_.data(), losses.size() * sizeof(float));
  const float* row = losses.data();
  for (const QueuedPass& pass : queued_) {
    sums_.push_back({.sum = std::accumulate(row, row + pass.rows, 0.0), .tokens = pass.tokens});
    row += options_.max_tokens;
  }
  queued_.clear();
  return absl::OkStatus();
}

void PassRunner::BeginStep() {
  queued_.clear();
  sums_.clear();
}

absl::Status PassRunner::ForwardBackward(const Microbatch& microbatch, float loss_scale, UnitStore& store) {
  return Queue(microbatch, store, [&](const TokenBatch& batch, PassContext context, float* losses) {
    context.loss_scale = loss_scale;
    return model_.ForwardBackward(batch, context, losses);
  });
}

absl::StatusOr<std::vector<LossSum>> PassRunner::TakeLosses() {
  HF_RETURN_IF_ERROR(FetchLosses());
  return std::exchange(sums_, {});
}

absl::StatusOr<LossSum> PassRunner::Evaluate(const Microbatch& microbatch, UnitStore& store) {
  BeginStep();
  HF_RETURN_IF_ERROR(Queue(microbatch, store, [&](const TokenBatch& batch, const PassContext& context, float* losses) {
    return model_.Evaluate(batch, context, losses);
  }));
  HF_ASSIGN_OR_RETURN(const std::vector<LossSum> losses, TakeLosses());
  return losses.front();
}

absl::StatusOr<std::vector<float>> PassRunner::NextLogits(absl::Span<const int32_t> tokens, int64_t vocab_size,
                                                          UnitStore& store) {
  Microbatch microbatch;
  microbatch.batch = 1;
  microbatch.sequence = static_cast<int64_t>(tokens.size());
  microbatch.inputs.assign(tokens.begin(), tokens.end());
  microbatch.targets.assign(tokens.size(), -1);
  BeginStep();
  ArenaScope scope(arena_);
  const Tensor logits = arena_.Allocate(DType::kF32, {vocab_size});
  HF_RETURN_IF_ERROR(Queue(microbatch, store, [&](const TokenBatch& batch, const PassContext& context, float*) {
    return model_.LastLogits(batch, context, logits.f32());
  }));
  BeginStep();  // there are no losses to be fetched
  HF_RETURN_IF_ERROR(stream_->Synchronize());
  std::vector<float> result(static_cast<size_t>(vocab_size));
  device_.CopyToHost(result.data(), logits.data, result.size() * sizeof(float));
  return result;
}

}  // namespace holdfast
