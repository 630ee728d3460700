// Proves what values become between two limits, and which gradients pass, with the same bits for any number of threads.

#include "tests/kernels/kernel_test_util.h"

namespace holdfast::kernels {
namespace {

TEST(Clip, LimitsValuesAndPassesGradientsOfThoseWithin) {
  Rng rng(NewSeed());
  TestOps ops(2);
  constexpr float kLimit = 0.75f;  // exact in bf16
  for (const DType dtype : kDTypes) {
    for (const int64_t cols : {1, 7, 8, 33, 768}) {
      for (const int64_t padding : {3, 8}) {
        TestMatrix in(dtype, 6, cols, cols + padding), out(dtype, 6, cols, cols + padding);
        TestMatrix gradient(dtype, 6, cols, cols + padding);
        in.Fill(rng);
        for (const float special : {kLimit, -kLimit, INFINITY, -INFINITY, NAN}) {
          in.Set(static_cast<int64_t>(rng() % 6), static_cast<int64_t>(rng() % static_cast<uint64_t>(cols)), special);
        }
        gradient.Fill(rng);
        const TestMatrix before = gradient;
        ops->Clip(out.view(), in.view(), kLimit);
        ops->ClipBackward(gradient.view(), in.view(), kLimit);
        for (int64_t r = 0; r < 6; ++r) {
          for (int64_t c = 0; c < cols; ++c) {
            const float x = in.Get(r, c);
            if (std::isnan(x)) {
              EXPECT_TRUE(std::isnan(out.Get(r, c)));
              continue;
            }
            ASSERT_EQ(out.Get(r, c), std::clamp(x, -kLimit, kLimit));
            ASSERT_EQ(gradient.Get(r, c), std::abs(x) < kLimit ? before.Get(r, c) : 0.0f) << x;
          }
        }
        EXPECT_TRUE(out.PaddingIntact() && gradient.PaddingIntact());
        ops->Clip(in.view(), in.view(), kLimit);
        EXPECT_TRUE(in.SameBits(out)) << "in place";
      }
    }
  }
}

TEST(Clip, SameBitsForAnyThreadCount) {
  const uint64_t seed = NewSeed();
  for (const DType dtype : kDTypes) {
    ExpectSameBitsForAnyThreadCount([&](TestOps& ops) {
      Rng rng(seed);
      TestMatrix in(dtype, 200, 515), out(dtype, 200, 515), gradient(dtype, 200, 515);  // seven tasks of 31 rows
      in.Fill(rng);
      gradient.Fill(rng);
      ops->Clip(out.view(), in.view(), 0.75f);
      ops->ClipBackward(gradient.view(), in.view(), 0.75f);
      auto values = out.Values();
      const auto gradients = gradient.Values();
      values.insert(values.end(), gradients.begin(), gradients.end());
      return values;
    });
  }
}

}  // namespace
}  // namespace holdfast::kernels
