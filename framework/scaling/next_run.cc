#include "framework/scaling/next_run.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

#include "framework/base/status.h"

namespace holdfast {
namespace {

using Information = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, 0, kMaxValues, kMaxValues>;
using Gradient = Eigen::Matrix<double, Eigen::Dynamic, 1, 0, kMaxValues, 1>;

Gradient GradientAt(const Law& law, const LogSize& size) {
  std::array<double, kMaxValues> derivatives;
  law.LogLoss(size, &derivatives);
  return Eigen::Map<const Eigen::VectorXd>(derivatives.data(), ShapeOf(law.form).values());
}

/// Powers of two times the smallest, from half of it to four times the largest.
std::vector<double> Steps(const std::vector<double>& values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  std::vector<double> steps;
  for (double step = *low / 2; step <= *high * 4 * 1.001; step *= 2) steps.push_back(step);
  return steps;
}

}  // namespace

absl::StatusOr<std::vector<NextRun>> NextRuns(const Fit& fit, const NextRunOptions& options) {
  const RunSize& target = options.target;
  RETURN_IF_ERROR(Annotate(
      CheckObservation({.name = "", .size = target, .flops = 1, .loss = 1, .learning_rate = {}, .batch_tokens = {}}),
      "the target"));
  Information information = Information::Zero(ShapeOf(fit.options.form).values(), ShapeOf(fit.options.form).values());
  std::vector<double> sizes, tokens;
  for (const Observation& run : fit.runs) {
    const Gradient gradient = GradientAt(fit.law, LogSize(run.size));
    information += gradient * gradient.transpose();
    sizes.push_back(run.size.active);
    tokens.push_back(run.size.tokens);
  }
  // Without units: values whose derivatives are of any size count alike.
  const Gradient scale = information.diagonal().cwiseSqrt().cwiseInverse();
  const Eigen::FullPivLU<Information> solver(scale.asDiagonal() * information * scale.asDiagonal());
  if (!scale.allFinite() || solver.rcond() < 1e-14) {
    return absl::InvalidArgumentError(
        "the runs do not determine all values of the law: make runs of other sizes first");
  }
  const auto solved = [&](const Gradient& gradient) -> Gradient {
    return scale.asDiagonal() * Gradient(solver.solve(Gradient(scale.asDiagonal() * gradient)));
  };
  const Gradient at_target = GradientAt(fit.law, LogSize(target)), direction = solved(at_target);
  const double variance = at_target.dot(direction);

  std::vector<NextRun> runs;
  for (const double active : Steps(sizes)) {
    for (const double seen : Steps(tokens)) {
      const RunSize size{.parameters = active * target.parameters / target.active, .active = active, .tokens = seen};
      if (size.Flops() > options.flops_max) continue;
      const Gradient gradient = GradientAt(fit.law, LogSize(size));
      const double along = gradient.dot(direction);
      const double left = variance - along * along / (1 + gradient.dot(solved(gradient)));  // Sherman & Morrison
      const double narrowing = 1 - std::sqrt(std::max(left, 0.0) / variance);
      if (narrowing >= options.narrowing_min) runs.push_back({size, size.Flops(), narrowing});
    }
  }
  std::stable_sort(runs.begin(), runs.end(),
                   [](const NextRun& a, const NextRun& b) { return a.narrowing / a.flops > b.narrowing / b.flops; });
  return runs;
}

}  // namespace holdfast
