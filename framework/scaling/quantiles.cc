#include "framework/scaling/quantiles.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "framework/base/status.h"

namespace holdfast {
namespace {

/// Integral of cos^(degrees - 1) from `from` to pi / 2 by Simpson's rule: Student's t is sqrt(degrees) tan of such an
/// angle.
double CosineIntegral(double from, double degrees) {
  constexpr int kSteps = 2000;
  const double width = (std::numbers::pi / 2 - from) / kSteps;
  double sum = 0;
  for (int i = 0; i <= kSteps; ++i) {
    const double factor = i == 0 || i == kSteps ? 1 : (i % 2 == 1 ? 4 : 2);
    sum += factor * std::pow(std::max(0.0, std::cos(from + i * width)), degrees - 1);
  }
  return sum * width / 3;
}

/// The t that is exceeded with probability `tail` < 1/2.
double StudentQuantile(double tail, double degrees) {
  const double all = 2 * CosineIntegral(0, degrees);
  double low = 0, high = std::numbers::pi / 2;  // angles
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (CosineIntegral(middle, degrees) / all > tail ? low : high) = middle;
  }
  return std::sqrt(degrees) * std::tan(low);
}

double Quantile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

double ExpandedTail(double level, int64_t runs, int parameters) {
  HOLDFAST_CHECK(runs > parameters && level > 0 && level < 1);
  const auto n = static_cast<double>(runs), degrees = n - parameters;
  constexpr double kLikeNormal = 1000;  // t has changed by less than 0.2 % from there on
  const double t = StudentQuantile((1 - level) / 2, std::min(degrees, kLikeNormal));
  return std::erfc(std::sqrt(n / degrees) * t / std::numbers::sqrt2) / 2;
}

Interval CentralInterval(std::vector<double> values, double tail) {
  std::sort(values.begin(), values.end());
  return {Quantile(values, tail), Quantile(values, 1 - tail)};
}

}  // namespace holdfast
