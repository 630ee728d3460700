#pragma once
// What a pass will cost, measured by running it without data: every operation only counts, the arena only adds up. So
// the plan cannot disagree with the pass.
//
//   Arena arena = Arena::Create(device, PlanTraining(*model, batch, sequence).arena_bytes).value();

#include <cstdint>

#include "framework/config/config.h"
#include "framework/nn/unit_schedule.h"
#include "kernels/ops.h"
#include "models/language_model.h"

namespace holdfast {

struct PassPlan {
  size_t arena_bytes = 0;  // peak, exactly
  double flops = 0;        // of matrix products, of attention what queries see
  UnitSchedule schedule;   // the pass's calls of its UnitStore
};

/// Sizes must be ones the model takes. `in_parts`: with a PartStore (whose products are not counted: they are what the
/// data makes them).
PassPlan PlanTraining(Model& model, int64_t batch, int64_t sequence, bool in_parts = false);
PassPlan PlanEvaluation(Model& model, int64_t batch, int64_t sequence, bool in_parts = false);
/// Both of these without data, on operations that read and write nothing.
void DryPasses(Model& model, int64_t batch, int64_t sequence, kernels::Ops& ops);
PassPlan PlanLastLogits(LanguageModel& model, int64_t batch, int64_t sequence);
/// Of LanguageModel::Continue; its attention is not counted, for it depends on positions.
PassPlan PlanContinuing(LanguageModel& model, int64_t rows, bool wants_logits);

/// Parameters of all experts, shared ones not counted.
int64_t ExpertParameters(const ModelConfig& config);

/// Parameters that are used for a token: of the experts those of experts_per_token, of all else everything.
int64_t ActiveParameters(const ModelConfig& config);

/// Whether the tokens of a run travel to the experts where its weights are sharded: parallel.experts, where auto is
/// what sends fewer bytes. Not where a part of the model is frozen.
bool MovesTokens(const Config& config);
/// Puts that in the place of auto. It follows from elastic.workers, which may differ from process to process. Where no
/// tokens travel no microbatches take turns either: with that said, what was resolved is a valid config.
void ResolveExpertPlacement(Config* config);

/// FLOPs per token that model FLOPs utilisation counts: 6 N + 12 L H D T' (Chowdhery et al. 2022, PaLM, appendix B):
/// forward and backward, nothing for recomputation. N is the number of parameters that multiply every token: the active
/// ones but for tables that are only looked up (positions; tokens unless they are also the tied head). T' is the
/// sequence's length T, as if attention were not causal; of a window W < T the part of T x T that is left of it:
/// 2 W - 1 - W (W - 1) / T.
double FlopsPerTokenOf(const ModelConfig& config, int64_t sequence);
/// The same where only what is not `frozen` is trained, adapters of `layout` among it: of the three products that a
/// matrix takes (forward, and backward for the input and for itself) a frozen one has no gradient of its own, and below
/// the lowest unit of which something is trained nothing goes back. With adapters beside all layers about 4 N.
double FlopsPerTokenOf(const ModelConfig& config, int64_t sequence, const ParameterLayout& layout,
                       absl::FunctionRef<bool(const ParameterSpec&)> frozen);

}  // namespace holdfast
