#pragma once
// Least squares of a few values, for curves with a lowest point.

#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace holdfast {

/// y = curvature (x - x_min)^2 + y_min.
struct Parabola {
  double x_min = 0, y_min = 0, curvature = 0;
  double At(double x) const { return y_min + curvature * (x - x_min) * (x - x_min); }
};

/// By least squares through at least three different x; nothing if there are fewer, or it has no lowest point.
std::optional<Parabola> FitParabola(absl::Span<const double> x, absl::Span<const double> y);

/// log y = constant + sum over k of exponents[k] log x_k.
struct PowerLaw {
  double log_constant = 0;
  std::vector<double> exponents;
  double At(absl::Span<const double> x) const;
};

/// By least squares of logarithms: rows of x, all positive. Nothing if they do not determine all exponents.
std::optional<PowerLaw> FitPowerLaw(absl::Span<const std::vector<double>> x, absl::Span<const double> y);

}  // namespace holdfast
