#include "models/rotary.h"

#include <algorithm>
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

/// The i, no whole number, of a frequency that turns so often in the original length.
double IndexOfTurns(double turns, const ModelConfig& config) {
  const double length = static_cast<double>(config.rope_original_length) / (2 * std::numbers::pi * turns);
  return static_cast<double>(config.TurnedDim()) * portable::Log(length) / (2 * portable::Log(config.rope_theta));
}

/// As transformers has it, where the limits lie beyond the frequencies, too.
double ScaleAsYarn(double frequency, int64_t i, const ModelConfig& config) {
  double first = IndexOfTurns(config.rope_beta_fast, config), last = IndexOfTurns(config.rope_beta_slow, config);
  if (config.rope_truncate) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, static_cast<double>(config.TurnedDim() - 1));
  if (first == last) last += 0.001;
  const double divided = std::clamp((static_cast<double>(i) - first) / (last - first), 0.0, 1.0);
  return divided * frequency / config.rope_factor + (1 - divided) * frequency;
}

double Scale(double frequency, int64_t i, const ModelConfig& config) {
  switch (config.rope_scaling) {
    case RopeScaling::kNone:
      return frequency;
    case RopeScaling::kLlama3:
      return ScaleAsLlama3(frequency, config);
    case RopeScaling::kLinear:
      return frequency / config.rope_factor;
    case RopeScaling::kYarn:
      return ScaleAsYarn(frequency, i, config);
    case RopeScaling::kLongRope:
      return frequency / config.RopeFactors()[static_cast<size_t>(i)];
  }
  return frequency;
}

double AttentionFactor(const ModelConfig& config) {
  const bool yarn = config.rope_scaling == RopeScaling::kYarn;
  if (!yarn && config.rope_scaling != RopeScaling::kLongRope) return 1;
  if (config.rope_attention_factor > 0) return config.rope_attention_factor;
  return yarn ? YarnAttentionFactor(config.rope_factor)
              : LongRopeAttentionFactor(config.rope_factor, config.rope_original_length);
}

std::vector<float> OneTable(const ModelConfig& config) {
  const std::vector<double> frequencies = RopeFrequencies(config);
  const int64_t turned = config.TurnedDim(), half = turned / 2;
  const double factor = AttentionFactor(config);
  std::vector<float> table(static_cast<size_t>(config.max_sequence_length * turned));
  for (int64_t position = 0; position < config.max_sequence_length; ++position) {
    float* row = &table[static_cast<size_t>(position * turned)];
    for (int64_t i = 0; i < half; ++i) {
      const auto [sine, cosine] = portable::SinCos(static_cast<double>(position) * frequencies[static_cast<size_t>(i)]);
      row[i] = static_cast<float>(factor * cosine);
      row[half + i] = static_cast<float>(factor * sine);
    }
  }
  return table;
}

}  // namespace

std::vector<double> RopeFrequencies(const ModelConfig& config) {
  std::vector<double> frequencies;
  for (int64_t i = 0; i < config.TurnedDim() / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(config.TurnedDim());
    const double frequency = portable::Pow(config.rope_theta, exponent);
    frequencies.push_back(Scale(frequency, i, config));
  }
  return frequencies;
}

double YarnAttentionFactor(double rope_factor, double m) {
  return rope_factor <= 1 ? 1 : 0.1 * m * portable::Log(rope_factor) + 1;
}

double LongRopeAttentionFactor(double rope_factor, int64_t rope_original_length) {
  if (rope_factor <= 1) return 1;
  return std::sqrt(1 + portable::Log(rope_factor) / portable::Log(static_cast<double>(rope_original_length)));
}

std::vector<float> RopeTable(const ModelConfig& config) {
  std::vector<float> table = OneTable(config);
  for (int64_t layer = 1; layer <= config.num_layers; ++layer) {
    if (RopeTableOffset(config, layer) == 0) continue;
    ModelConfig other = config;
    other.rope_theta = config.RopeThetaOf(layer);
    if (!config.ScalesRope(layer)) other.rope_scaling = RopeScaling::kNone;
    const std::vector<float> second = OneTable(other);
    table.insert(table.end(), second.begin(), second.end());
    break;
  }
  return table;
}

int64_t RopeTableOffset(const ModelConfig& config, int64_t layer) {
  const bool is_scaled_alike = config.rope_scaling == RopeScaling::kNone || config.ScalesRope(layer);
  const bool first = is_scaled_alike && config.RopeThetaOf(layer) == config.rope_theta;
  return first ? 0 : config.max_sequence_length * config.TurnedDim();
}

}  // namespace holdfast
