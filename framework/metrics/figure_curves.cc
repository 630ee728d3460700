#include "framework/metrics/figure_curves.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"

namespace holdfast {
namespace {

constexpr size_t kMaxCurves = 6;  // that colours tell apart

const std::vector<double>* ValuesOf(const StepMetrics& step, const std::string& figure) {
  const auto found =
      std::find_if(step.figures.begin(), step.figures.end(), [&](const Figure& f) { return f.name == figure; });
  return found == step.figures.end() || found->values.empty() ? nullptr : &found->values;
}

/// Highest, median and lowest.
std::vector<double> Spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const double median = (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
  return {values.back(), median, values.front()};
}

}  // namespace

std::vector<Curve> FigureCurves(const std::vector<StepMetrics>& steps, const std::string& figure) {
  size_t most = 0;
  for (const StepMetrics& step : steps) {
    if (const auto* values = ValuesOf(step, figure); values != nullptr) most = std::max(most, values->size());
  }
  const bool spread = most > kMaxCurves;
  std::vector<Curve> curves(spread ? 3 : most);
  for (size_t i = 0; i < curves.size(); ++i) curves[i].label = absl::StrCat("layer ", i + 1);
  if (spread) curves[0].label = "highest layer", curves[1].label = "median", curves[2].label = "lowest";
  for (const StepMetrics& step : steps) {
    const std::vector<double>* values = ValuesOf(step, figure);
    if (values == nullptr) continue;
    const std::vector<double> shown = spread ? Spread(*values) : *values;
    for (size_t i = 0; i < curves.size(); ++i) {
      curves[i].x.push_back(static_cast<double>(step.step));
      curves[i].y.push_back(i < shown.size() ? shown[i] : std::numeric_limits<double>::quiet_NaN());
    }
  }
  return curves;
}

}  // namespace holdfast
