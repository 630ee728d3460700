// Proves what is told of a router's choices (loads, balance, z, entropy, slope) against double precision, for both
// kinds of scores.

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/kernels/kernel_test_util.h"

namespace holdfast::kernels {
namespace {

constexpr int64_t kRows = 37, kExperts = 7, kChosen = 3;

struct Case {
  Case(Rng& rng, RouterScore score, int64_t capacity = 0) : logits(DType::kF32, kRows, kExperts, kExperts + 2) {
    shape = {.num_experts = kExperts, .chosen = kChosen, .score = score, .capacity = capacity};
    logits.Fill(rng, 2);
    ops->RouterForward(out(), logits.view(), shape);
    ops->SortChoices({offsets.data(), choices.data(), slot_of.data(), counts.data()}, experts.data(), weights.data(),
                     kRows, shape);
  }
  /// Where losses and what is dropped are written. Vectors, because a GPU does not reach a function's variables.
  struct Told {
    std::vector<double> balance{NAN}, z{NAN}, entropy{NAN};
    std::vector<int64_t> dropped{-1};
  };
  Told told;
  RouterOut out() { return {scores.data(), experts.data(), weights.data(), lse.data()}; }

  TestOps ops{2};
  RouterShape shape;
  TestMatrix logits;
  std::vector<float> scores = std::vector<float>(kRows * kExperts), weights = std::vector<float>(kRows * kChosen),
                     lse = std::vector<float>(kRows);
  std::vector<int32_t> experts = std::vector<int32_t>(kRows * kChosen), choices = experts, slot_of = experts,
                       offsets = std::vector<int32_t>(kExperts + 1), counts = std::vector<int32_t>(kExperts);
};

TEST(RouterReport, IsThatOfTheReference) {
  Rng rng(NewSeed());
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
    Case c(rng, score);
    std::vector<int64_t> load(kExperts, -1), expected_load(kExperts);
    std::vector<float> slope(kExperts);
    c.ops->RouterReport({.logits = c.logits.view(),
                         .forward = c.out(),
                         .counts = c.counts.data(),
                         .slope = slope.data(),
                         .slope_scale = 0.5f,
                         .load = load.data(),
                         .balance = c.told.balance.data(),
                         .z = c.told.z.data(),
                         .entropy = c.told.entropy.data()},
                        c.shape);
    for (const int32_t e : c.experts) ++expected_load[static_cast<size_t>(e)];
    EXPECT_EQ(load, expected_load);
    double expected_balance = 0, expected_z = 0, expected_entropy = 0;
    for (int64_t r = 0; r < kRows; ++r) {
      double exponentials = 0, sum = 0, loaded = 0;
      for (int64_t e = 0; e < kExperts; ++e) exponentials += std::exp(static_cast<double>(c.logits.Get(r, e)));
      for (int64_t e = 0; e < kExperts; ++e) {
        const auto logit = static_cast<double>(c.logits.Get(r, e));
        const double p = std::exp(logit) / exponentials;
        expected_entropy -= p * std::log(p) / kRows;
        const double s = score == RouterScore::kSoftmax ? p : 1 / (1 + std::exp(-logit));
        sum += s;
        loaded += s * static_cast<double>(expected_load[static_cast<size_t>(e)]);
      }
      expected_balance += kExperts * loaded / sum / (kRows * kRows);
      expected_z += std::pow(std::log(exponentials), 2) / kRows;
    }
    EXPECT_NEAR(c.told.balance[0], expected_balance, 1e-6 * expected_balance);
    EXPECT_NEAR(c.told.z[0], expected_z, 1e-6 * expected_z);
    EXPECT_NEAR(c.told.entropy[0], expected_entropy, 1e-6);
    for (size_t e = 0; e < kExperts; ++e) EXPECT_EQ(slope[e], 0.5f * static_cast<float>(load[e]));
  }
}

// Losses and loads are of what rows chose, whether experts had room for it or not.
TEST(RouterReport, WhatIsDroppedCountsAsChosen) {
  const uint64_t seed = NewSeed();
  constexpr int64_t kCapacity = 5;
  const auto report = [&](int64_t capacity, std::vector<int64_t>* load, int64_t* dropped) {
    Rng rng(seed);
    Case c(rng, RouterScore::kSoftmax, capacity);
    c.ops->RouterReport({.logits = c.logits.view(),
                         .forward = c.out(),
                         .counts = c.counts.data(),
                         .load = load->data(),
                         .balance = c.told.balance.data(),
                         .z = c.told.z.data(),
                         .entropy = c.told.entropy.data(),
                         .offsets = c.offsets.data(),
                         .dropped = c.told.dropped.data()},
                        c.shape);
    *dropped = c.told.dropped[0];
    return c.told.balance[0];
  };
  std::vector<int64_t> all(kExperts), load(kExperts);
  int64_t none = -1, dropped = -1, expected = 0;
  EXPECT_EQ(report(0, &all, &none), report(kCapacity, &load, &dropped));
  EXPECT_EQ(load, all);
  EXPECT_EQ(none, 0);
  for (const int64_t rows : all) expected += std::max<int64_t>(rows - kCapacity, 0);
  EXPECT_EQ(dropped, expected);
  EXPECT_GE(dropped, kRows * kChosen - kExperts * kCapacity);
}

// The same probabilities, against the mean of the counts of three layers.
TEST(RouterReport, PooledLossesGoByTheMeanOfAllLayers) {
  Rng rng(NewSeed());
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
    Case c(rng, score);
    std::vector<int32_t> pooled = c.counts;
    for (int64_t e = 0; e < 2 * kExperts; ++e) pooled.push_back(static_cast<int32_t>(rng() % 30));
    std::vector<int64_t> load(kExperts);
    std::vector<float> slope(kExperts);
    double expected = 0;
    c.ops->RouterReport({.logits = c.logits.view(),
                         .forward = c.out(),
                         .counts = c.counts.data(),
                         .pooled = pooled.data(),
                         .pooled_layers = 3,
                         .slope = slope.data(),
                         .slope_scale = 0.5f,
                         .load = load.data(),
                         .balance = c.told.balance.data(),
                         .z = c.told.z.data(),
                         .entropy = c.told.entropy.data()},
                        c.shape);
    for (size_t e = 0; e < kExperts; ++e) {
      const int32_t sum = pooled[e] + pooled[kExperts + e] + pooled[2 * kExperts + e];
      EXPECT_EQ(load[e], c.counts[e]);
      EXPECT_FLOAT_EQ(slope[e], static_cast<float>(sum) / 6);
      for (int64_t r = 0; r < kRows; ++r) {
        const float* scores = c.scores.data() + r * kExperts;
        const double all = std::accumulate(scores, scores + kExperts, 0.0);
        expected += kExperts * (sum / 3.0) * static_cast<double>(scores[e]) / all / (kRows * kRows);
      }
    }
    EXPECT_NEAR(c.told.balance[0], expected, 1e-6 * expected);
  }
}

// More rows than any kernel sums up at once: each has its part.
TEST(RouterReport, ManyRowsAreAllCounted) {
  constexpr int64_t kMany = 8237;
  TestOps ops(2);
  const RouterShape shape{.num_experts = 2, .chosen = 1};
  TestMatrix logits(DType::kF32, kMany, 2);
  std::vector<float> scores, lse, weights(kMany);
  double expected_balance = 0, expected_z = 0, expected_entropy = 0;
  for (int64_t r = 0; r < kMany; ++r) {
    const float p = static_cast<float>(r) / kMany, z = static_cast<float>(r % 90);
    scores.push_back(p);
    scores.push_back(1 - p);
    lse.push_back(z);
    logits.Set(r, 0, 1);
    logits.Set(r, 1, 0);
    expected_balance += 2 * (3 * static_cast<double>(p) + 5 * (1 - static_cast<double>(p))) / (kMany * kMany);
    expected_z += static_cast<double>(z * z) / kMany;
    expected_entropy += static_cast<double>(z - p) / kMany;
  }
  std::vector<int32_t> experts(kMany), counts{3, 5};
  std::vector<int64_t> load(2);
  std::vector<double> balance{NAN}, z{NAN}, entropy{NAN};
  ops->RouterReport({.logits = logits.view(),
                     .forward = {scores.data(), experts.data(), weights.data(), lse.data()},
                     .counts = counts.data(),
                     .load = load.data(),
                     .balance = balance.data(),
                     .z = z.data(),
                     .entropy = entropy.data()},
                    shape);
  EXPECT_NEAR(balance[0], expected_balance, 1e-6 * expected_balance);
  EXPECT_NEAR(z[0], expected_z, 1e-9 * expected_z);
  EXPECT_NEAR(entropy[0], expected_entropy, 1e-6 * expected_entropy);
}

// A row whose sigmoids have all underflowed has no part in the balance loss.
TEST(RouterReport, ARowOfScoresOfZeroHasNoPart) {
  Rng rng(NewSeed());
  Case c(rng, RouterScore::kSigmoid);
  const auto balance = [&] {
    std::vector<int64_t> load(kExperts);
    c.ops->RouterReport({.logits = c.logits.view(),
                         .forward = c.out(),
                         .counts = c.counts.data(),
                         .load = load.data(),
                         .balance = c.told.balance.data(),
                         .z = c.told.z.data(),
                         .entropy = c.told.entropy.data()},
                        c.shape);
    return c.told.balance[0];
  };
  const double before = balance();
  double part = 0, sum = 0;
  for (size_t e = 0; e < kExperts; ++e) {
    const double score = std::exchange(c.scores[e], 0.0f);
    part += kExperts * score * c.counts[e] / (kRows * kRows);
    sum += score;
  }
  EXPECT_NEAR(balance(), before - part / sum, 1e-9);
}

TEST(RouterReport, TheSlopeAloneNeedsNothingElse) {
  Rng rng(NewSeed());
  Case c(rng, RouterScore::kSoftmax);
  std::vector<float> slope(kExperts, NAN);
  c.ops->RouterReport({.logits = c.logits.view(),
                       .forward = c.out(),
                       .counts = c.counts.data(),
                       .slope = slope.data(),
                       .slope_scale = 2},
                      c.shape);
  float sum = 0;
  for (const float s : slope) sum += s;
  EXPECT_EQ(sum, 2.0f * kRows * kChosen);
}

}  // namespace
}  // namespace holdfast::kernels
