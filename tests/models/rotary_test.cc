// Proves that scaled rotary frequencies and the table's factor are those that transformers 5.23 computes (its
// ROPE_INIT_FUNCTIONS), where limits are rounded, meet, or lie beyond the frequencies, too.

#include "models/rotary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

namespace holdfast {
namespace {

ModelConfig RopeOf(int64_t head_dim, double theta, RopeScaling scaling, double factor) {
  return {.max_sequence_length = 2,
          .head_dim = head_dim,
          .position = PositionKind::kRope,
          .rope_theta = theta,
          .rope_scaling = scaling,
          .rope_factor = factor};
}

ModelConfig YarnOf(int64_t head_dim, double theta, double factor, int64_t original_length) {
  ModelConfig config = RopeOf(head_dim, theta, RopeScaling::kYarn, factor);
  config.rope_original_length = original_length;
  return config;
}

/// From 4096 tokens to 131072 at most.
ModelConfig LongRopeOf(int64_t max_sequence_length) {
  ModelConfig config = RopeOf(8, 1e4, RopeScaling::kLongRope, 32);
  config.max_sequence_length = max_sequence_length;
  config.rope_original_length = 4096;
  config.rope_short_factors = {1, 1.1, 1.25, 2};
  config.rope_long_factors = {1, 2.5, 8, 30.5};
  return config;
}

/// Pairs of i and frequency, of fp32 arithmetic.
void ExpectFrequencies(const ModelConfig& config, const std::vector<std::pair<size_t, double>>& expected) {
  const std::vector<double> frequencies = RopeFrequencies(config);
  ASSERT_EQ(frequencies.size(), static_cast<size_t>(config.head_dim / 2));
  for (const auto& [i, frequency] : expected) EXPECT_NEAR(frequencies.at(i), frequency, 2e-6 * frequency) << i;
}

/// What the cosines and sines of the table are multiplied by: position 0 has cosines of 1.
void ExpectFactor(const ModelConfig& config, double expected) {
  const std::vector<float> table = RopeTable(config);
  EXPECT_NEAR(table.at(0), expected, 1e-6);
  const size_t d = static_cast<size_t>(config.head_dim);
  EXPECT_NEAR(std::hypot(table.at(d), table.at(d + d / 2)), expected, 1e-6) << "of position 1";
}

TEST(RotaryTest, LinearDividesAllFrequencies) {
  const ModelConfig config = RopeOf(128, 1e5, RopeScaling::kLinear, 4);
  ExpectFrequencies(config, {{0, 0.25}, {16, 0.014058532}, {63, 2.9927126e-06}});
  ExpectFactor(config, 1);
}

TEST(RotaryTest, YarnOfQwen) {
  ModelConfig config = YarnOf(128, 1e6, 4, 32768);
  ExpectFrequencies(
      config,
      {{0, 1}, {16, 0.031622779}, {24, 0.0053753215}, {31, 0.00080295978}, {40, 4.4456985e-05}, {63, 3.1023444e-07}});
  ExpectFactor(config, 1.138629436);
  config.rope_truncate = false;
  config.rope_beta_fast = 64;
  config.rope_beta_slow = 2;
  ExpectFrequencies(config, {{16, 0.031622779}, {24, 0.0046737585}, {31, 0.00062558474}, {40, 4.4456985e-05}});
  config.rope_attention_factor = 0.75;
  ExpectFactor(config, 0.75);
}

TEST(RotaryTest, YarnWhereLimitsLieBeyondTheFrequencies) {
  // No frequency turns once in 3 positions: transformers takes the negative limit as it is, and all but the first are
  // divided.
  ExpectFrequencies(YarnOf(8, 100, 2, 3), {{0, 1}, {1, 0.15811388}, {2, 0.05}, {3, 0.015811389}});
  // All turn more than 32 times: it divides all.
  ExpectFrequencies(YarnOf(8, 1.5, 2, 1'000'000), {{0, 0.5}, {1, 0.451801}, {2, 0.40824828}, {3, 0.36889398}});
  ModelConfig meet = YarnOf(16, 1e4, 2, 512);
  meet.rope_beta_fast = meet.rope_beta_slow = 16;
  meet.rope_truncate = false;
  ExpectFrequencies(meet, {{0, 1}, {1, 0.31622776}, {2, 0.05}, {7, 0.00015811389}});
}

TEST(RotaryTest, YarnAttentionFactorFollowsFromTheFactor) {
  EXPECT_NEAR(YarnAttentionFactor(40, 1.0) / YarnAttentionFactor(40, 0.707), 1.0857263992561355, 1e-12);
  EXPECT_EQ(YarnAttentionFactor(1), 1);
  ExpectFactor(YarnOf(8, 100, 1, 64), 1);
}

TEST(RotaryTest, LayersWithAWindowMayHaveATableOfTheirOwn) {
  ModelConfig config = YarnOf(16, 100, 4, 8);
  config.num_layers = 4;
  const std::vector<float> scaled = RopeTable(config);
  ModelConfig unscaled = config;
  unscaled.rope_scaling = RopeScaling::kNone;
  const std::vector<float> plain = RopeTable(unscaled);
  ASSERT_NE(scaled, plain);
  config.sliding_window = 5;
  config.full_attention_step = 2;
  EXPECT_EQ(RopeTable(config), scaled) << "scaled in all layers";
  EXPECT_EQ(RopeTableOffset(config, 1), 0);
  config.rope_scaling_layers = RopeScalingLayers::kFullAttention;
  std::vector<float> both = scaled;
  both.insert(both.end(), plain.begin(), plain.end());
  EXPECT_EQ(RopeTable(config), both);
  const auto second = static_cast<int64_t>(scaled.size());
  for (const int64_t layer : {1, 3}) EXPECT_EQ(RopeTableOffset(config, layer), second);
  for (const int64_t layer : {2, 4}) EXPECT_EQ(RopeTableOffset(config, layer), 0);
  config.rope_scaling = RopeScaling::kNone;
  EXPECT_EQ(RopeTable(config), plain);
  EXPECT_EQ(RopeTableOffset(config, 1), 0);
  config.rope_scaling = RopeScaling::kYarn;
  config.sliding_window = 0;
  EXPECT_EQ(RopeTable(config), scaled) << "no layer has a window";
}

TEST(RotaryTest, LayersWithAWindowMayHaveABaseOfTheirOwn) {
  ModelConfig config = RopeOf(8, 1e6, RopeScaling::kLinear, 4);
  config.max_sequence_length = 16;
  config.num_layers = 4;
  config.sliding_window = 5;
  config.full_attention_step = 2;
  config.window_rope_theta = 100;
  const auto of = [&](double theta, RopeScaling scaling) {
    ModelConfig one = config;
    one.sliding_window = 0;
    one.rope_theta = theta;
    one.rope_scaling = scaling;
    return RopeTable(one);
  };
  const auto tables = [&](RopeScaling first, RopeScaling second) {
    std::vector<float> table = of(1e6, first);
    const std::vector<float> windows = of(100, second);
    table.insert(table.end(), windows.begin(), windows.end());
    return table;
  };
  ASSERT_NE(of(1e6, RopeScaling::kNone), of(100, RopeScaling::kNone));
  EXPECT_EQ(RopeTable(config), tables(RopeScaling::kLinear, RopeScaling::kLinear));
  config.rope_scaling_layers = RopeScalingLayers::kFullAttention;
  EXPECT_EQ(RopeTable(config), tables(RopeScaling::kLinear, RopeScaling::kNone));
  const auto second = static_cast<int64_t>(of(100, RopeScaling::kNone).size());
  for (const int64_t layer : {1, 3}) EXPECT_EQ(RopeTableOffset(config, layer), second);
  for (const int64_t layer : {2, 4}) EXPECT_EQ(RopeTableOffset(config, layer), 0);
  config.rope_scaling = RopeScaling::kNone;
  EXPECT_EQ(RopeTable(config), tables(RopeScaling::kNone, RopeScaling::kNone));
  EXPECT_EQ(RopeTableOffset(config, 1), second);
  config.window_rope_theta = 1e6;
  EXPECT_EQ(RopeTable(config), of(1e6, RopeScaling::kNone)) << "the same base";
  config.window_rope_theta = 0;
  EXPECT_EQ(RopeTable(config), of(1e6, RopeScaling::kNone));
  EXPECT_EQ(RopeTableOffset(config, 1), 0);
}

TEST(RotaryTest, LongRopeDividesByTheListOfItsLength) {
  const std::vector<std::pair<size_t, double>> of_short = {{0, 1}, {1, 0.09090909362}, {2, 0.008}, {3, 0.0005}},
                                               of_long = {{0, 1}, {1, 0.04}, {2, 0.00125}, {3, 3.278688382e-05}};
  ExpectFrequencies(LongRopeOf(2), of_short);
  ExpectFrequencies(LongRopeOf(4096), of_short);
  ExpectFrequencies(LongRopeOf(4097), of_long);
  ExpectFrequencies(LongRopeOf(131072), of_long);
  ModelConfig config = LongRopeOf(2);
  ExpectFactor(config, 1.1902380714238083);
  config.rope_factor = 1;
  ExpectFactor(config, 1);
  config.rope_attention_factor = 0.75;
  ExpectFactor(config, 0.75);
}

}  // namespace
}  // namespace holdfast
