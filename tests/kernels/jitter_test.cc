// Proves that Jitter gives, bit for bit, what the scalar definition in kernels/philox.h gives, and that its factors are
// spread evenly over their range.

#include "tests/kernels/kernel_test_util.h"

namespace holdfast::kernels {
namespace {

TEST(Jitter, EqualsTheScalarDefinition) {
  Rng rng(NewSeed());
  TestOps ops(2);
  constexpr float kRange = 0.3f;
  for (const DType dtype : kDTypes) {
    for (const int64_t cols : {1, 7, 8, 33, 100, 768}) {
      for (const int64_t padding : {3, 8}) {
        const RandomKey key = RandomTestKey(rng);
        TestMatrix in(dtype, 5, cols, cols + padding), out(DType::kF32, 5, cols, cols + padding);
        in.Fill(rng);
        ops->Jitter(out.view(), in.view(), kRange, key);
        for (int64_t r = 0; r < in.rows(); ++r) {
          for (int64_t c = 0; c < cols; ++c) {
            const uint32_t word = PhiloxWord(key, static_cast<uint64_t>(r * cols + c));
            ASSERT_EQ(out.Get(r, c), in.Get(r, c) * JitterFactor(word, kRange)) << cols << " columns";
          }
        }
        EXPECT_TRUE(out.PaddingIntact());
        if (dtype != DType::kF32) continue;
        ops->Jitter(in.view(), in.view(), kRange, key);
        EXPECT_EQ(in.Values(), out.Values()) << "in place";
      }
    }
  }
}

TEST(Jitter, IsSpreadEvenlyAroundOne) {
  Rng rng(NewSeed());
  TestOps ops(1);
  constexpr int64_t kRows = 500, kCols = 501;
  TestMatrix x(DType::kF32, kRows, kCols);
  x.Set(std::vector<float>(kRows * kCols, 1.0f));
  ops->Jitter(x.view(), x.view(), 0.25f, RandomTestKey(rng));
  const double n = kRows * kCols;
  double sum = 0, squares = 0;
  for (const float value : x.Values()) {
    ASSERT_GE(value, 0.75f);
    ASSERT_LE(value, 1.25f);
    sum += static_cast<double>(value) - 1;
    squares += (static_cast<double>(value) - 1) * (static_cast<double>(value) - 1);
  }
  const double variance = 0.25 * 0.25 / 3;
  EXPECT_NEAR(sum / n, 0, 6 * std::sqrt(variance / n));
  EXPECT_NEAR(squares / n, variance, 0.01 * variance);
}

TEST(Jitter, SameBitsForAnyThreadCount) {
  const uint64_t seed = NewSeed();
  ExpectSameBitsForAnyThreadCount([&](TestOps& ops) {
    Rng rng(seed);
    TestMatrix x(DType::kF32, 301, 333);
    x.Fill(rng);
    ops->Jitter(x.view(), x.view(), 0.1f, RandomTestKey(rng));
    return x.Values();
  });
}

}  // namespace
}  // namespace holdfast::kernels
