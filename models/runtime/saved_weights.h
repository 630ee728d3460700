#pragma once
// Weights of a model as a saved model directory, and back.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/config/config.h"
#include "framework/nn/layout.h"
#include "framework/train/weight_exchange.h"

namespace holdfast {

/// Writes the weights that `read` gives, and the tokenizer of `config`, as a saved model.
absl::Status SaveWeights(const std::string& directory, const Config& config, const ParameterLayout& layout,
                         const ReadWeightsFn& read);

/// All values of a saved model whose shape must be that of `model`, in the order of `layout`. If the saved one has no
/// router_bias, and `model` has, biases are 0.
absl::StatusOr<std::vector<float>> LoadSavedWeights(const std::string& directory, const ModelConfig& model,
                                                    const ParameterLayout& layout);

}  // namespace holdfast
