#include "models/runtime/pass_plans.h"

#include <algorithm>

namespace holdfast {

PassPlans PlanPasses(LanguageModel& model, int64_t batch, int64_t sequence, bool in_parts) {
  PassPlans plans{.training = PlanTraining(model, batch, sequence),
                  .evaluation = PlanEvaluation(model, batch, sequence)};
  plans.arena_bytes = std::max(plans.training.arena_bytes, plans.evaluation.arena_bytes);
  if (!in_parts) return plans;
  plans.training_in_parts = PlanTraining(model, batch, sequence, in_parts);
  plans.evaluation_in_parts = PlanEvaluation(model, batch, sequence, in_parts);
  plans.arena_bytes_in_parts = std::max(plans.training_in_parts.arena_bytes, plans.evaluation_in_parts.arena_bytes);
  return plans;
}

}  // namespace holdfast
