#include "models/rotary.h"

#include <cmath>
#include <numbers>

#include "kernels/portable_math.h"

namespace holdfast {
namespace {

double ScaleAsLlama3(double frequency, const ModelConfig& config) {
  // Wavelengths in the original length: how often the angle goes around in it.
  const double turns = static_cast<double>(config.rope_original_length) * frequency / (2 * std::numbers::pi);
  if (turns > config.rope_high_freq_factor) return frequency;
  if (turns < config.rope_low_freq_factor) return frequency / config.rope_factor;
  const double kept =
      (turns - config.rope_low_freq_factor) / (config.rope_high_freq_factor - config.rope_low_freq_factor);
  return (1 - kept) * frequency / config.rope_factor + kept * frequency;
}

}  // namespace

std::vector<double> RopeFrequencies(const ModelConfig& config) {
  std::vector<double> frequencies;
  for (int64_t i = 0; i < config.TurnedDim() / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(config.TurnedDim());
    const double frequency = portable::Pow(config.rope_theta, exponent);
    frequencies.push_back(config.rope_scaling == RopeScaling::kLlama3 ? ScaleAsLlama3(frequency, config) : frequency);
  }
  return frequencies;
}

std::vector<float> RopeTable(const ModelConfig& config) {
  const std::vector<double> frequencies = RopeFrequencies(config);
  const int64_t turned = config.TurnedDim(), half = turned / 2;
  std::vector<float> table(static_cast<size_t>(config.max_sequence_length * turned));
  for (int64_t position = 0; position < config.max_sequence_length; ++position) {
    float* row = &table[static_cast<size_t>(position * turned)];
    for (int64_t i = 0; i < half; ++i) {
      const auto [sine, cosine] = portable::SinCos(static_cast<double>(position) * frequencies[static_cast<size_t>(i)]);
      row[i] = static_cast<float>(cosine);
      row[half + i] = static_cast<float>(sine);
    }
  }
  return table;
}

}  // namespace holdfast
