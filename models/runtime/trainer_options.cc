#include "models/runtime/trainer_options.h"

#include <algorithm>
#include <utility>

#include "framework/base/status.h"
#include "models/runtime/initial_adapters.h"
#include "models/runtime/initial_weights.h"
#include "models/runtime/pass_plans.h"

namespace holdfast {

absl::StatusOr<TrainerOptions> MakeTrainerOptions(const Config& config, LanguageModel& model) {
  const bool in_parts = MovesTokens(config);
  PassPlans plans = PlanPasses(model, config.batch.microbatch_size, config.batch.sequence_length, in_parts);
  TrainerOptions options{.batch = config.batch,
                         .optimizer = config.optimizer,
                         .schedule = config.schedule,
                         .parallel = config.parallel,
                         .total_steps = config.schedule.length(config.train.steps),
                         .seed = config.run.seed,
                         .arena_bytes = plans.arena_bytes,
                         .training_schedule = std::move(plans.training.schedule),
                         .evaluation_schedule = std::move(plans.evaluation.schedule),
                         .transfer_timeout = std::chrono::milliseconds(config.elastic.collective_timeout_ms),
                         .cpu_threads = static_cast<int>(config.train.threads)};
  if (in_parts) {
    options.in_parts.emplace(TrainerOptions::InParts{
        .arena_bytes = plans.arena_bytes_in_parts,
        .training_schedule = std::move(plans.training_in_parts.schedule),
        .evaluation_schedule = std::move(plans.evaluation_in_parts.schedule),
        .second_arena_bytes = config.parallel.overlap_microbatches ? plans.training_in_parts.arena_bytes : 0});
  }
  options.begins_random = config.lora.rank > 0 && config.lora.init_from.empty();
  if (!config.train.init_from.empty()) {
    ASSIGN_OR_RETURN(options.initial_weights, OpenInitialWeights(config, model.layout()));
    if (!config.lora.init_from.empty()) {
      ASSIGN_OR_RETURN(InitialAdapters adapters,
                       OpenInitialAdapters(config, model.layout(), std::move(options.initial_weights)));
      options.initial_weights = std::move(adapters.read);
      options.free_initial_weights = std::move(adapters.free);
    }
  } else if (config.trains_part()) {  // for `tune`, which times products
    options.initial_weights = [](int64_t, absl::Span<float> out) {
      std::fill(out.begin(), out.end(), 0.0f);
      return absl::OkStatus();
    };
  }
  return options;
}

}  // namespace holdfast
