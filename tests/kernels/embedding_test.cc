// Proves both directions of the embedding against plain loops, with repeated tokens, dropout, odd widths and strides.

#include "tests/kernels/kernel_test_util.h"

namespace holdfast::kernels {
namespace {

constexpr int64_t kVocabulary = 50;
constexpr int64_t kSequence = 6;
constexpr int64_t kRows = 3 * kSequence;

struct EmbeddingCase {
  DType dtype;
  int64_t cols;
  bool position;
  float rate;
  bool documents = false;
  float scale = 1;
};

const TestDocuments& Packed() {
  static const TestDocuments documents(kRows / kSequence, kSequence, {2, 1, 4});
  return documents;
}

Positions PositionsOf(const EmbeddingCase& test) {
  return {kSequence, test.documents ? Packed().view().begin : nullptr};
}

std::vector<EmbeddingCase> Cases() {
  std::vector<EmbeddingCase> cases;
  for (DType dtype : kDTypes) {
    for (int64_t cols : {1, 7, 8, 9, 33, 129, 300}) {
      cases.push_back({dtype, cols, true, 0.0f});
      cases.push_back({dtype, cols, false, 0.0f});
      cases.push_back({dtype, cols, true, 0.25f});
      cases.push_back({dtype, cols, true, 0.0f, true});
      cases.push_back({dtype, cols, false, 0.25f, true});
      cases.push_back({dtype, cols, true, 0.25f, false, 2.75f});
      cases.push_back({dtype, cols, false, 0.0f, false, 5.25f});
    }
  }
  return cases;
}

std::vector<int32_t> RandomTokens(Rng& rng, int64_t rows) {
  std::vector<int32_t> tokens;
  for (int64_t r = 0; r < rows; ++r) tokens.push_back(static_cast<int32_t>(rng() % (kVocabulary / 5)) * 5);
  return tokens;
}

TEST(Embedding, ForwardMatchesReference) {
  Rng rng(NewSeed());
  TestOps ops(2);
  for (const auto& test : Cases()) {
    TestMatrix table(test.dtype, kVocabulary, test.cols, test.cols + 2),
        out(test.dtype, kRows, test.cols, test.cols + 5);
    TestMatrix position(test.dtype, kSequence, test.cols);
    table.Fill(rng);
    position.Fill(rng);
    const auto tokens = RandomTokens(rng, kRows);
    const Dropout dropout = {test.rate, RandomTestKey(rng)};
    ops->EmbeddingForward(out.view(), tokens.data(), table.view(), test.position ? position.view() : Matrix{},
                          PositionsOf(test), dropout, test.scale);
    std::vector<double> expected;
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < test.cols; ++c) {
        double value = double{test.scale} * table.Get(tokens[r], c);
        if (test.position) value += position.Get(PositionsOf(test).At(r), c);
        expected.push_back(value * DropoutFactor(dropout, r * test.cols + c));
      }
    }
    EXPECT_LE(MaxError(out.Values(), expected, 1e-3), RoundingError(test.dtype));
    EXPECT_TRUE(out.PaddingIntact());
  }
}

TEST(Embedding, ForwardOfBf16TableIntoFp32IsExact) {
  Rng rng(NewSeed());
  TestOps ops(1);
  TestMatrix table(DType::kBF16, kVocabulary, 33), out(DType::kF32, kRows, 33);
  table.Fill(rng);
  const auto tokens = RandomTokens(rng, kRows);
  ops->EmbeddingForward(out.view(), tokens.data(), table.view(), {}, kSequence, {}, 1);
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < 33; ++c) ASSERT_EQ(out.Get(r, c), table.Get(tokens[r], c));
  }
}

TEST(Embedding, BackwardAddsToBothTables) {
  Rng rng(NewSeed());
  TestOps ops(2);
  for (const auto& test : Cases()) {
    TestMatrix d_table(DType::kF32, kVocabulary, test.cols, test.cols + 1), d_out(test.dtype, kRows, test.cols);
    TestMatrix d_position(DType::kF32, kSequence, test.cols, test.cols + 4);
    d_table.Fill(rng);
    d_position.Fill(rng);
    d_out.Fill(rng);
    const auto tokens = RandomTokens(rng, kRows);
    const Dropout dropout = {test.rate, RandomTestKey(rng)};
    const auto table_before = d_table.Values(), position_before = d_position.Values();
    std::vector<double> expected_table(table_before.begin(), table_before.end());
    std::vector<double> expected_position(position_before.begin(), position_before.end());
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < test.cols; ++c) {
        const double value = d_out.Get(r, c) * DropoutFactor(dropout, r * test.cols + c);
        expected_table[tokens[r] * test.cols + c] += test.scale * value;
        if (test.position) expected_position[PositionsOf(test).At(r) * test.cols + c] += value;
      }
    }
    ops->EmbeddingBackward(d_table.view(), test.position ? d_position.view() : Matrix{}, tokens.data(), d_out.view(),
                           PositionsOf(test), dropout, test.scale);
    EXPECT_LE(MaxError(d_table.Values(), expected_table), 5e-6);
    EXPECT_LE(MaxError(d_position.Values(), expected_position), 5e-6);
    EXPECT_TRUE(d_table.PaddingIntact() && d_position.PaddingIntact());
    if (!test.position) continue;
    const std::vector<float> with_both = d_position.Values();  // the token table's is optional, too
    d_position.Set(position_before);
    ops->EmbeddingBackward({}, d_position.view(), tokens.data(), d_out.view(), PositionsOf(test), dropout, test.scale);
    EXPECT_EQ(d_position.Values(), with_both);
  }
}

TEST(Embedding, BackwardHasTheSameBitsForAnyThreadCount) {
  const uint64_t seed = NewSeed();
  ExpectSameBitsForAnyThreadCount([&](TestOps& ops) {
    Rng rng(seed);
    TestMatrix d_table(DType::kF32, kVocabulary, 777), d_out(DType::kBF16, 200 * kSequence, 777);
    TestMatrix d_position(DType::kF32, kSequence, 777);
    d_table.Fill(rng);
    d_position.Fill(rng);
    d_out.Fill(rng);
    const auto tokens = RandomTokens(rng, 200 * kSequence);
    const Dropout dropout = {0.1f, RandomTestKey(rng)};
    ops->EmbeddingBackward(d_table.view(), d_position.view(), tokens.data(), d_out.view(), kSequence, dropout, 1);
    auto values = d_table.Values();
    const auto position = d_position.Values();
    values.insert(values.end(), position.begin(), position.end());
    return values;
  });
}

}  // namespace
}  // namespace holdfast::kernels
