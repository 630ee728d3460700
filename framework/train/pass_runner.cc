#include "framework/train/pass_runner.h"

#include <utility>

#include "framework/base/status.h"

namespace holdfast {

absl::StatusOr<std::unique_ptr<PassRunner>> PassRunner::Create(Model& model, Device& device, const Options& options) {
  HF_ASSIGN_OR_RETURN(Arena arena, Arena::Create(device, options.arena_bytes));
  HF_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, device.CreateStream());
  std::unique_ptr<PassRunner> runner(new PassRunner(model, device, options, std::move(stream), std::move(arena)));
  const auto tokens = static_cast<size_t>(options.max_tokens);
  HF_ASSIGN_OR_RETURN(runner->inputs_, Buffer::Allocate(device, tokens * sizeof(int32_t), "tokens"));
  HF_ASSIGN_OR_RETURN(runner->targets_, Buffer::Allocate(device, tokens * sizeof(int32_t), "tokens"));
  HF_ASSIGN_OR_RETURN(runner->losses_, Buffer::Allocate(device, tokens * sizeof(float), "losses"));
  return runner;
}

TokenBatch PassRunner::Upload(const Microbatch& microbatch) {
  HF_CHECK(microbatch.inputs.size() * sizeof(int32_t) <= inputs_.bytes());
  device_.CopyFromHost(inputs_.data(), microbatch.inputs.data(), microbatch.inputs.size() * sizeof(int32_t));
  device_.CopyFromHost(targets_.data(), microbatch.targets.data(), microbatch.targets.size() * sizeof(int32_t));
  return {inputs_.as<int32_t>(), targets_.as<int32_t>(), microbatch.batch, microbatch.sequence};
}

PassContext PassRunner::Context(UnitStore& store) {
  return {.ops = &stream_->ops(), .arena = &arena_, .store = &store, .random = {.seed = options_.seed}};
}

absl::StatusOr<LossSum> PassRunner::Download(const Microbatch& microbatch) {
  HF_RETURN_IF_ERROR(stream_->Synchronize());
  std::vector<float> losses(microbatch.inputs.size());
  device_.CopyToHost(losses.data(), losses_.data(), losses.size() * sizeof(float));
  LossSum result;
  for (size_t i = 0; i < losses.size(); ++i) {
    result.sum += double{losses[i]};
    result.tokens += microbatch.targets[i] >= 0 ? 1 : 0;
  }
  return result;
}

absl::StatusOr<LossSum> PassRunner::ForwardBackward(const Microbatch& microbatch, float loss_scale, UnitStore& store) {
  const TokenBatch batch = Upload(microbatch);
  PassContext context = Context(store);
  context.random.step = microbatch.step;
  context.random.microbatch = microbatch.index;
  context.loss_scale = loss_scale;
  ArenaScope scope(arena_);
  HF_RETURN_IF_ERROR(model_.ForwardBackward(batch, context, losses_.as<float>()));
  return Download(microbatch);
}

absl::StatusOr<LossSum> PassRunner::Evaluate(const Microbatch& microbatch, UnitStore& store) {
  const TokenBatch batch = Upload(microbatch);
  ArenaScope scope(arena_);
  HF_RETURN_IF_ERROR(model_.Evaluate(batch, Context(store), losses_.as<float>()));
  return Download(microbatch);
}

absl::StatusOr<std::vector<float>> PassRunner::NextLogits(absl::Span<const int32_t> tokens, int64_t vocab_size,
                                                          UnitStore& store) {
  Microbatch microbatch;
  microbatch.batch = 1;
  microbatch.sequence = static_cast<int64_t>(tokens.size());
  microbatch.inputs.assign(tokens.begin(), tokens.end());
  microbatch.targets.assign(tokens.size(), -1);
  const TokenBatch batch = Upload(microbatch);
  ArenaScope scope(arena_);
  const Tensor logits = arena_.Allocate(DType::kF32, {vocab_size});
  HF_RETURN_IF_ERROR(model_.LastLogits(batch, Context(store), logits.f32()));
  HF_RETURN_IF_ERROR(stream_->Synchronize());
  std::vector<float> result(static_cast<size_t>(vocab_size));
  device_.CopyToHost(result.data(), logits.data, result.size() * sizeof(float));
  return result;
}

}  // namespace holdfast
