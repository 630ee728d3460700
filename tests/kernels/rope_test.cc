// Proves the rotation against complex multiplication in double precision, and that the inverse undoes it.

#include <complex>

#include "tests/kernels/kernel_test_util.h"

namespace holdfast::kernels {
namespace {

std::vector<float> CosSin(int64_t sequence, int64_t head_dim, double theta = 10000) {
  std::vector<float> table(static_cast<size_t>(sequence * head_dim));
  for (int64_t t = 0; t < sequence; ++t) {
    for (int64_t i = 0; i < head_dim / 2; ++i) {
      const double angle = static_cast<double>(t) * std::pow(theta, -2.0 * static_cast<double>(i) / head_dim);
      table[t * head_dim + i] = static_cast<float>(std::cos(angle));
      table[t * head_dim + head_dim / 2 + i] = static_cast<float>(std::sin(angle));
    }
  }
  return table;
}

TEST(Rope, RotatesEveryPairAndLeavesOtherHeadsAlone) {
  Rng rng(NewSeed());
  TestOps ops(2);
  constexpr int64_t kSequence = 5, kRows = 2 * kSequence, kHeads = 3;
  for (DType dtype : kDTypes) {
    for (const auto& [head_dim, turned] : std::vector<std::pair<int64_t, int64_t>>{{2, 2},
                                                                                   {6, 6},
                                                                                   {16, 16},
                                                                                   {18, 18},
                                                                                   {64, 64},
                                                                                   {80, 80},
                                                                                   {128, 128},
                                                                                   {256, 256},
                                                                                   {16, 2},
                                                                                   {24, 16},
                                                                                   {30, 16},
                                                                                   {64, 32},
                                                                                   {64, 6},
                                                                                   {128, 96}}) {
      for (bool inverse : {false, true}) {
        const int64_t cols = (kHeads + 1) * head_dim;  // the last head is a value head: not rotated
        TestMatrix x(dtype, kRows, cols, cols + 7);
        x.Fill(rng);
        const TestMatrix before = x;
        const auto table = CosSin(kSequence, turned);
        ops->Rope(x.view(), table.data(), {kHeads, head_dim, turned}, kSequence, inverse);

        const auto unchanged = before.Values();
        std::vector<double> expected(unchanged.begin(), unchanged.end());
        for (int64_t r = 0; r < kRows; ++r) {
          for (int64_t h = 0; h < kHeads; ++h) {
            for (int64_t i = 0; i < turned / 2; ++i) {
              const double angle = (inverse ? -1.0 : 1.0) * static_cast<double>(r % kSequence) *
                                   std::pow(10000.0, -2.0 * static_cast<double>(i) / turned);
              const int64_t a = h * head_dim + i, b = a + turned / 2;
              const auto rotated = std::complex<double>(before.Get(r, a), before.Get(r, b)) * std::polar(1.0, angle);
              expected[r * cols + a] = rotated.real();
              expected[r * cols + b] = rotated.imag();
            }
          }
        }
        EXPECT_LE(MaxError(x.Values(), expected), RoundingError(dtype)) << head_dim << ", of which turned " << turned;
        EXPECT_TRUE(x.PaddingIntact());
      }
    }
  }
}

TEST(Rope, PositionsRestartWithEachDocument) {
  Rng rng(NewSeed());
  TestOps ops(2);
  constexpr int64_t kBatch = 2, kSequence = 12, kHeadDim = 16;
  const TestDocuments documents(kBatch, kSequence, {5, 1, 4});
  const auto table = CosSin(kSequence, kHeadDim);
  for (DType dtype : kDTypes) {
    TestMatrix together(dtype, kBatch * kSequence, kHeadDim);
    together.Fill(rng);
    TestMatrix alone = together;
    ops->Rope(together.view(), table.data(), {1, kHeadDim, kHeadDim}, {kSequence, documents.view().begin}, false);
    for (int64_t row = 0; row < kBatch * kSequence;) {  // each document as a sequence of its own
      const int64_t length = documents.view().end[row] - documents.view().begin[row];
      Matrix rows = alone.view();
      rows.data = static_cast<char*>(rows.data) + row * rows.stride * static_cast<int64_t>(SizeOf(dtype));
      rows.rows = length;
      ops->Rope(rows, table.data(), {1, kHeadDim, kHeadDim}, length, false);
      row += length;
    }
    EXPECT_TRUE(together.SameBits(alone));
  }
}

TEST(Rope, InverseUndoesIt) {
  Rng rng(NewSeed());
  TestOps ops(1);
  TestMatrix x(DType::kF32, 64, 4 * 64);
  x.Fill(rng);
  const auto before = x.Values();
  const auto table = CosSin(64, 64);
  ops->Rope(x.view(), table.data(), {4, 64, 64}, 64, false);
  EXPECT_GT(RelativeError(x.Values(), before), 0.1);
  ops->Rope(x.view(), table.data(), {4, 64, 64}, 64, true);
  EXPECT_LE(RelativeError(x.Values(), before), 1e-6);
}

TEST(Rope, SameBitsForAnyThreadCount) {
  const uint64_t seed = NewSeed();
  ExpectSameBitsForAnyThreadCount([&](TestOps& ops) {
    Rng rng(seed);
    TestMatrix x(DType::kBF16, 256, 8 * 64);
    x.Fill(rng);
    const auto table = CosSin(128, 64);
    ops->Rope(x.view(), table.data(), {8, 64, 64}, 128, false);
    return x.Values();
  });
}

}  // namespace
}  // namespace holdfast::kernels
