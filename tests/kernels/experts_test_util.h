#pragma once
// Products of experts with given numbers of rows, against double precision.

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/experts.h"
#include "tests/kernels/kernel_test_util.h"

namespace holdfast::kernels {

/// What a product is added to.
enum class Onto : uint8_t { kNothing, kHeld, kBias, kWeighedBias };

/// Experts with so many rows each, and rows behind them that no expert takes; those are NaN, as what must not be read.
class ExpertProducts {
 public:
  ExpertProducts(const std::vector<int32_t>& counts, int64_t in, int64_t out, Rng& rng)
      : in_(in), out_(out), step_(in * out + 8), offsets_(counts.size() + 1) {
    std::partial_sum(counts.begin(), counts.end(), offsets_.begin() + 1);
    x_ = Random(taken() + kDropped, in, rng);
    d_y_ = Random(taken() + kDropped, out, rng);
    weights_ = TestMatrix(DType::kBF16, experts(), step_);
    weights_.Fill(rng);
    const int64_t widest = std::max(in, out);
    bias_ = TestMatrix(DType::kF32, experts(), widest, widest + 2);
    bias_.Fill(rng, 10.0f);
    choices_.resize(static_cast<size_t>(slots()));
    std::iota(choices_.rbegin(), choices_.rend(), 0);
    bias_weights_ = RandomVector(rng, slots());
  }

  void Check(TestOps& ops, Rng& rng) {
    for (const DType dtype : kDTypes) {
      for (const Onto onto : {Onto::kNothing, Onto::kHeld, Onto::kBias, Onto::kWeighedBias}) {
        SCOPED_TRACE((dtype == DType::kBF16 ? "bf16 onto " : "fp32 onto ") + std::to_string(static_cast<int>(onto)));
        CheckGemm(ops, true, dtype, onto, rng);
        CheckGemm(ops, false, dtype, onto, rng);
      }
    }
    CheckGradient(ops);
  }

  /// y with biases and dx in bf16, dw: with other rows and multiprocessors the same.
  std::vector<float> Products(TestOps& ops) {
    TestMatrix y(DType::kBF16, slots(), out_), dx(DType::kBF16, slots(), in_), dw(DType::kF32, experts(), step_);
    Gemm(ops, true, y, Onto::kWeighedBias);
    Gemm(ops, false, dx, Onto::kNothing);
    Gradient(ops, dw);
    std::vector<float> all;
    for (const TestMatrix* m : {&y, &dx, &dw}) {
      const std::vector<float> values = m->Values();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  /// y of the first `count` rows of expert `e`.
  std::vector<float> Outputs(TestOps& ops, size_t e, int32_t count) {
    TestMatrix y(DType::kBF16, slots(), out_);
    Gemm(ops, true, y, Onto::kNothing);
    std::vector<float> values = y.Values();
    const auto first = values.begin() + offsets_[e] * out_;
    return {first, first + count * out_};
  }

  /// Expert `e` gets the rows and the matrix of expert `other_e` of another.
  void Take(size_t e, int32_t count, const ExpertProducts& other, size_t other_e) {
    for (int32_t r = 0; r < count; ++r) {
      for (int64_t i = 0; i < in_; ++i) x_.Set(offsets_[e] + r, i, other.x_.Get(other.offsets_[other_e] + r, i));
    }
    for (int64_t i = 0; i < in_ * out_; ++i) {
      weights_.Set(static_cast<int64_t>(e), i, other.weights_.Get(static_cast<int64_t>(other_e), i));
    }
  }

 private:
  static constexpr int64_t kDropped = 3;

  int64_t experts() const { return static_cast<int64_t>(offsets_.size()) - 1; }
  int64_t taken() const { return offsets_.back(); }
  int64_t slots() const { return taken() + kDropped; }
  ExpertRows rows() const {
    return {.num_experts = experts(),
            .chosen = 1,
            .slots = slots(),
            .offsets = offsets_.data(),
            .choices = choices_.data()};
  }
  float BiasWeight(int64_t slot) const {
    return bias_weights_[static_cast<size_t>(choices_[static_cast<size_t>(slot)])];
  }
  double Weight(int64_t e, int64_t o, int64_t i) const { return static_cast<double>(weights_.Get(e, o * in_ + i)); }

  TestMatrix Random(int64_t rows, int64_t cols, Rng& rng) const {
    TestMatrix m(DType::kBF16, rows, cols, cols + 8);
    m.Fill(rng);
    for (int64_t r = taken(); r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) m.Set(r, c, NAN);
    }
    return m;
  }

  void Gemm(TestOps& ops, bool forward, TestMatrix& c, Onto onto) {
    const bool biased = onto == Onto::kBias || onto == Onto::kWeighedBias;
    const ConstMatrix first{weights_.view().data, DType::kBF16, out_, in_, in_};
    ops->ExpertGemm({.a = forward ? x_.view() : d_y_.view(),
                     .b = first,
                     .transpose_b = forward,
                     .b_step = step_,
                     .c = c.view(),
                     .accumulate = onto == Onto::kHeld,
                     .bias = biased ? static_cast<const float*>(bias_.view().data) : nullptr,
                     .bias_step = bias_.view().stride,
                     .bias_weights = onto == Onto::kWeighedBias ? bias_weights_.data() : nullptr},
                    rows());
  }
  void Gradient(TestOps& ops, TestMatrix& dw) {
    ops->ExpertGradient(
        {.a = d_y_.view(), .b = x_.view(), .c = {dw.view().data, DType::kF32, out_, in_, in_}, .c_step = step_},
        rows());
  }

  void CheckGemm(TestOps& ops, bool forward, DType dtype, Onto onto, Rng& rng) {
    const int64_t cols = forward ? out_ : in_, depth = forward ? in_ : out_;
    TestMatrix c(dtype, slots(), cols, cols + 8);
    if (onto == Onto::kHeld) c.Fill(rng, 10.0f);
    const TestMatrix before = c, &a = forward ? x_ : d_y_;
    Gemm(ops, forward, c, onto);
    std::vector<double> expected;
    std::vector<float> actual;
    for (int64_t e = 0; e < experts(); ++e) {
      for (int64_t r = offsets_[static_cast<size_t>(e)]; r < offsets_[static_cast<size_t>(e) + 1]; ++r) {
        for (int64_t col = 0; col < cols; ++col) {
          double sum = 0;
          if (onto == Onto::kHeld) sum = static_cast<double>(before.Get(r, col));
          if (onto == Onto::kBias || onto == Onto::kWeighedBias) sum = static_cast<double>(bias_.Get(e, col));
          if (onto == Onto::kWeighedBias) sum *= static_cast<double>(BiasWeight(r));
          for (int64_t k = 0; k < depth; ++k) {
            sum += static_cast<double>(a.Get(r, k)) * (forward ? Weight(e, col, k) : Weight(e, k, col));
          }
          expected.push_back(sum);
          actual.push_back(c.Get(r, col));
        }
      }
    }
    EXPECT_LE(MaxError(actual, expected), dtype == DType::kBF16 ? kBF16Rounding + 1e-4 : 1e-4);
    EXPECT_LE(RelativeError(actual, expected), dtype == DType::kBF16 ? 4e-3 : 1e-6);
    EXPECT_TRUE(c.PaddingIntact());
    for (int64_t r = taken(); r < slots(); ++r) {
      for (int64_t col = 0; col < cols; ++col) ASSERT_EQ(FloatToBits(c.Get(r, col)), FloatToBits(before.Get(r, col)));
    }
  }

  void CheckGradient(TestOps& ops) {
    TestMatrix dw(DType::kF32, experts(), step_);
    Gradient(ops, dw);
    std::vector<double> expected;
    std::vector<float> actual;
    for (int64_t e = 0; e < experts(); ++e) {
      for (int64_t o = 0; o < out_; ++o) {
        for (int64_t i = 0; i < in_; ++i) {
          double sum = 0;
          for (int64_t r = offsets_[static_cast<size_t>(e)]; r < offsets_[static_cast<size_t>(e) + 1]; ++r) {
            sum += static_cast<double>(d_y_.Get(r, o)) * static_cast<double>(x_.Get(r, i));
          }
          expected.push_back(sum);
          actual.push_back(dw.Get(e, o * in_ + i));
        }
      }
      for (int64_t i = out_ * in_; i < step_; ++i) ASSERT_TRUE(std::isnan(dw.Get(e, i)));  // between matrices
    }
    EXPECT_LE(MaxError(actual, expected), 1e-4);
    EXPECT_LE(RelativeError(actual, expected), 1e-6);
    EXPECT_TRUE(dw.PaddingIntact());
  }

  int64_t in_, out_, step_;
  std::vector<int32_t> offsets_, choices_;
  std::vector<float> bias_weights_;
  TestMatrix bias_{DType::kF32, 0, 1};
  TestMatrix x_{DType::kBF16, 0, 1}, d_y_{DType::kBF16, 0, 1}, weights_{DType::kBF16, 0, 1};
};

}  // namespace holdfast::kernels
