#pragma once
// Curves of what steps say of themselves beside their loss (framework/base/figures.h).

#include <string>
#include <vector>

#include "framework/metrics/plot.h"
#include "framework/metrics/run_directory.h"

namespace holdfast {

/// Of the list called `figure`, over steps: a curve for each of its values ("layer 1", ...), or of more than six the
/// highest, the median and the lowest of each step. Empty if no step has it.
std::vector<Curve> FigureCurves(const std::vector<StepMetrics>& steps, const std::string& figure);

}  // namespace holdfast
