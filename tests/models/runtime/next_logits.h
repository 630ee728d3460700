#pragma once
// What a saved model says of the next token, in one pass over all tokens: what a decoder with a cache is compared with.

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/base/status.h"
#include "models/plan.h"
#include "models/runtime/loaded_model.h"

namespace holdfast {

/// Logits (V) of the token that follows `tokens`. On a CPU only.
inline absl::StatusOr<std::vector<float>> NextLogits(const LoadedModel& model, absl::Span<const int32_t> tokens) {
  const TokenBatch batch{.inputs = tokens.data(), .batch = 1, .sequence = static_cast<int64_t>(tokens.size())};
  ASSIGN_OR_RETURN(Arena arena,
                   Arena::Create(*model.device, PlanLastLogits(*model.model, 1, batch.sequence).arena_bytes));
  Stream& stream = model.runner->stream();
  const PassContext context{.ops = &stream.ops(), .arena = &arena, .store = model.store.get(), .random = {}};
  std::vector<float> logits(static_cast<size_t>(model.config.vocab_size));
  RETURN_IF_ERROR(model.model->LastLogits(batch, context, logits.data()));
  RETURN_IF_ERROR(stream.Synchronize());
  return logits;
}

}  // namespace holdfast
