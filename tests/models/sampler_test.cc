// Proves which tokens can be sampled: the k likeliest, those that have a share of the probability, always the
// likeliest; that the seed decides which; and when it ends.

#include "models/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace holdfast {
namespace {

/// Probabilities 0.5, 0.3, 0.15, 0.05 of tokens 2, 0, 3, 1.
absl::StatusOr<std::vector<float>> Logits(absl::Span<const int32_t> /*tokens*/) {
  return std::vector<float>{std::log(0.3f), std::log(0.05f), std::log(0.5f), std::log(0.15f)};
}

std::set<int32_t> Sampled(SampleOptions options) {
  options.tokens = 2000;
  options.temperature = options.temperature == 0.8 ? 1 : options.temperature;
  const auto tokens = GenerateTokens(Logits, std::vector<int32_t>{0}, options, [](int32_t) { return true; });
  EXPECT_TRUE(tokens.ok());
  return {tokens->begin(), tokens->end()};
}

TEST(Sampler, KeepsToTheLikeliest) {
  using Set = std::set<int32_t>;
  EXPECT_EQ(Sampled({}), (Set{0, 1, 2, 3}));
  EXPECT_EQ(Sampled({.top_k = 2}), (Set{0, 2}));
  EXPECT_EQ(Sampled({.temperature = 0}), (Set{2}));
  EXPECT_EQ(Sampled({.top_p = 0}), (Set{2}));
  EXPECT_EQ(Sampled({.top_p = 0.45}), (Set{2}));
  EXPECT_EQ(Sampled({.top_p = 0.75}), (Set{0, 2}));
  EXPECT_EQ(Sampled({.top_p = 0.9}), (Set{0, 2, 3}));
  EXPECT_EQ(Sampled({.top_p = 0.999}), (Set{0, 1, 2, 3}));
  EXPECT_EQ(Sampled({.top_k = 2, .top_p = 0.6}), (Set{2})) << "of the two likeliest, which have 0.8";
}

TEST(Sampler, TokensHaveTheirProbabilities) {
  std::vector<int> counts(4);
  SampleOptions options{.tokens = 20000, .temperature = 1, .top_p = 0.9};
  const auto count = [&](int32_t token) {
    ++counts[static_cast<size_t>(token)];
    return true;
  };
  ASSERT_TRUE(GenerateTokens(Logits, std::vector<int32_t>{0}, options, count).ok());
  EXPECT_NEAR(counts[2] / 20000.0, 0.5 / 0.95, 0.015);
  EXPECT_NEAR(counts[0] / 20000.0, 0.3 / 0.95, 0.015);
  EXPECT_EQ(counts[1], 0);
}

TEST(Sampler, TheSeedDecidesAndAcceptEndsIt) {
  const auto sample = [](uint64_t seed) {
    return GenerateTokens(Logits, std::vector<int32_t>{0}, {.tokens = 50, .seed = seed}, [](int32_t) { return true; })
        .value();
  };
  EXPECT_EQ(sample(1), sample(1));
  EXPECT_NE(sample(1), sample(2));
  int left = 3;
  const auto three = GenerateTokens(Logits, std::vector<int32_t>{0}, {}, [&](int32_t) { return left-- > 0; });
  EXPECT_EQ(three->size(), 3u);
}

}  // namespace
}  // namespace holdfast
