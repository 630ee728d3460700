#include "models/runtime/pass_plans.h"

#include <algorithm>

namespace holdfast {
namespace {

size_t SamplingArenaBytes(LanguageModel& model, int64_t vocab_size, int64_t sequence) {
  const size_t logits = (static_cast<size_t>(vocab_size) * sizeof(float) + 63) / 64 * 64;
  return PlanLastLogits(model, 1, sequence).arena_bytes + logits;
}

}  // namespace

PassPlans PlanPasses(LanguageModel& model, int64_t vocab_size, int64_t batch, int64_t sequence, bool in_parts) {
  PassPlans plans{.training = PlanTraining(model, batch, sequence),
                  .evaluation = PlanEvaluation(model, batch, sequence)};
  const size_t sampling = SamplingArenaBytes(model, vocab_size, sequence);
  plans.arena_bytes = std::max({plans.training.arena_bytes, plans.evaluation.arena_bytes, sampling});
  if (!in_parts) return plans;
  plans.training_in_parts = PlanTraining(model, batch, sequence, in_parts);
  plans.evaluation_in_parts = PlanEvaluation(model, batch, sequence, in_parts);
  plans.arena_bytes_in_parts =
      std::max({plans.training_in_parts.arena_bytes, plans.evaluation_in_parts.arena_bytes, sampling});
  return plans;
}

size_t EvaluationArenaBytes(LanguageModel& model, int64_t vocab_size, int64_t batch, int64_t sequence) {
  return std::max(PlanEvaluation(model, batch, sequence).arena_bytes, SamplingArenaBytes(model, vocab_size, sequence));
}

}  // namespace holdfast
