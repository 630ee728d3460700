#pragma once
// What a saved model says of the next token, in one pass over all tokens: what a decoder with a cache is compared with.

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "models/runtime/loaded_model.h"

namespace holdfast {

/// Logits (V) of the token that follows `tokens`.
inline absl::StatusOr<std::vector<float>> NextLogits(const LoadedModel& model, absl::Span<const int32_t> tokens) {
  Microbatch microbatch;
  microbatch.batch = 1;
  microbatch.sequence = static_cast<int64_t>(tokens.size());
  microbatch.inputs.assign(tokens.begin(), tokens.end());
  microbatch.targets.assign(tokens.size(), -1);
  return model.runner->Compute(std::move(microbatch), model.config.vocab_size, *model.store,
                               [&](const Batch& batch, const PassContext& context, float* logits) {
                                 return model.model->LastLogits(TokenBatch::Of(batch), context, logits);
                               });
}

}  // namespace holdfast
