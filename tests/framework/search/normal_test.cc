// Proves that what Bayesian search computes with is right: the normal distribution beside long double's erfc, and
// Cholesky's factor beside the matrix it is of.
#include "framework/search/normal.h"

#include <cmath>

#include "framework/search/cholesky.h"
#include "gtest/gtest.h"

namespace holdfast::search {
namespace {

TEST(Normal, IsLongDoubles) {
  for (double z = -30; z <= 8; z += 0.0371) {
    const long double at = z;
    const long double cdf = 0.5L * std::erfc(-at / std::sqrt(2.0L));
    EXPECT_NEAR(LogNormalCdf(z), static_cast<double>(std::log(cdf)), 1e-10 * std::max(1.0, z * z)) << z;
    const long double density = std::exp(-0.5L * at * at) / std::sqrt(2 * 3.14159265358979323846L);
    const long double expected = density + at * cdf;
    if (z > -8) {  // below, this difference loses its digits
      EXPECT_NEAR(LogExpectedImprovement(z), static_cast<double>(std::log(expected)), 1e-9) << z;
    }
  }
  // Far out E max(0, z + X) = density / z^2 (1 - 3 / z^2 + ...).
  EXPECT_NEAR(LogExpectedImprovement(-1000), -500000 - 0.918938533 - 2 * std::log(1000), 1e-5);
}

TEST(Cholesky, IsTheMatrix) {
  const std::vector<std::vector<double>> matrix = {{4, 2, 1}, {2, 5, 3}, {1, 3, 6}};
  Cholesky factor;
  for (size_t i = 0; i < 3; ++i) ASSERT_TRUE(factor.Append({matrix[i].begin(), matrix[i].begin() + i + 1}));
  EXPECT_FALSE(factor.Append({4, 2, 1, 4}));  // the first row again
  const std::vector<std::vector<double>> inverse = factor.Inverse();
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 3; ++j) {
      EXPECT_NEAR(Dot(matrix[i].data(), inverse[j].data(), 3), i == j ? 1 : 0, 1e-14);
    }
  }
  const std::vector<double> solved = factor.Backward(factor.Forward({1, 2, 3}));
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(Dot(matrix[i].data(), solved.data(), 3), i + 1.0, 1e-13);
  EXPECT_NEAR(2 * factor.LogDiagonalSum(), std::log(67.0), 1e-14);
}

}  // namespace
}  // namespace holdfast::search
