// Proves attention sinks: forward and backward against the definition in double precision, whose softmax has one more
// score, with windows, documents, dropout and grouped heads; that nothing overflows, however far sink and scores are
// apart; that a row has the same bits alone as in its sequence; and that bits do not depend on the number of threads.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/kernels/attention_test_util.h"
#include "tests/kernels/cached_attention_util.h"

namespace holdfast::kernels::attention_test {
namespace {

TEST(AttentionSinks, AreOneMoreScoreOfTheSoftmax) {
  Rng rng(NewSeed());
  TestOps ops(3);
  for (DType dtype : kDTypes) {
    for (int64_t t : {1, 2, 33, 97}) ExpectCorrectWithSinks(ops, Shape(2, t, 2, 2, 16), dtype, rng);
    for (int64_t d : {8, 40, 256}) ExpectCorrectWithSinks(ops, Shape(1, 70, 3, 3, d), dtype, rng);
    ExpectCorrectWithSinks(ops, Shape(3, 190, 6, 2, 24), dtype, rng);  // more rows than a block of a GPU sums
    ExpectCorrectWithSinks(ops, Shape(2, 101, 4, 2, 16, 0.3f), dtype, rng);
    ExpectCorrectWithSinks(ops, Windowed(Shape(2, 150, 4, 2, 16), 20), dtype, rng);
    ExpectCorrectWithSinks(ops, Windowed(Shape(1, 90, 2, 1, 16, 0.3f), 1), dtype, rng);
    ExpectCorrectWithSinks(ops, InDocuments(Windowed(Shape(2, 150, 4, 2, 16), 40), {50, 3, 61}), dtype, rng);
    ExpectCorrectWithSinks(ops, NotCausal(Shape(1, 60, 2, 1, 24)), dtype, rng);
  }
}

TEST(AttentionSinks, AreOneInWholeChunks) {
  Rng rng(NewSeed());
  TestOps ops(3);
  for (const AttentionShape& shape :
       {Shape(2, 65, 2, 1, 64), Shape(1, 130, 8, 2, 64, 0.3f), Windowed(Shape(1, 150, 2, 1, 128), 50),
        InDocuments(Shape(1, 150, 2, 2, 64), {17, 60, 2}), Shape(1, 72, 2, 1, 96), Shape(2, 140, 2, 2, 8)}) {
    ExpectCorrectWithSinks(ops, shape, DType::kBF16, rng, Alignment::kSixteenBytes);
  }
}

/// Of one query and head, with outputs of 1 and gradients of 1 / D.
struct OneSink {
  float lse, sink;
  double expected_lse() const {
    const double a = lse, b = sink;
    return std::max(a, b) + std::log1p(std::exp(-std::abs(a - b)));
  }
  double left() const { return 1 / (1 + std::exp(double{sink} - double{lse})); }  // also where exp is infinite
};

TEST(AttentionSinks, NothingOverflows) {
  TestOps ops(2);
  constexpr int64_t kDim = 8;
  std::vector<OneSink> cases;
  for (const float lse : {0.0f, 3.0f, -80.0f, 80.0f, 1e4f, -1e4f, 3e38f, -3e38f}) {
    for (const float sink : {0.0f, 3.0f, -50.0f, 50.0f, 1e4f, -1e4f, 3e38f, -3e38f}) cases.push_back({lse, sink});
  }
  const auto heads = static_cast<int64_t>(cases.size());
  const AttentionShape shape = Shape(1, 1, heads, heads, kDim);
  std::vector<float> lse, sinks, d_sinks(cases.size(), NAN);
  for (const OneSink& c : cases) lse.push_back(c.lse), sinks.push_back(c.sink);
  TestMatrix out(DType::kF32, 1, heads * kDim), d_out(DType::kF32, 1, heads * kDim);
  out.Set(std::vector<float>(static_cast<size_t>(heads * kDim), 1.0f));
  d_out.Set(std::vector<float>(static_cast<size_t>(heads * kDim), 1.0f / kDim));
  ops->SinkForward(out.view(), lse.data(), sinks.data(), shape);
  ops->SinkBackward(d_sinks.data(), d_out.view(), out.view(), lse.data(), sinks.data(), shape);
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE("lse " + std::to_string(cases[i].lse) + " sink " + std::to_string(cases[i].sink));
    const double expected = cases[i].expected_lse(), left = cases[i].left();
    EXPECT_LE(std::abs(lse[i] - expected), 2e-7 * std::abs(expected) + 1e-6);
    for (int64_t c = 0; c < kDim; ++c) {
      EXPECT_NEAR(out.Get(0, static_cast<int64_t>(i) * kDim + c), left, 1e-6 * left + 1e-37);
    }
    if (std::abs(expected) > 1e5) {  // which as a float does not tell whether there is a sink
      EXPECT_TRUE(d_sinks[i] >= -1 && d_sinks[i] <= 0) << d_sinks[i];
    } else {  // 1e4 is off by up to 5e-4
      EXPECT_NEAR(d_sinks[i], -(1 - left) * left, 1e-5 + (std::abs(expected) < 1e3 ? 0 : 1e-3));
    }
  }
}

TEST(AttentionSinks, FarBelowTheScoresChangeNoBit) {
  Rng rng(NewSeed());
  TestOps ops(2);
  for (DType dtype : kDTypes) {
    Problem without(Shape(2, 40, 4, 2, 24), dtype, rng), with = without;
    with.sinks.assign(4, -1e30f);
    without.Run(ops);
    with.Run(ops);
    EXPECT_EQ(with.d_sinks, std::vector<float>(4, 0.0f));
    with.d_sinks.clear();
    const std::vector<float> a = without.Results(), b = with.Results();
    ASSERT_EQ(a.size(), b.size());
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
  }
}

// As generation calls it, with one row of each sequence.
TEST(AttentionSinks, ARowAloneHasTheBitsOfItsSequence) {
  Rng rng(NewSeed());
  TestOps ops(2);
  for (DType dtype : kDTypes) {
    const AttentionShape shape = Shape(2, 37, 3, 3, 24), rows = Shape(74, 1, 3, 3, 24);
    TestMatrix whole(dtype, 74, 72, 77);
    whole.Fill(rng);
    TestMatrix alone = whole;
    const std::vector<float> sinks = RandomVector(rng, 3, 2.0f);
    std::vector<float> lse = RandomVector(rng, 74 * 3, 3.0f), lse_of_rows(lse.size());
    const auto index = [&](int64_t row, int64_t h) {
      return static_cast<size_t>((row / shape.sequence * 3 + h) * shape.sequence + row % shape.sequence);
    };
    const auto for_all = [](const auto& body) {
      for (int64_t row = 0; row < 74; ++row) {
        for (int64_t h = 0; h < 3; ++h) body(row, h, static_cast<size_t>(row * 3 + h));
      }
    };
    for_all([&](int64_t row, int64_t h, size_t at) { lse_of_rows[at] = lse[index(row, h)]; });
    ops->SinkForward(whole.view(), lse.data(), sinks.data(), shape);
    ops->SinkForward(alone.view(), lse_of_rows.data(), sinks.data(), rows);
    EXPECT_TRUE(alone.SameBits(whole));
    for_all([&](int64_t row, int64_t h, size_t at) {
      ASSERT_EQ(FloatToBits(lse_of_rows[at]), FloatToBits(lse[index(row, h)])) << "row " << row << " head " << h;
    });
  }
}

TEST(AttentionSinks, FollowCachedAttention) {
  Rng rng(NewSeed());
  TestOps ops(2);
  for (DType dtype : kDTypes) {
    Problem problem(Windowed(Shape(2, 41, 4, 2, 24), 30), dtype, rng);
    problem.sinks = RandomVector(rng, 4, 2.0f);
    const Reference expected = Expected(problem.shape, problem.qkv, problem.d_out, problem.sinks);
    for (const std::vector<int64_t>& cut : Cuts(problem.shape.sequence)) {
      problem.lse.assign(problem.lse.size(), NAN);
      Continuation(problem).Run(ops, cut);
      ops->SinkForward(problem.out.view(), problem.lse.data(), problem.sinks.data(), problem.shape);
      EXPECT_LE(MaxError(problem.out.Values(), expected.out), 2 * RoundingError(dtype) + 1e-5);
      EXPECT_LE(MaxError(problem.lse, expected.lse), 4e-6);
    }
  }
}

TEST(AttentionSinks, BitsDoNotDependOnThreads) {
  Rng rng(NewSeed());
  for (DType dtype : kDTypes) {
    Problem problem(Shape(3, 130, 8, 4, 24), dtype, rng);
    problem.sinks = RandomVector(rng, 8, 2.0f);
    ExpectSameBitsForAnyThreadCount([&](TestOps& ops) {
      Problem copy = problem;
      copy.Run(ops);
      return copy.Results();
    });
  }
}

}  // namespace
}  // namespace holdfast::kernels::attention_test
