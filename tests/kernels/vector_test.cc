// Proves the flat operations and ColumnSum: exact where they are exact, against double precision where they round.

#include "tests/kernels/kernel_test_util.h"

namespace holdfast::kernels {
namespace {

constexpr int64_t kSizes[] = {0, 1, 7, 8, 9, 33, 50257, 200003};

TEST(Cast, ToBf16RoundsToNearestEvenForEveryPattern) {
  TestOps ops(2);
  // Each bf16 value with the lower bits that decide the rounding: below half, half, above, and the extremes.
  std::vector<float> in;
  for (uint32_t high = 0; high < 0x10000; ++high) {
    for (uint32_t low : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      in.push_back(BitsToFloat(high << 16 | low));
  }
  std::vector<uint16_t> out(in.size());
  ops->CastToBf16(out.data(), in.data(), static_cast<int64_t>(in.size()));
  for (size_t i = 0; i < in.size(); ++i) {
    if (std::isnan(in[i])) {
      ASSERT_TRUE(std::isnan(FromBf16(out[i]))) << i;
    } else {
      ASSERT_EQ(out[i], ToBf16(in[i])) << std::hex << FloatToBits(in[i]);
    }
  }
}

TEST(Cast, AllSizes) {
  Rng rng(NewSeed());
  TestOps ops(2);
  for (int64_t n : kSizes) {
    const auto values = RandomVector(rng, n);
    std::vector<uint16_t> half(static_cast<size_t>(n) + 1, 0x7fa7);
    ops->CastToBf16(half.data(), values.data(), n);
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(half[i], ToBf16(values[i]));
    EXPECT_EQ(half.back(), 0x7fa7);
  }
}

TEST(Vector, AddZeroCopy) {
  Rng rng(NewSeed());
  TestOps ops(2);
  for (int64_t n : kSizes) {
    auto a = RandomVector(rng, n), b = RandomVector(rng, n);
    const auto before = a;
    a.push_back(-7.0f);
    ops->Add(a.data(), b.data(), n);
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(a[i], before[i] + b[i]);
    EXPECT_EQ(a.back(), -7.0f);

    std::vector<unsigned char> from(static_cast<size_t>(n) * 11 + 1), to(from.size(), 0xee);
    for (auto& byte : from) byte = static_cast<unsigned char>(rng());
    ops->Copy(to.data(), from.data(), from.size() - 1);
    EXPECT_TRUE(std::equal(from.begin(), from.end() - 1, to.begin()));
    EXPECT_EQ(to.back(), 0xee);
    ops->Zero(to.data(), to.size() - 1);
    EXPECT_TRUE(std::all_of(to.begin(), to.end() - 1, [](unsigned char byte) { return byte == 0; }));
    EXPECT_EQ(to.back(), 0xee);
  }
}

TEST(ChunkSumSquares, MatchesLongDouble) {
  Rng rng(NewSeed());
  TestOps ops(2);
  const std::vector<int64_t> offsets = {3, 3, 4, 11, 19, 28, 61, 50318, 250321};
  auto x = RandomVector(rng, offsets.back() + 5);
  x[5] = 1e30f;  // its square is no fp32
  std::vector<double> sums(offsets.size() - 1, NAN), expected;
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    long double sum = 0;
    for (int64_t j = offsets[i]; j < offsets[i + 1]; ++j) sum += static_cast<long double>(x[j]) * x[j];
    expected.push_back(static_cast<double>(sum));
  }
  ops->ChunkSumSquares(sums.data(), x.data(), offsets.data(), static_cast<int64_t>(sums.size()));
  EXPECT_LE(MaxError(sums, expected, 1e-30), 1e-13);
  EXPECT_EQ(sums[0], 0);
}

TEST(ColumnSum, MatchesReference) {
  Rng rng(NewSeed());
  TestOps ops(2);
  for (DType dtype : kDTypes) {
    for (int64_t rows : {0, 1, 7, 16, 17, 100, 1100}) {
      for (int64_t cols : {1, 7, 8, 9, 33, 600}) {
        TestMatrix in(dtype, rows, cols, cols + 5);
        in.Fill(rng);
        std::vector<float> out(static_cast<size_t>(cols), NAN);
        std::vector<double> expected(static_cast<size_t>(cols), 0.0);
        ops->ColumnSum(out.data(), in.view());
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t c = 0; c < cols; ++c) expected[c] += in.Get(r, c);
        }
        const double typical = std::sqrt(static_cast<double>(rows) + 1);
        EXPECT_LE(MaxError(out, expected, typical), 5e-6) << rows << " x " << cols;
      }
    }
  }
}

TEST(Vector, SumsHaveTheSameBitsForAnyThreadCount) {
  const uint64_t seed = NewSeed();
  ExpectSameBitsForAnyThreadCount([&](TestOps& ops) {
    Rng rng(seed);
    TestMatrix in(DType::kF32, 2000, 300);
    in.Fill(rng);
    std::vector<float> columns(300);
    ops->ColumnSum(columns.data(), in.view());
    const int64_t offsets[] = {0, 100, 5000, 600000};
    std::vector<double> sums(3);
    ops->ChunkSumSquares(sums.data(), static_cast<const float*>(in.view().data), offsets, 3);
    sums.insert(sums.end(), columns.begin(), columns.end());
    return sums;
  });
}

TEST(Axpby, IsOneFusedMultiplyAddOfARoundedProduct) {
  Rng rng(NewSeed());
  TestOps ops(2);
  for (const int64_t n : kSizes) {
    const std::vector<float> x = RandomVector(rng, n), y = RandomVector(rng, n);
    std::vector<float> out(x.size()), in_place = y;
    ops->Axpby(out.data(), 0.3f, x.data(), -0.7f, y.data(), n);
    ops->Axpby(in_place.data(), 0.3f, x.data(), -0.7f, in_place.data(), n);
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(FloatToBits(out[i]), FloatToBits(std::fma(0.3f, x[i], -0.7f * y[i]))) << i;
      ASSERT_EQ(FloatToBits(in_place[i]), FloatToBits(out[i])) << i;
    }
  }
}

}  // namespace
}  // namespace holdfast::kernels
