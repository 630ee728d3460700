// Proves that ApplyDropout gives, bit for bit, what the scalar definition in kernels/philox.h gives.

#include "tests/kernels/kernel_test_util.h"

namespace holdfast::kernels {
namespace {

void ExpectScalarDropout(const TestMatrix& out, const TestMatrix& in, const Dropout& dropout) {
  TestMatrix expected = out;
  for (int64_t r = 0; r < in.rows(); ++r) {
    for (int64_t c = 0; c < in.cols(); ++c) {
      const float factor = DropoutFactor(dropout, r * in.cols() + c);
      expected.Set(r, c, factor == 0 ? 0.0f : in.Get(r, c) * factor);
    }
  }
  EXPECT_TRUE(out.SameBits(expected)) << in.rows() << " x " << in.cols();
  EXPECT_TRUE(out.PaddingIntact());
}

TEST(ApplyDropout, EqualsTheScalarDefinition) {
  Rng rng(NewSeed());
  TestOps ops(2);
  for (DType dtype : kDTypes) {
    for (int64_t cols : {1, 7, 8, 9, 33, 768, 50257}) {
      const Dropout dropout = {.rate = 0.3f, .key = RandomTestKey(rng)};
      TestMatrix in(dtype, 5, cols, cols + 3), out(dtype, 5, cols, cols + 9);
      in.Fill(rng);
      ops->ApplyDropout(out.view(), in.view(), dropout);
      ExpectScalarDropout(out, in, dropout);
      TestMatrix in_place = in;
      ops->ApplyDropout(in_place.view(), in_place.view(), dropout);
      EXPECT_EQ(in_place.Values(), out.Values());
    }
  }
}

TEST(AddDropout, AddsWhatApplyDropoutGives) {
  Rng rng(NewSeed());
  TestOps ops(2);
  for (DType dtype : kDTypes) {
    for (int64_t cols : {1, 7, 8, 33, 768}) {
      const Dropout dropout = {.rate = 0.3f, .key = RandomTestKey(rng)};
      TestMatrix in(dtype, 5, cols, cols + 3), sum(dtype, 5, cols, cols + 9);
      in.Fill(rng);
      sum.Fill(rng);
      TestMatrix expected = sum;
      for (int64_t r = 0; r < in.rows(); ++r) {
        for (int64_t c = 0; c < cols; ++c) {
          const float factor = DropoutFactor(dropout, r * cols + c);
          expected.Set(r, c, sum.Get(r, c) + (factor == 0 ? 0.0f : in.Get(r, c) * factor));
        }
      }
      ops->AddDropout(sum.view(), in.view(), dropout);
      EXPECT_TRUE(sum.SameBits(expected)) << cols;
      EXPECT_TRUE(sum.PaddingIntact());
    }
  }
}

TEST(ApplyDropout, RateZeroIsACopy) {
  Rng rng(NewSeed());
  TestOps ops(1);
  TestMatrix in(DType::kBF16, 9, 33, 40), out(DType::kBF16, 9, 33, 40);
  in.Fill(rng);
  ops->ApplyDropout(out.view(), in.view(), {});
  EXPECT_TRUE(out.SameBits(in));
}

TEST(ApplyDropout, DropsAnInfinityToZero) {
  TestOps ops(1);
  TestMatrix x(DType::kF32, 1, 64);
  x.Set(std::vector<float>(64, INFINITY));
  ops->ApplyDropout(x.view(), x.view(), {.rate = 0.5f, .key = {.seed = 3}});
  for (float value : x.Values()) EXPECT_TRUE(value == 0 || value == INFINITY) << value;
}

TEST(ApplyDropout, KeepsTheRightShare) {
  Rng rng(NewSeed());
  TestOps ops(1);
  for (float rate : {0.01f, 0.1f, 0.5f, 0.9f}) {
    TestMatrix x(DType::kF32, 1000, 1001);
    x.Set(std::vector<float>(1000 * 1001, 1.0f));
    ops->ApplyDropout(x.view(), x.view(), {.rate = rate, .key = RandomTestKey(rng)});
    double dropped = 0, sum = 0;
    for (float value : x.Values()) dropped += value == 0, sum += value;
    const double n = 1000 * 1001, sigma = std::sqrt(rate * (1 - rate) / n);
    EXPECT_NEAR(dropped / n, rate, 6 * sigma);
    EXPECT_NEAR(sum / n, 1, 6 * sigma / (1 - rate));
  }
}

TEST(ApplyDropout, SameBitsForAnyThreadCount) {
  const uint64_t seed = NewSeed();
  ExpectSameBitsForAnyThreadCount([&](TestOps& ops) {
    Rng rng(seed);
    TestMatrix x(DType::kBF16, 301, 333);
    x.Fill(rng);
    ops->ApplyDropout(x.view(), x.view(), {.rate = 0.1f, .key = RandomTestKey(rng)});
    return x.Values();
  });
}

}  // namespace
}  // namespace holdfast::kernels
