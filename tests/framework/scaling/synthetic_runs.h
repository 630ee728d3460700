#pragma once
// Runs that end where a law says, but for noise.

#include <cmath>
#include <random>
#include <vector>

#include "framework/scaling/fit.h"

namespace holdfast {

/// E, A, B, then a, (c,) b.
inline Law LawOf(LawForm form, const std::vector<double>& coefficients, std::vector<double> exponents) {
  Law law{.form = form, .log_coefficients = {}, .exponents = std::move(exponents)};
  for (const double c : coefficients) law.log_coefficients.push_back(std::log(c));
  return law;
}

/// That of Besiroglu et al. 2024 (arXiv 2404.10102, table 1), fitted to what could be read of Hoffmann et al.'s runs.
inline Law ReplicatedChinchilla() { return LawOf(LawForm::kChinchilla, {1.8172, 482.01, 2085.43}, {0.3478, 0.3658}); }

/// Kaplan et al. 2020, table 2: aN 0.076, aD 0.103, Nc 6.4e13, Dc 1.8e13.
inline Law KaplansLaw() {
  return LawOf(LawForm::kKaplan, {std::pow(6.4e13, 0.076 / 0.103), 1.8e13}, {0.076 / 0.103, 0.103});
}

inline Law SomeMixtureLaw() { return LawOf(LawForm::kMoe, {1.7, 450, 1800}, {0.34, 0.12, 0.36}); }

/// Sizes of a grid, `per_axis` of each, over the ranges of Hoffmann et al.: 44 M to 16 B parameters, 5 B to 500 B
/// tokens. Of mixtures every other one is dense, the others have 4 or 16 times as many parameters as are active.
inline std::vector<RunSize> GridOfSizes(int per_axis, bool mixtures = false) {
  std::vector<RunSize> sizes;
  for (int i = 0; i < per_axis; ++i) {
    for (int j = 0; j < per_axis; ++j) {
      const double active = 44e6 * std::pow(16e9 / 44e6, static_cast<double>(i) / (per_axis - 1));
      const double tokens = 5e9 * std::pow(100, static_cast<double>(j) / (per_axis - 1));
      const double ratio = !mixtures || (i + j) % 2 == 0 ? 1 : ((i + j) % 4 == 1 ? 4 : 16);
      sizes.push_back({.parameters = active * ratio, .active = active, .tokens = tokens});
    }
  }
  return sizes;
}

/// `noise` is the standard deviation of the logarithm of the loss.
inline std::vector<Observation> RunsOf(const Law& law, const std::vector<RunSize>& sizes, double noise, unsigned seed) {
  std::mt19937_64 random(seed);
  const auto normal = [&random] {  // Box and Muller's: the library's own is not the same everywhere
    const double u = (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53;
    const double v = static_cast<double>(random() >> 11) * 0x1p-53;
    return std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v);
  };
  std::vector<Observation> runs;
  for (const RunSize& size : sizes) {
    runs.push_back({.name = "run " + std::to_string(runs.size()),
                    .size = size,
                    .flops = size.Flops(),
                    .loss = law.Loss(size) * std::exp(noise * normal()),
                    .learning_rate = {},
                    .batch_tokens = {}});
  }
  return runs;
}

}  // namespace holdfast
