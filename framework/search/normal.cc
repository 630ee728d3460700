#include "framework/search/normal.h"

#include <cmath>

#include "kernels/portable_math.h"

namespace holdfast::search {
namespace {

constexpr double kLogSqrtTwoPi = 0.91893853320467274;
constexpr double kTail = -3;  // below: by continued fraction, as differences would cancel

double Density(double z) { return portable::Exp(-0.5 * z * z - kLogSqrtTwoPi); }

/// P(X <= z) for z >= kTail: 1/2 + density * (z + z^3 / 3 + z^5 / (3 * 5) + ...).
double Cdf(double z) {
  if (z > 9) return 1;
  double term = z, sum = z;
  for (int n = 3; n < 300 && std::abs(term) > 1e-18 * std::abs(sum); n += 2) {
    term *= z * z / n;
    sum += term;
  }
  return 0.5 + Density(z) * sum;
}

/// r of Laplace's continued fraction: P(X > t) = density / (t + r), r = 1 / (t + 2 / (t + 3 / ...)).
double TailFraction(double t) {
  double r = 0;
  for (int n = 80; n >= 1; --n) r = n / (t + r);
  return r;
}

}  // namespace

double LogNormalCdf(double z) {
  if (z >= kTail) return portable::Log(Cdf(z));
  return -0.5 * z * z - kLogSqrtTwoPi - portable::Log(-z + TailFraction(-z));
}

double LogExpectedImprovement(double z) {
  if (z >= kTail) return portable::Log(Density(z) + z * Cdf(z));
  const double r = TailFraction(-z);
  return -0.5 * z * z - kLogSqrtTwoPi + portable::Log(r / (-z + r));
}

double Normal(uint64_t seed, Draw draw, uint32_t a, uint32_t b, uint64_t element) {
  const double u = Uniform(seed, draw, a, b, 2 * element), angle = Uniform(seed, draw, a, b, 2 * element + 1);
  return std::sqrt(-2 * portable::Log(u)) * portable::SinCos(6.2831853071795865 * angle).cosine;  // Box & Muller
}

}  // namespace holdfast::search
