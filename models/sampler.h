#pragma once
// Text generation by ancestral sampling.

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace holdfast {

struct SampleOptions {
  int64_t tokens = 200;      // to generate
  double temperature = 0.8;  // 0 = always the likeliest token
  int64_t top_k = 40;        // sample among the k likeliest; 0 = all
  double top_p = 1;  // of those among the likeliest that have this much of their probability together, at least one
  uint64_t seed = 1;
  int64_t context = 1024;  // the model sees at most this many of the last tokens
};

/// Logits (V) of the token after `tokens`.
using NextLogits = absl::FunctionRef<absl::StatusOr<std::vector<float>>(absl::Span<const int32_t> tokens)>;

/// The prompt's continuation: options.tokens tokens, fewer only if `accept(token)` returns false (end of text, a stop).
/// The same options and logits give the same tokens. `prompt` must not be empty.
absl::StatusOr<std::vector<int32_t>> GenerateTokens(NextLogits next_logits, absl::Span<const int32_t> prompt,
                                                    const SampleOptions& options,
                                                    absl::FunctionRef<bool(int32_t token)> accept);

}  // namespace holdfast
