// Proves which tokens can be sampled: the k likeliest, those that have a share of the probability, always the
// likeliest; that the seed and a sample's number decide which, and nothing that is sampled beside it; and when it ends.

#include "models/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

namespace holdfast {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::SizeIs;

/// Probabilities 0.5, 0.3, 0.15, 0.05 of tokens 2, 0, 3, 1, or of those `sum of the sequence` further on.
class FakeDecoder final : public Decoder {
 public:
  FakeDecoder(int64_t sequences, int64_t capacity, bool by_sequence)
      : capacity_(capacity), by_sequence_(by_sequence), told_(static_cast<size_t>(sequences)) {}

  int64_t sequences() const override { return static_cast<int64_t>(told_.size()); }
  int64_t capacity() const override { return capacity_; }
  absl::Status Begin(absl::Span<const Beginning> beginnings) override {
    for (const Beginning& b : beginnings) told_[static_cast<size_t>(b.sequence)] = {b.tokens.begin(), b.tokens.end()};
    return absl::OkStatus();
  }
  absl::StatusOr<absl::Span<const float>> Add(absl::Span<const Token> tokens) override {
    logits_.clear();
    for (const Token& token : tokens) {
      std::vector<int32_t>& told = told_[static_cast<size_t>(token.sequence)];
      told.push_back(token.token);
      EXPECT_LE(static_cast<int64_t>(told.size()), capacity_);
      const int32_t sum = by_sequence_ ? std::accumulate(told.begin(), told.end(), 0) : 0;
      const float probabilities[] = {0.3f, 0.05f, 0.5f, 0.15f};
      for (int32_t v = 0; v < 4; ++v) logits_.push_back(std::log(probabilities[(v + sum) % 4]));
    }
    return absl::MakeConstSpan(logits_);
  }

 private:
  int64_t capacity_;
  bool by_sequence_;
  std::vector<std::vector<int32_t>> told_;
  std::vector<float> logits_;
};

constexpr int64_t kEndless = 100'000;

std::vector<int32_t> Sample(const SampleOptions& options, uint32_t number = 0) {
  FakeDecoder decoder(1, kEndless, /*by_sequence=*/false);
  std::vector<int32_t> tokens;
  const SampleRequest request{.prompt = {0}, .number = number};
  const auto take = [&](size_t, int32_t token) {
    tokens.push_back(token);
    return true;
  };
  EXPECT_THAT(GenerateTokens(decoder, {&request, 1}, options, take).value(), ElementsAre(SampleEnd::kTokens));
  return tokens;
}

std::set<int32_t> Sampled(SampleOptions options) {
  options.tokens = 2000;
  options.temperature = options.temperature == 0.8 ? 1 : options.temperature;
  const std::vector<int32_t> tokens = Sample(options);
  return {tokens.begin(), tokens.end()};
}

TEST(Sampler, KeepsToTheLikeliest) {
  using Set = std::set<int32_t>;
  EXPECT_EQ(Sampled({}), (Set{0, 1, 2, 3}));
  EXPECT_EQ(Sampled({.top_k = 2}), (Set{0, 2}));
  EXPECT_EQ(Sampled({.top_k = 3}), (Set{0, 2, 3}));
  EXPECT_EQ(Sampled({.temperature = 0}), (Set{2}));
  EXPECT_EQ(Sampled({.top_p = 0}), (Set{2}));
  EXPECT_EQ(Sampled({.top_p = 0.45}), (Set{2}));
  EXPECT_EQ(Sampled({.top_p = 0.75}), (Set{0, 2}));
  EXPECT_EQ(Sampled({.top_p = 0.9}), (Set{0, 2, 3}));
  EXPECT_EQ(Sampled({.top_p = 0.999}), (Set{0, 1, 2, 3}));
  EXPECT_EQ(Sampled({.top_k = 2, .top_p = 0.6}), (Set{2})) << "of the two likeliest, which have 0.8";
}

/// One of its logits is `odd`.
class DivergedDecoder final : public Decoder {
 public:
  explicit DivergedDecoder(float odd) : logits_{0, odd, 1, 2} {}
  int64_t sequences() const override { return 1; }
  int64_t capacity() const override { return kEndless; }
  absl::Status Begin(absl::Span<const Beginning>) override { return absl::OkStatus(); }
  absl::StatusOr<absl::Span<const float>> Add(absl::Span<const Token>) override { return absl::MakeConstSpan(logits_); }

 private:
  std::vector<float> logits_;
};

// It wrote text: the first token again and again, or whichever stood first among equals.
TEST(Sampler, LogitsThatAreNotFiniteAreAnError) {
  for (const float odd : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const double temperature : {0.0, 1.0}) {
      DivergedDecoder decoder(odd);
      const SampleRequest request{.prompt = {0}};
      const auto take = [&](size_t, int32_t token) {
        ADD_FAILURE() << token;
        return false;
      };
      const absl::Status status = GenerateTokens(decoder, {&request, 1}, {.temperature = temperature}, take).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("logits are not finite"));
    }
  }
}

TEST(Sampler, TokensHaveTheirProbabilities) {
  const std::vector<int32_t> tokens = Sample({.tokens = 20000, .temperature = 1, .top_p = 0.9});
  const auto share = [&](int32_t token) {
    return static_cast<double>(std::count(tokens.begin(), tokens.end(), token)) / 20000.0;
  };
  EXPECT_NEAR(share(2), 0.5 / 0.95, 0.015);
  EXPECT_NEAR(share(0), 0.3 / 0.95, 0.015);
  EXPECT_EQ(share(1), 0);
}

TEST(Sampler, TheSeedAndTheNumberDecide) {
  EXPECT_EQ(Sample({.tokens = 50, .seed = 1}), Sample({.tokens = 50, .seed = 1}));
  EXPECT_NE(Sample({.tokens = 50, .seed = 1}), Sample({.tokens = 50, .seed = 2}));
  EXPECT_NE(Sample({.tokens = 50}, 0), Sample({.tokens = 50}, 1));
}

/// Requests of all lengths and ends: some are refused early, some meet the end of the context.
std::map<size_t, std::vector<int32_t>> Generate(int64_t sequences, const std::vector<size_t>& order,
                                                std::vector<SampleEnd>* ends) {
  FakeDecoder decoder(sequences, 30, /*by_sequence=*/true);
  std::vector<SampleRequest> requests;
  for (const size_t i : order) {
    requests.push_back({.prompt = std::vector<int32_t>(1 + i * 4, static_cast<int32_t>(i % 3)),
                        .number = static_cast<uint32_t>(i % 2)});
  }
  std::map<size_t, std::vector<int32_t>> tokens;
  const auto take = [&](size_t request, int32_t token) {
    tokens[order[request]].push_back(token);
    return order[request] % 3 != 1 || tokens[order[request]].size() < 3;
  };
  *ends = GenerateTokens(decoder, requests, {.tokens = 12}, take).value();
  return tokens;
}

TEST(Sampler, WhatIsSampledBesideDecidesNothing) {
  std::vector<SampleEnd> alone, ends;
  const auto expected = Generate(1, {0, 1, 2, 3, 4, 5, 6, 7}, &alone);
  using enum SampleEnd;
  EXPECT_THAT(alone,
              ElementsAre(kTokens, kRefused, kTokens, kTokens, kRefused, kContextFull, kContextFull, kContextFull));
  EXPECT_THAT(expected.at(5), SizeIs(30 - 21 + 1));
  for (const int64_t sequences : {2, 3, 8, 20}) {
    EXPECT_EQ(Generate(sequences, {0, 1, 2, 3, 4, 5, 6, 7}, &ends), expected);
    EXPECT_EQ(ends, alone);
    EXPECT_EQ(Generate(sequences, {7, 3, 0, 6, 2, 5, 4, 1}, &ends), expected);
  }
}

}  // namespace
}  // namespace holdfast
