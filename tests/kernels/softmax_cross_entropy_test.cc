// Proves loss and gradient against double precision: both gradient types, in place and not, ignored targets, logits far
// from zero, and that what has no softmax comes out as NaN.

#include "tests/kernels/kernel_test_util.h"

namespace holdfast::kernels {
namespace {

struct Reference {
  std::vector<double> losses, gradient;
};

Reference CrossEntropy(const std::vector<float>& logits, int64_t cols, const std::vector<int32_t>& targets,
                       double scale) {
  Reference reference;
  for (size_t r = 0; r < targets.size(); ++r) {
    const float* row = logits.data() + r * cols;
    const double max = *std::max_element(row, row + cols);
    double sum = 0;
    for (int64_t c = 0; c < cols; ++c) sum += std::exp(row[c] - max);
    const bool ignored = targets[r] < 0;
    reference.losses.push_back(ignored ? 0 : std::log(sum) - (row[targets[r]] - max));
    for (int64_t c = 0; c < cols; ++c) {
      const double probability = std::exp(row[c] - max) / sum;
      reference.gradient.push_back(ignored ? 0 : scale * (probability - (c == targets[r] ? 1 : 0)));
    }
  }
  return reference;
}

std::vector<int32_t> Targets(Rng& rng, int64_t rows, int64_t cols) {
  std::vector<int32_t> targets;
  for (int64_t r = 0; r < rows; ++r) targets.push_back(static_cast<int32_t>(rng() % static_cast<uint64_t>(cols)));
  targets[0] = static_cast<int32_t>(cols - 1);
  targets[static_cast<size_t>(rows) / 2] = -1;
  return targets;
}

/// Relative to the element, with a floor for the target, where probability - 1 cancels.
void ExpectGradient(const TestMatrix& actual, const Reference& reference, double scale, const char* what) {
  std::vector<float> values = actual.Values();
  EXPECT_LE(MaxError(values, reference.gradient, scale * 5e-2), RoundingError(actual.dtype()) * 2) << what;
}

TEST(SoftmaxCrossEntropy, MatchesReference) {
  Rng rng(NewSeed());
  TestOps ops(2);
  constexpr int64_t kRows = 5;
  for (int64_t cols : {1, 7, 8, 9, 33, 1024, 1025, 5000, 50257}) {
    for (float offset : {0.0f, -300.0f, 300.0f}) {
      TestMatrix logits(DType::kF32, kRows, cols, cols + 3);
      auto values = RandomVector(rng, kRows * cols, 4.0f);
      for (float& value : values) value += offset;
      logits.Set(values);
      const auto targets = Targets(rng, kRows, cols);
      const float scale = 0.125f;
      const Reference reference = CrossEntropy(values, cols, targets, scale);
      const TestMatrix before = logits;
      std::vector<float> losses(kRows, NAN);
      ops->SoftmaxCrossEntropy(losses.data(), {}, logits.view(), targets.data(), scale);
      EXPECT_LE(MaxError(losses, reference.losses), 2e-6) << cols << " offset " << offset;
      EXPECT_TRUE(logits.SameBits(before));
      for (DType dtype : kDTypes) {
        TestMatrix gradient(dtype, kRows, cols, cols + 1);
        std::vector<float> losses2(kRows, NAN);
        ops->SoftmaxCrossEntropy(losses2.data(), gradient.view(), logits.view(), targets.data(), scale);
        ExpectGradient(gradient, reference, scale, "out of place");
        EXPECT_EQ(losses2, losses);
        EXPECT_TRUE(gradient.PaddingIntact());

        TestMatrix shared = logits;  // in place: rows start where the logits' rows do
        Matrix view = shared.view();
        view.dtype = dtype;
        view.stride = view.stride * 4 / static_cast<int64_t>(SizeOf(dtype));
        ops->SoftmaxCrossEntropy(losses2.data(), view, shared.view(), targets.data(), scale);
        EXPECT_EQ(losses2, losses);
        for (int64_t r = 0; r < kRows; ++r) {
          const char* in_place = static_cast<const char*>(view.data) + r * view.stride * SizeOf(dtype);
          const Matrix apart = gradient.view();
          const char* expected = static_cast<const char*>(apart.data) + r * apart.stride * SizeOf(dtype);
          EXPECT_EQ(std::memcmp(in_place, expected, cols * SizeOf(dtype)), 0) << "in place, row " << r;
        }
        EXPECT_TRUE(shared.PaddingIntact());
      }
    }
  }
}

float LossOf(std::vector<float> row, int32_t target, std::vector<float>* gradient = nullptr) {
  TestOps ops(1);
  TestMatrix logits(DType::kF32, 1, static_cast<int64_t>(row.size()));
  logits.Set(row);
  std::vector<float> loss(1, -1.0f);  // not on the stack, which a GPU does not see
  const std::vector<int32_t> targets{target};
  ops->SoftmaxCrossEntropy(loss.data(), logits.view(), logits.view(), targets.data(), 1.0f);
  if (gradient != nullptr) *gradient = logits.Values();
  return loss[0];
}

TEST(SoftmaxCrossEntropy, MinusInfinityMasks) {
  std::vector<float> row(3000, -INFINITY), gradient;  // the whole first block is masked
  row[2000] = 1.0f, row[2001] = 1.0f;
  EXPECT_NEAR(LossOf(row, 2001, &gradient), std::log(2.0), 1e-6);
  EXPECT_EQ(gradient[0], 0);
  EXPECT_NEAR(gradient[2000], 0.5, 1e-6);
  EXPECT_NEAR(gradient[2001], -0.5, 1e-6);
  EXPECT_EQ(LossOf(row, 0), INFINITY);
}

TEST(SoftmaxCrossEntropy, WithoutASoftmaxIsNaN) {
  for (size_t at : {size_t{0}, size_t{31}, size_t{1500}, size_t{2999}}) {
    for (float bad : {NAN, INFINITY}) {
      std::vector<float> row(3000, 0.5f), gradient;
      row[at] = bad;
      EXPECT_TRUE(std::isnan(LossOf(row, 3, &gradient))) << at;
      for (float value : gradient) ASSERT_TRUE(std::isnan(value));
    }
  }
  EXPECT_TRUE(std::isnan(LossOf(std::vector<float>(3000, -INFINITY), 3)));
}

TEST(SoftmaxCrossEntropy, SameBitsForAnyThreadCount) {
  const uint64_t seed = NewSeed();
  ExpectSameBitsForAnyThreadCount([&](TestOps& ops) {
    Rng rng(seed);
    TestMatrix logits(DType::kF32, 67, 3001);
    logits.Fill(rng, 5.0f);
    const auto targets = Targets(rng, 67, 3001);
    std::vector<float> losses(67);
    ops->SoftmaxCrossEntropy(losses.data(), logits.view(), logits.view(), targets.data(), 1.0f / 64);
    auto values = logits.Values();
    values.insert(values.end(), losses.begin(), losses.end());
    return values;
  });
}

}  // namespace
}  // namespace holdfast::kernels
