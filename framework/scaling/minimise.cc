#include "framework/scaling/minimise.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <utility>

namespace holdfast {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, 0, kMaxValues, kMaxValues>;
using Vector = Eigen::Matrix<double, Eigen::Dynamic, 1, 0, kMaxValues, 1>;

double Huber(double error, double delta) {
  const double size = std::abs(error);
  return size <= delta ? 0.5 * size * size : delta * (size - 0.5 * delta);
}

double Objective(const Law& law, const CentredRuns& runs, absl::Span<const double> weights, double delta) {
  double sum = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    sum += weights[i] * Huber(law.LogLoss(runs.log_size(i)) - runs.log_loss(i), delta);
  }
  return sum;
}

/// The quadratic that lies above the objective and touches it at `law`.
struct Bound {
  Matrix curvature;
  Vector gradient;
};

Bound BoundAt(const Law& law, const CentredRuns& runs, absl::Span<const double> weights, double delta) {
  const int values = ShapeOf(law.form).values();
  Bound bound{Matrix::Zero(values, values), Vector::Zero(values)};
  std::array<double, kMaxValues> derivatives;
  for (size_t i = 0; i < runs.size(); ++i) {
    const double error = law.LogLoss(runs.log_size(i), &derivatives) - runs.log_loss(i);
    const double weight = weights[i] * std::min(1.0, delta / std::max(std::abs(error), 1e-300));
    const Eigen::Map<const Eigen::VectorXd> row(derivatives.data(), values);
    bound.curvature += weight * row * row.transpose();
    bound.gradient += weight * error * row;
  }
  return bound;
}

/// `law` less `step`, within what is searched.
Law Stepped(Law law, const Vector& step) {
  int i = 0;
  for (double& c : law.log_coefficients) c = std::max(c - step[i++], kLogCoefficientMin);
  for (double& e : law.exponents) e = std::clamp(e - step[i++], kExponentMin, kExponentMax);
  return law;
}

}  // namespace

CentredRuns::CentredRuns(absl::Span<const Observation> runs) {
  const auto count = static_cast<double>(runs.size());
  for (const Observation& run : runs) {
    const LogSize& size = sizes_.emplace_back(run.size);
    log_losses_.push_back(std::log(run.loss));
    mean_.active += size.active / count;
    mean_.ratio += size.ratio / count;
    mean_.tokens += size.tokens / count;
    mean_log_loss_ += log_losses_.back() / count;
  }
  for (LogSize& size : sizes_) {
    size.active -= mean_.active;
    size.ratio -= mean_.ratio;
    size.tokens -= mean_.tokens;
  }
  for (double& loss : log_losses_) loss -= mean_log_loss_;
}

Law CentredRuns::Moved(Law law, double sign) const {
  const LawShape& shape = ShapeOf(law.form);
  const auto exponent = [&](int index) {
    return index == kNoFactor ? 0 : (index == kPowerOne ? 1 : law.exponents[static_cast<size_t>(index)]);
  };
  const double power = shape.outer == kNoFactor ? 1 : exponent(shape.outer);
  for (size_t k = 0; k < shape.terms.size(); ++k) {
    const LawTerm& term = shape.terms[k];
    law.log_coefficients[k] += sign * (exponent(term.active) * mean_.active + exponent(term.ratio) * mean_.ratio +
                                       exponent(term.tokens) * mean_.tokens + mean_log_loss_ / power);
  }
  return law;
}

Minimum Minimise(Law law, const CentredRuns& runs, absl::Span<const double> weights, double huber_delta,
                 double enough) {
  constexpr int kMaxSteps = 300;
  double damping = 1e-3, objective = Objective(law, runs, weights, huber_delta);
  for (int step = 0; step < kMaxSteps; ++step) {
    const Bound bound = BoundAt(law, runs, weights, huber_delta);
    double gain = 0;
    while (gain <= 0 && damping < 1e9) {
      Matrix damped = bound.curvature;
      damped.diagonal().array() += damping * bound.curvature.diagonal().array() + 1e-14 * bound.curvature.trace();
      const Law next = Stepped(law, damped.ldlt().solve(bound.gradient));
      const double reached = Objective(next, runs, weights, huber_delta);
      gain = objective - reached;  // NaN ends the loop by the damping
      if (!(gain > 0)) {
        gain = 0;
        damping *= 4;
        continue;
      }
      law = next;
      objective = reached;
      damping = std::max(damping / 3, 1e-9);
    }
    if (gain <= enough * objective) break;
  }
  return {std::move(law), objective};
}

}  // namespace holdfast
