#pragma once
// The checks of a model's keys among each other (validate.h). Pure.

#include <vector>

#include "framework/config/validate.h"

namespace holdfast {

/// Of a model whose keys are each within their own range, wherever it comes from.
std::vector<Violation> ModelViolations(const ModelConfig& model);
/// Of parametrization and what belongs to it, which saved models do not say.
std::vector<Violation> ParametrizationViolations(const ModelConfig& model);

}  // namespace holdfast
