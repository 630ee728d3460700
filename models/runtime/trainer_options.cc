#include "models/runtime/trainer_options.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "framework/base/status.h"
#include "models/runtime/pass_plans.h"
#include "models/runtime/saved_weights.h"

namespace holdfast {

absl::StatusOr<TrainerOptions> MakeTrainerOptions(const Config& config, LanguageModel& model) {
  const bool in_parts = MovesTokens(config);
  PassPlans plans =
      PlanPasses(model, config.model.vocab_size, config.batch.microbatch_size, config.batch.sequence_length, in_parts);
  TrainerOptions options{.batch = config.batch,
                         .optimizer = config.optimizer,
                         .schedule = config.schedule,
                         .parallel = config.parallel,
                         .total_steps = config.train.steps,
                         .seed = config.run.seed,
                         .arena_bytes = plans.arena_bytes,
                         .training_schedule = std::move(plans.training.schedule),
                         .evaluation_schedule = std::move(plans.evaluation.schedule),
                         .transfer_timeout = std::chrono::milliseconds(config.elastic.collective_timeout_ms),
                         .cpu_threads = static_cast<int>(config.train.threads)};
  if (in_parts) {
    options.in_parts = {.arena_bytes = plans.arena_bytes_in_parts,
                        .training_schedule = std::move(plans.training_in_parts.schedule),
                        .evaluation_schedule = std::move(plans.evaluation_in_parts.schedule)};
  }
  if (config.train.init_from.empty()) return options;
  ASSIGN_OR_RETURN(std::vector<float> values, LoadSavedWeights(config.train.init_from, config.model, model.layout()));
  options.initial_weights = [values = std::move(values)](int64_t first, absl::Span<float> out) {
    std::copy_n(values.begin() + first, out.size(), out.begin());
    return absl::OkStatus();
  };
  return options;
}

}  // namespace holdfast
