// Proves LayerNorm and RMSNorm, forward (fused with residual and dropout) and backward, against double precision; the
// reference gradient is itself checked against central differences.

#include <numeric>

#include "tests/kernels/kernel_test_util.h"

namespace holdfast::kernels {
namespace {

using Doubles = std::vector<double>;

struct NormCase {
  NormKind kind;
  DType dtype;
  int64_t rows, cols;
};

std::vector<NormCase> Cases() {
  std::vector<NormCase> cases;
  for (NormKind kind : {NormKind::kLayerNorm, NormKind::kRmsNorm}) {
    for (DType dtype : kDTypes) {
      for (int64_t cols : {1, 7, 8, 9, 33, 768}) cases.push_back({kind, dtype, 5, cols});
      cases.push_back({kind, dtype, 1100, 40});  // more than 64 blocks of 16 rows
    }
  }
  return cases;
}

struct Row {
  double mean, rstd;
};

Row Statistics(const Doubles& x, NormKind kind, double eps) {
  double mean = 0, squares = 0;
  if (kind == NormKind::kLayerNorm) {
    for (double v : x) mean += v;
    mean /= static_cast<double>(x.size());
  }
  for (double v : x) squares += (v - mean) * (v - mean);
  return {mean, 1 / std::sqrt(squares / static_cast<double>(x.size()) + eps)};
}

Doubles NormRow(const Doubles& x, const Doubles& weight, const Doubles& bias, NormKind kind, double eps) {
  const Row row = Statistics(x, kind, eps);
  Doubles out;
  for (size_t c = 0; c < x.size(); ++c) out.push_back((x[c] - row.mean) * row.rstd * weight[c] + bias[c]);
  return out;
}

/// Gradient of sum(d_out * norm(x)) with respect to x, by the chain rule through mean and variance.
Doubles NormRowGradient(const Doubles& x, const Doubles& weight, const Doubles& d_out, NormKind kind, double eps) {
  const Row row = Statistics(x, kind, eps);
  const double n = static_cast<double>(x.size());
  double sum_g = 0, sum_gx = 0;
  for (size_t c = 0; c < x.size(); ++c) {
    const double g = d_out[c] * weight[c];
    sum_g += kind == NormKind::kLayerNorm ? g : 0;
    sum_gx += g * (x[c] - row.mean) * row.rstd;
  }
  Doubles gradient;
  for (size_t c = 0; c < x.size(); ++c) {
    const double normalized = (x[c] - row.mean) * row.rstd;
    gradient.push_back(row.rstd * (d_out[c] * weight[c] - sum_g / n - normalized * sum_gx / n));
  }
  return gradient;
}

Doubles RowValues(const TestMatrix& m, int64_t r) {
  Doubles values;
  for (int64_t c = 0; c < m.cols(); ++c) values.push_back(m.Get(r, c));
  return values;
}

Doubles ToDouble(const std::vector<float>& x) { return {x.begin(), x.end()}; }

TEST(Norm, ReferenceGradientMatchesCentralDifferences) {
  Rng rng(NewSeed());
  for (NormKind kind : {NormKind::kLayerNorm, NormKind::kRmsNorm}) {
    Doubles x = ToDouble(RandomVector(rng, 9));
    const Doubles weight = ToDouble(RandomVector(rng, 9)), d_out = ToDouble(RandomVector(rng, 9)), bias(9, 0.0);
    const auto loss = [&](const Doubles& at) {
      const Doubles y = NormRow(at, weight, bias, kind, 1e-5);
      return std::inner_product(y.begin(), y.end(), d_out.begin(), 0.0);
    };
    const Doubles gradient = NormRowGradient(x, weight, d_out, kind, 1e-5);
    for (size_t c = 0; c < 9; ++c) {
      Doubles up = x, down = x;
      up[c] += 1e-6, down[c] -= 1e-6;
      EXPECT_NEAR(gradient[c], (loss(up) - loss(down)) / 2e-6, 1e-6);
    }
  }
}

class Weights {
 public:
  Weights(Rng& rng, NormKind kind, int64_t cols) : weight_(RandomVector(rng, cols)) {
    if (kind == NormKind::kLayerNorm) bias_ = RandomVector(rng, cols);
    params_ = {kind, 1e-5f, weight_.data(), bias_.empty() ? nullptr : bias_.data()};
  }
  const NormParams& params() const { return params_; }
  Doubles weight() const { return ToDouble(weight_); }
  Doubles bias() const { return bias_.empty() ? Doubles(weight_.size(), 0.0) : ToDouble(bias_); }

 private:
  std::vector<float> weight_, bias_;
  NormParams params_;
};

TEST(NormForward, AddsDroppedBranchThenNormalizes) {
  Rng rng(NewSeed());
  TestOps ops(2);
  for (const auto& test : Cases()) {
    for (float rate : {0.0f, 0.2f}) {
      const Weights weights(rng, test.kind, test.cols);
      const Dropout dropout = {rate, RandomTestKey(rng)};
      TestMatrix residual(test.dtype, test.rows, test.cols, test.cols + 3), branch(test.dtype, test.rows, test.cols);
      TestMatrix sum(test.dtype, test.rows, test.cols, test.cols + 1), out(test.dtype, test.rows, test.cols);
      residual.Fill(rng, 3.0f);
      branch.Fill(rng);
      std::vector<float> mean(test.rows, NAN), rstd(test.rows, NAN);
      const NormStats stats = {mean.data(), rstd.data()};
      ops->NormForward(out.view(), sum.view(), stats, residual.view(), branch.view(), weights.params(), dropout);

      Doubles expected_sum, expected_out;
      for (int64_t r = 0; r < test.rows; ++r) {
        for (int64_t c = 0; c < test.cols; ++c) {
          const float factor = DropoutFactor(dropout, r * test.cols + c);
          expected_sum.push_back(residual.Get(r, c) + static_cast<double>(branch.Get(r, c)) * factor);
        }
        const Doubles x = RowValues(sum, r);  // as stored: the norm is of what the backward pass will read
        const Row row = Statistics(x, test.kind, 1e-5);
        if (test.kind == NormKind::kLayerNorm) {
          EXPECT_NEAR(mean[r], row.mean, 1e-5);
        }
        EXPECT_NEAR(rstd[r] / row.rstd, 1, 1e-4);
        const Doubles y = NormRow(x, weights.weight(), weights.bias(), test.kind, 1e-5);
        expected_out.insert(expected_out.end(), y.begin(), y.end());
      }
      EXPECT_LE(MaxError(sum.Values(), expected_sum), RoundingError(test.dtype));
      EXPECT_LE(MaxError(out.Values(), expected_out), RoundingError(test.dtype) + 2e-5) << test.cols;
      EXPECT_TRUE(out.PaddingIntact() && sum.PaddingIntact());

      TestMatrix in_place = residual, out2(test.dtype, test.rows, test.cols);
      ops->NormForward(out2.view(), in_place.view(), stats, in_place.view(), branch.view(), weights.params(), dropout);
      EXPECT_EQ(in_place.Values(), sum.Values());
      EXPECT_TRUE(out2.SameBits(out));
    }
  }
}

TEST(NormForward, WithoutABranchLeavesResidualOutAlone) {
  Rng rng(NewSeed());
  TestOps ops(1);
  for (DType dtype : kDTypes) {
    const Weights weights(rng, NormKind::kRmsNorm, 33);
    TestMatrix x(dtype, 4, 33), out(dtype, 4, 33), untouched(dtype, 4, 33);
    const TestMatrix poisoned = untouched;
    x.Fill(rng);
    std::vector<float> rstd(4);
    ops->NormForward(out.view(), untouched.view(), {nullptr, rstd.data()}, x.view(), {}, weights.params(), {0.5f, {}});
    EXPECT_TRUE(untouched.SameBits(poisoned));
    for (int64_t r = 0; r < 4; ++r) {
      const Doubles y = NormRow(RowValues(x, r), weights.weight(), weights.bias(), NormKind::kRmsNorm, 1e-5);
      EXPECT_LE(MaxError(RowValues(out, r), y), RoundingError(dtype) + 1e-5);
    }
  }
}

TEST(NormForward, LargeMeanKeepsItsVariance) {
  TestOps ops(1);
  TestMatrix x(DType::kF32, 1, 64), out(DType::kF32, 1, 64);
  for (int64_t c = 0; c < 64; ++c) x.Set(0, c, 4096.0f + static_cast<float>(c % 2));
  const std::vector<float> one(64, 1.0f), zero(64, 0.0f);
  std::vector<float> mean(1), rstd(1);  // not on the stack, which a GPU does not see
  ops->NormForward(out.view(), {}, {mean.data(), rstd.data()}, x.view(), {},
                   {NormKind::kLayerNorm, 1e-5f, one.data(), zero.data()}, {});
  for (int64_t c = 0; c < 64; ++c) EXPECT_NEAR(out.Get(0, c), c % 2 == 0 ? -1 : 1, 1e-4);
}

TEST(NormBackward, MatchesReference) {
  Rng rng(NewSeed());
  TestOps ops(2);
  for (const auto& test : Cases()) {
    if (test.cols == 1) continue;  // the norm of one value is constant: its gradient is what cancellation leaves
    for (bool with_residual : {false, true}) {
      const Weights weights(rng, test.kind, test.cols);
      TestMatrix input(test.dtype, test.rows, test.cols, test.cols + 3), d_out(test.dtype, test.rows, test.cols);
      TestMatrix d_residual(test.dtype, test.rows, test.cols, test.cols + 2);
      TestMatrix d_input(test.dtype, test.rows, test.cols, test.cols + 1);
      input.Fill(rng, 2.0f);
      d_out.Fill(rng);
      d_residual.Fill(rng);
      std::vector<float> mean(test.rows), rstd(test.rows), d_weight(test.cols, NAN), d_bias(test.cols, NAN);
      Doubles expected, expected_weight(test.cols), expected_bias(test.cols);
      for (int64_t r = 0; r < test.rows; ++r) {
        const Doubles x = RowValues(input, r), dy = RowValues(d_out, r);
        const Row row = Statistics(x, test.kind, 1e-5);
        mean[r] = static_cast<float>(row.mean), rstd[r] = static_cast<float>(row.rstd);
        Doubles gradient = NormRowGradient(x, weights.weight(), dy, test.kind, 1e-5);
        for (int64_t c = 0; c < test.cols; ++c) {
          expected.push_back(gradient[c] + (with_residual ? d_residual.Get(r, c) : 0));
          expected_weight[c] += dy[c] * (x[c] - row.mean) * row.rstd;
          expected_bias[c] += dy[c];
        }
      }
      const NormStats stats = {mean.data(), rstd.data()};
      float* bias_out = test.kind == NormKind::kLayerNorm ? d_bias.data() : nullptr;
      const ConstMatrix base = with_residual ? ConstMatrix(d_residual.view()) : ConstMatrix{};
      ops->NormBackward(d_input.view(), d_weight.data(), bias_out, base, d_out.view(), input.view(), stats,
                        weights.params());
      EXPECT_LE(MaxError(d_input.Values(), expected), RoundingError(test.dtype) + 1e-5);
      const double typical = std::sqrt(static_cast<double>(test.rows));
      EXPECT_LE(MaxError(d_weight, expected_weight, typical), 1e-5);
      if (bias_out != nullptr) {
        EXPECT_LE(MaxError(d_bias, expected_bias, typical), 1e-5);
      }
      EXPECT_TRUE(d_input.PaddingIntact());
      if (!with_residual) continue;
      ops->NormBackward(d_residual.view(), nullptr, nullptr, d_residual.view(), d_out.view(), input.view(), stats,
                        weights.params());
      EXPECT_EQ(d_residual.Values(), d_input.Values()) << "d_input may be d_residual";
    }
  }
}

TEST(Norm, GroupsOfColumnsAreRowsSideBySide) {
  Rng rng(NewSeed());
  TestOps ops(2);
  constexpr int64_t kRows = 37, kGroups = 3;
  for (DType dtype : kDTypes) {
    for (int64_t cols : {8, 64, 136}) {
      const Weights weights(rng, NormKind::kRmsNorm, cols);
      NormParams grouped = weights.params();
      grouped.groups = kGroups;
      TestMatrix x(dtype, kRows, kGroups * cols, kGroups * cols + 16), out(dtype, kRows, kGroups * cols);
      TestMatrix gradient(dtype, kRows, kGroups * cols, kGroups * cols + 8);
      TestMatrix rows(dtype, kRows * kGroups, cols), rows_out(dtype, kRows * kGroups, cols);
      TestMatrix rows_gradient(dtype, kRows * kGroups, cols);
      x.Fill(rng);
      gradient.Fill(rng);
      const auto group_of = [&](int64_t i) { return std::pair(i / kGroups, i % kGroups * cols); };
      for (int64_t i = 0; i < kRows * kGroups; ++i) {
        const auto [row, col] = group_of(i);
        for (int64_t c = 0; c < cols; ++c) {
          rows.Set(i, c, x.Get(row, col + c));
          rows_gradient.Set(i, c, gradient.Get(row, col + c));
        }
      }
      std::vector<float> rstd(kRows * kGroups, NAN), rows_rstd = rstd, d_weight(cols, NAN), rows_d_weight = d_weight;
      ops->NormForward(out.view(), {}, {nullptr, rstd.data()}, x.view(), {}, grouped, {});
      ops->NormForward(rows_out.view(), {}, {nullptr, rows_rstd.data()}, rows.view(), {}, weights.params(), {});
      ops->NormBackward(gradient.view(), d_weight.data(), nullptr, {}, gradient.view(), x.view(),
                        {nullptr, rstd.data()}, grouped);  // in the memory of d_out
      ops->NormBackward(rows_gradient.view(), rows_d_weight.data(), nullptr, {}, rows_gradient.view(), rows.view(),
                        {nullptr, rows_rstd.data()}, weights.params());
      EXPECT_EQ(rstd, rows_rstd);
      EXPECT_EQ(d_weight, rows_d_weight);
      int64_t different = 0;
      for (int64_t i = 0; i < kRows * kGroups; ++i) {
        const auto [row, col] = group_of(i);
        for (int64_t c = 0; c < cols; ++c) {
          different += FloatToBits(out.Get(row, col + c)) != FloatToBits(rows_out.Get(i, c));
          different += FloatToBits(gradient.Get(row, col + c)) != FloatToBits(rows_gradient.Get(i, c));
        }
      }
      EXPECT_EQ(different, 0) << "cols " << cols;
      EXPECT_TRUE(out.PaddingIntact() && gradient.PaddingIntact());
    }
  }
}

TEST(Norm, SameBitsForAnyThreadCount) {
  const uint64_t seed = NewSeed();
  for (NormKind kind : {NormKind::kLayerNorm, NormKind::kRmsNorm}) {
    ExpectSameBitsForAnyThreadCount([&](TestOps& ops) {
      Rng rng(seed);
      constexpr int64_t kRows = 1333, kCols = 200;
      const Weights weights(rng, kind, kCols);
      TestMatrix x(DType::kBF16, kRows, kCols), branch(DType::kBF16, kRows, kCols), out(DType::kBF16, kRows, kCols);
      x.Fill(rng);
      branch.Fill(rng);
      std::vector<float> mean(kRows), rstd(kRows), all(2 * kCols);
      const NormStats stats = {mean.data(), rstd.data()};
      ops->NormForward(out.view(), x.view(), stats, x.view(), branch.view(), weights.params(), {0.1f, {.seed = 5}});
      float* d_bias = kind == NormKind::kLayerNorm ? all.data() + kCols : nullptr;
      ops->NormBackward(branch.view(), all.data(), d_bias, {}, out.view(), x.view(), stats, weights.params());
      for (const TestMatrix* m : {&out, &x, &branch}) {
        const auto values = m->Values();
        all.insert(all.end(), values.begin(), values.end());
      }
      return all;
    });
  }
}

TEST(Norm, ARowDoesNotDependOnTheOthers) {
  Rng rng(NewSeed());
  TestOps ops(2);
  const Weights weights(rng, NormKind::kLayerNorm, 100);
  TestMatrix x(DType::kF32, 500, 100), out(DType::kF32, 500, 100), one(DType::kF32, 1, 100);
  x.Fill(rng);
  std::vector<float> mean(500), rstd(500);
  ops->NormForward(out.view(), {}, {mean.data(), rstd.data()}, x.view(), {}, weights.params(), {});
  ConstMatrix last = x.view();
  last.data = static_cast<const float*>(last.data) + 499 * 100;
  last.rows = 1;
  ops->NormForward(one.view(), {}, {mean.data(), rstd.data()}, last, {}, weights.params(), {});
  for (int64_t c = 0; c < 100; ++c) EXPECT_EQ(FloatToBits(one.Get(0, c)), FloatToBits(out.Get(499, c)));
}

}  // namespace
}  // namespace holdfast::kernels
