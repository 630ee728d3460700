// Proves that random numbers are Philox4x32-10 as published, that the vector code gives the scalar definition's values
// for any element, piece and thread, and that FillNormal is normal.

#include "kernels/philox.h"
#include "tests/kernels/kernel_test_util.h"

namespace holdfast::kernels {
namespace {

std::vector<uint32_t> Words(const RandomKey& key, uint64_t block) {
  const Philox4 words = Philox(key, block);
  return {words.v, words.v + 4};
}

// Known-answer vectors of Random123 (kat_vectors, philox4x32 10). Counter words 0 and 1 are block low, and site with
// bits 32-47 of block.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(Words({.seed = 0, .step = 0, .microbatch = 0, .site = 0}, 0),
            (std::vector<uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Words({.seed = ~0ull, .step = ~0u, .microbatch = ~0u, .site = 0xffff}, 0xffffffffffffull),
            (std::vector<uint32_t>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Words({.seed = 0x299f31d0a4093822ull, .step = 0x03707344, .microbatch = 0x13198a2e, .site = 0x85a3},
                  0x08d3243f6a88ull),
            (std::vector<uint32_t>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, EveryPartOfTheKeyMatters) {
  const RandomKey key = {.seed = 1, .step = 2, .microbatch = 3, .site = 4};
  const auto words = Words(key, 5);
  EXPECT_NE(words, Words(key, 6));
  EXPECT_NE(words, Words(key, 5 + (1ull << 32)));
  for (int part = 0; part < 7; ++part) {
    RandomKey other = key;
    if (part == 0) other.seed += 1;
    if (part == 1) other.seed += 1ull << 32;
    if (part == 2) other.step += 1;
    if (part == 3) other.microbatch += 1;
    if (part == 4) other.site += 1;
    if (part == 5) other.site += 1 << 16;  // a parameter of very many
    if (part == 6) other.site += 1 << 24;  // an adapter's
    EXPECT_NE(words, Words(other, 5)) << part;
  }
}

std::vector<float> Fill(TestOps& ops, int64_t n, int64_t first, float stddev, const RandomKey& key) {
  std::vector<float> out(static_cast<size_t>(n) + 1, -77.0f);
  ops->FillNormal(out.data(), n, first, stddev, key);
  EXPECT_EQ(out.back(), -77.0f) << "wrote beyond the end";
  out.pop_back();
  return out;
}

double BoxMullerReference(const RandomKey& key, int64_t e) {
  const Philox4 words = Philox(key, static_cast<uint64_t>(e) / 4);
  const int pair = e % 4 < 2 ? 0 : 2;
  const double u = (static_cast<double>(words.v[pair] >> 9) + 0.5) * 0x1p-23;
  const double angle = 2 * M_PI * words.v[pair + 1] * 0x1p-32;
  return std::sqrt(-2 * std::log(u)) * (e % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

TEST(FillNormal, MatchesBoxMullerInDoublePrecision) {
  Rng rng(NewSeed());
  const RandomKey key = RandomTestKey(rng);
  TestOps ops(1);
  const int64_t firsts[] = {0, 3, (1ll << 34) - 50};  // the last crosses a carry into the counter's second word
  for (int64_t first : firsts) {
    const auto values = Fill(ops, 20001, first, 0.5f, key);
    std::vector<double> expected;
    for (int64_t i = 0; i < 20001; ++i) expected.push_back(0.5 * BoxMullerReference(key, first + i));
    EXPECT_LE(MaxError(values, expected), 2e-6) << first;
  }
}

TEST(FillNormal, PiecesEqualTheWhole) {
  Rng rng(NewSeed());
  const RandomKey key = RandomTestKey(rng);
  TestOps ops(2);
  const int64_t n = 200000;  // several tasks
  const auto whole = Fill(ops, n, 0, 0.02f, key);
  for (int64_t first = 0; first < n;) {
    const int64_t count = std::min<int64_t>(n - first, static_cast<int64_t>(rng() % 5000) + 1);
    const auto piece = Fill(ops, count, first, 0.02f, key);
    ASSERT_TRUE(std::equal(piece.begin(), piece.end(), whole.begin() + first)) << first << " + " << count;
    first += count;
  }
}

TEST(FillNormal, MomentsAreNormal) {
  Rng rng(NewSeed());
  TestOps ops(1);
  const int64_t n = 1 << 22;
  const auto values = Fill(ops, n, 0, 3.0f, RandomTestKey(rng));
  double sum = 0, sum2 = 0, sum3 = 0, sum4 = 0, neighbours = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double z = values[i] / 3.0;
    sum += z, sum2 += z * z, sum3 += z * z * z, sum4 += z * z * z * z;
    if (i > 0) neighbours += z * (values[i - 1] / 3.0);
  }
  const double sigma = 1 / std::sqrt(static_cast<double>(n));  // six standard errors: fails once in 10^9 runs
  EXPECT_NEAR(sum / n, 0, 6 * sigma);
  EXPECT_NEAR(sum2 / n, 1, 6 * std::sqrt(2.0) * sigma);
  EXPECT_NEAR(sum3 / n, 0, 6 * std::sqrt(15.0) * sigma);
  EXPECT_NEAR(sum4 / n, 3, 6 * std::sqrt(96.0) * sigma);
  EXPECT_NEAR(neighbours / n, 0, 6 * sigma);
}

TEST(FillNormal, SameBitsForAnyThreadCount) {
  ExpectSameBitsForAnyThreadCount([](TestOps& ops) { return Fill(ops, 300001, 5, 1.0f, {.seed = 9}); });
}

}  // namespace
}  // namespace holdfast::kernels
