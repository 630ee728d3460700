// Proves biases of experts: that they are added to products before these are rounded, weighed or not; gradients of
// biases and of weights against double precision, for experts without rows, with all, and with dropped choices behind
// them, which are neither read nor written; bits depend neither on the number of threads nor on other experts' rows.

#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/experts.h"
#include "tests/kernels/kernel_test_util.h"

namespace holdfast::kernels {
namespace {

/// Experts with so many rows each, of two choices a row, and `dropped` choices that no expert takes. Which choice is in
/// a slot is random.
class RowsOfEach {
 public:
  RowsOfEach(const std::vector<int32_t>& counts, int32_t dropped, Rng& rng) : offsets_(counts.size() + 1) {
    std::partial_sum(counts.begin(), counts.end(), offsets_.begin() + 1);
    choices_.resize(static_cast<size_t>(offsets_.back() + dropped));
    std::iota(choices_.begin(), choices_.end(), 0);
    std::shuffle(choices_.begin(), choices_.end(), rng);
  }
  int64_t experts() const { return static_cast<int64_t>(offsets_.size()) - 1; }
  int64_t taken() const { return offsets_.back(); }
  int64_t slots() const { return static_cast<int64_t>(choices_.size()); }
  size_t choice(int64_t slot) const { return static_cast<size_t>(choices_[static_cast<size_t>(slot)]); }
  ExpertRows view() const {
    return {.num_experts = experts(),
            .chosen = 2,
            .slots = slots(),
            .offsets = offsets_.data(),
            .choices = choices_.data()};
  }
  /// Calls body(expert, slot) for each slot that an expert takes.
  template <typename Body>
  void ForTaken(const Body& body) const {
    for (int64_t e = 0; e < experts(); ++e) {
      for (int64_t slot = offsets_[static_cast<size_t>(e)]; slot < offsets_[static_cast<size_t>(e) + 1]; ++slot) {
        body(e, slot);
      }
    }
  }

 private:
  std::vector<int32_t> offsets_, choices_;
};

std::vector<RowsOfEach> AllRows(Rng& rng) {
  std::vector<RowsOfEach> all;
  all.emplace_back(std::vector<int32_t>{0, 3, 0, 20, 1, 0}, 4, rng);
  all.emplace_back(std::vector<int32_t>{18}, 0, rng);
  all.emplace_back(std::vector<int32_t>{0, 0, 75, 0, 0}, 1, rng);
  all.emplace_back(std::vector<int32_t>(70, 1), 2, rng);
  all.emplace_back(std::vector<int32_t>{0, 0}, 2, rng);
  return all;
}

float Rounded(DType dtype, float value) { return dtype == DType::kF32 ? value : FromBf16(ToBf16(value)); }

// In fp32, and what comes out is rounded once: so it has the bits of one multiplication and addition to the sums of the
// product without a bias.
TEST(ExpertBias, IsAddedToItsExpertsProduct) {
  Rng rng(NewSeed());
  TestOps ops(2);
  for (const RowsOfEach& rows : AllRows(rng)) {
    std::vector<std::pair<int64_t, int64_t>> shapes = {{8, 8}};  // an emulated GPU takes a tile for each expert
    if (rows.experts() < 10) shapes.insert(shapes.end(), {{1, 1}, {33, 33}, {64, 264}});
    for (const auto& [in, out] : shapes) {
      for (const int64_t padding : {3, 8}) {
        TestMatrix bias(DType::kF32, rows.experts(), out, out + padding);
        bias.Fill(rng);
        const std::vector<float> weights = RandomVector(rng, rows.slots());
        for (const DType of_operands : kDTypes) {
          TestMatrix x(of_operands, rows.slots(), in, in + padding);
          TestMatrix matrices(of_operands, rows.experts() * out, in, in + padding);
          TestMatrix sums(DType::kF32, rows.slots(), out, out + padding);
          x.Fill(rng);
          matrices.Fill(rng);
          ConstMatrix of_first = matrices.view();
          of_first.rows = out;
          ExpertGemmArgs args = {
              .a = x.view(), .b = of_first, .transpose_b = true, .b_step = out * of_first.stride, .c = sums.view()};
          ops->ExpertGemm(args, rows.view());
          args.bias = static_cast<const float*>(bias.view().data);
          args.bias_step = bias.view().stride;
          for (const DType dtype : kDTypes) {
            if (of_operands == DType::kF32 && dtype != DType::kF32) continue;
            for (const float* of_choices : {static_cast<const float*>(nullptr), weights.data()}) {
              TestMatrix y(dtype, rows.slots(), out, out + padding);
              const TestMatrix before = y;
              args.c = y.view();
              args.bias_weights = of_choices;
              ops->ExpertGemm(args, rows.view());
              std::vector<double> expected;
              std::vector<float> actual;
              rows.ForTaken([&](int64_t e, int64_t slot) {
                const float weight = of_choices == nullptr ? 1.0f : of_choices[rows.choice(slot)];
                for (int64_t c = 0; c < out; ++c) {
                  const float value = std::fma(weight, bias.Get(e, c), sums.Get(slot, c));
                  ASSERT_EQ(FloatToBits(y.Get(slot, c)), FloatToBits(Rounded(dtype, value))) << in << "x" << out;
                  double sum = static_cast<double>(weight) * static_cast<double>(bias.Get(e, c));
                  for (int64_t k = 0; k < in; ++k) {
                    sum += static_cast<double>(x.Get(slot, k)) * static_cast<double>(matrices.Get(e * out + c, k));
                  }
                  expected.push_back(sum);
                  actual.push_back(y.Get(slot, c));
                }
              });
              EXPECT_LE(RelativeError(actual, expected), dtype == DType::kF32 ? 1e-6 : 4e-3);
              for (int64_t slot = rows.taken(); slot < rows.slots(); ++slot) {
                for (int64_t c = 0; c < out; ++c) {
                  ASSERT_EQ(FloatToBits(y.Get(slot, c)), FloatToBits(before.Get(slot, c))) << "dropped";
                }
              }
              EXPECT_TRUE(y.PaddingIntact());
            }
          }
        }
      }
    }
  }
}

TEST(ExpertBias, GradientsAreSumsOfRows) {
  Rng rng(NewSeed());
  TestOps ops(2);
  for (const RowsOfEach& rows : AllRows(rng)) {
    for (const DType dtype : kDTypes) {
      for (const int64_t cols : {1, 8, 33, 264}) {
        for (const int64_t padding : {3, 8}) {
          TestMatrix bias(DType::kF32, rows.experts(), cols, cols + padding);
          TestMatrix d_out(dtype, rows.slots(), cols, cols + padding);
          bias.Fill(rng);
          d_out.Fill(rng);
          for (int64_t slot = rows.taken(); slot < rows.slots(); ++slot) {
            for (int64_t c = 0; c < cols; ++c) d_out.Set(slot, c, NAN);
          }
          const std::vector<float> weights = RandomVector(rng, rows.slots());
          for (const bool weighted : {false, true}) {
            TestMatrix d_bias(DType::kF32, rows.experts(), cols, cols + padding);
            const std::vector<float> held = RandomVector(rng, rows.slots());
            std::vector<float> d_weights = held;
            ops->ExpertBiasBackward({.d_out = d_out.view(),
                                     .weights = weighted ? weights.data() : nullptr,
                                     .d_bias = static_cast<float*>(d_bias.view().data),
                                     .d_bias_step = d_bias.view().stride,
                                     .bias = weighted ? static_cast<const float*>(bias.view().data) : nullptr,
                                     .bias_step = bias.view().stride,
                                     .d_weights = weighted ? d_weights.data() : nullptr},
                                    rows.view());
            std::vector<double> expected(static_cast<size_t>(rows.experts() * cols));
            std::vector<double> expected_d_weights(held.begin(), held.end());
            rows.ForTaken([&](int64_t e, int64_t slot) {
              for (int64_t c = 0; c < cols; ++c) {
                const double dy = d_out.Get(slot, c);
                expected[static_cast<size_t>(e * cols + c)] +=
                    dy * (weighted ? static_cast<double>(weights[rows.choice(slot)]) : 1.0);
                if (weighted) expected_d_weights[rows.choice(slot)] += dy * static_cast<double>(bias.Get(e, c));
              }
            });
            EXPECT_LE(MaxError(d_bias.Values(), expected), 1e-5);
            EXPECT_LE(MaxError(d_weights, expected_d_weights), 1e-5);
            EXPECT_TRUE(d_bias.PaddingIntact());
            for (int64_t slot = rows.taken(); slot < rows.slots(); ++slot) {
              EXPECT_EQ(d_weights[rows.choice(slot)], held[rows.choice(slot)]) << "dropped";
            }
            if (!weighted) continue;
            std::vector<float> alone = held;  // without the gradient of the biases
            ops->ExpertBiasBackward({.d_out = d_out.view(),
                                     .weights = weights.data(),
                                     .bias = static_cast<const float*>(bias.view().data),
                                     .bias_step = bias.view().stride,
                                     .d_weights = alone.data()},
                                    rows.view());
            EXPECT_EQ(alone, d_weights);
          }
        }
      }
    }
  }
}

// Wherever its rows lie, and in however many parts they are added up.
TEST(ExpertBias, GradientsOfAnExpertDependOnItsRowsAlone) {
  Rng rng(NewSeed());
  TestOps ops(3);
  const RowsOfEach rows({5, 128, 0, 300, 1153, 129}, 2, rng);
  const std::vector<float> weights = RandomVector(rng, rows.slots());
  for (const DType dtype : kDTypes) {
    for (const int64_t cols : {8, 300}) {
      TestMatrix d_out(dtype, rows.slots(), cols), d_bias(DType::kF32, rows.experts(), cols, cols + 4);
      d_out.Fill(rng);
      const auto backward = [&](ConstMatrix gradient, TestMatrix& sums, const ExpertRows& of_experts) {
        ops->ExpertBiasBackward({.d_out = gradient,
                                 .weights = weights.data(),
                                 .d_bias = static_cast<float*>(sums.view().data),
                                 .d_bias_step = sums.view().stride},
                                of_experts);
      };
      const ExpertRows all = rows.view();
      backward(d_out.view(), d_bias, all);
      std::vector<double> expected(static_cast<size_t>(rows.experts() * cols));
      rows.ForTaken([&](int64_t e, int64_t slot) {
        for (int64_t c = 0; c < cols; ++c) {
          expected[static_cast<size_t>(e * cols + c)] +=
              static_cast<double>(d_out.Get(slot, c)) * static_cast<double>(weights[rows.choice(slot)]);
        }
      });
      EXPECT_LE(RelativeError(d_bias.Values(), expected), 1e-5);
      EXPECT_TRUE(d_bias.PaddingIntact());
      for (int64_t e = 0; e < rows.experts(); ++e) {
        const int32_t first = all.offsets[e];
        const std::vector<int32_t> offsets{0, all.offsets[e + 1] - first};
        ConstMatrix of_expert = d_out.view();
        of_expert.data =
            static_cast<const char*>(of_expert.data) + static_cast<size_t>(first * of_expert.stride) * SizeOf(dtype);
        of_expert.rows = offsets[1];
        TestMatrix alone(DType::kF32, 1, cols);
        backward(of_expert, alone,
                 {.num_experts = 1,
                  .chosen = all.chosen,
                  .slots = offsets[1],
                  .offsets = offsets.data(),
                  .choices = all.choices + first});
        for (int64_t c = 0; c < cols; ++c) ASSERT_EQ(FloatToBits(alone.Get(0, c)), FloatToBits(d_bias.Get(e, c))) << e;
      }
    }
  }
}

TEST(ExpertBias, BitsDoNotDependOnThreads) {
  const uint64_t seed = NewSeed();
  for (const DType dtype : kDTypes) {
    ExpectSameBitsForAnyThreadCount([&](TestOps& ops) {
      Rng rng(seed);
      const RowsOfEach rows({50, 0, 430, 20}, 3, rng);  // one is cut where there are threads for it
      constexpr int64_t kCols = 600;                    // several stripes and tasks
      TestMatrix bias(DType::kF32, 4, kCols), d_bias(DType::kF32, 4, kCols);
      TestMatrix d_out(dtype, rows.slots(), kCols);
      bias.Fill(rng);
      d_out.Fill(rng);
      const std::vector<float> weights = RandomVector(rng, rows.slots());
      std::vector<float> all = RandomVector(rng, rows.slots());  // d_weights
      const auto* of_first = static_cast<const float*>(bias.view().data);
      constexpr int64_t kIn = 24;
      TestMatrix x(dtype, rows.slots(), kIn), matrices(dtype, 4 * kCols, kIn), out(dtype, rows.slots(), kCols);
      x.Fill(rng);
      matrices.Fill(rng);
      ConstMatrix first_matrix = matrices.view();
      first_matrix.rows = kCols;
      ops->ExpertGemm({.a = x.view(),
                       .b = first_matrix,
                       .transpose_b = true,
                       .b_step = kCols * kIn,
                       .c = out.view(),
                       .bias = of_first,
                       .bias_step = kCols,
                       .bias_weights = weights.data()},
                      rows.view());
      ops->ExpertBiasBackward({.d_out = d_out.view(),
                               .weights = weights.data(),
                               .d_bias = static_cast<float*>(d_bias.view().data),
                               .d_bias_step = kCols,
                               .bias = of_first,
                               .bias_step = kCols,
                               .d_weights = all.data()},
                              rows.view());
      for (const TestMatrix* m : {&out, &d_bias}) {
        const std::vector<float> values = m->Values();
        all.insert(all.end(), values.begin(), values.end());
      }
      return all;
    });
  }
}

}  // namespace
}  // namespace holdfast::kernels
