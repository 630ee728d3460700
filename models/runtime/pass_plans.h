#pragma once
// What the passes of a model need, each planned once.

#include <cstddef>
#include <cstdint>

#include "models/language_model.h"
#include "models/plan.h"

namespace holdfast {

struct PassPlans {
  PassPlan training, evaluation;
  PassPlan training_in_parts = {}, evaluation_in_parts = {};  // empty if the passes of no world are
  size_t arena_bytes = 0;  // the most that one microbatch of training or evaluation needs
  size_t arena_bytes_in_parts = 0;
  size_t scratch_bytes = 0;  // of a CPU's kernels; who knows its threads asks CpuScratchBytes
};

/// For microbatches of `batch` sequences. Sizes must be ones the model takes. `in_parts`: worlds may compute units in
/// parts.
PassPlans PlanPasses(LanguageModel& model, int64_t batch, int64_t sequence, bool in_parts = false);

}  // namespace holdfast
