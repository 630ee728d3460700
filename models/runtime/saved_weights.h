#pragma once
// Weights of a model as a saved model directory (back: initial_weights.h).

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "framework/config/config.h"
#include "framework/nn/layout.h"
#include "framework/train/weight_exchange.h"

namespace holdfast {

/// Writes the weights that `read` gives, and the tokenizer of `config`, as a saved model. The chat template of the one
/// that it replaces stays, unless the tokenizer brings its own. `may_replace`: as in SavedModelFiles.
absl::Status SaveWeights(const std::string& directory, const Config& config, const ParameterLayout& layout,
                         const ReadWeightsFn& read, const std::function<absl::Status()>& may_replace = nullptr);

}  // namespace holdfast
