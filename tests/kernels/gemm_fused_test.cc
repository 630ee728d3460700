// Proves what may be fused into a matrix product: GELU's derivative and the sums of A's columns, against double
// precision with rows where wide accesses may begin and where they may not.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/kernels/gemm_test_util.h"

namespace holdfast::kernels {
namespace {

double ReferenceGeluDerivative(double x) {
  const double slope = std::sqrt(2.0 / M_PI), t = std::tanh(slope * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * slope * (1 + 3 * 0.044715 * x * x);
}

int64_t StrideOf(int64_t cols, bool aligned) { return (cols + 7) / 8 * 8 + (aligned ? 8 : 3); }

// As the down projection's input gradient has it.
TEST(GemmFused, TimesTheDerivativeOfGelu) {
  Rng rng(NewSeed());
  TestOps ops(2);
  constexpr int64_t m = 37, n = 88, k = 72;
  for (const DType dtype : kDTypes) {
    for (const bool aligned : {true, false}) {
      TestMatrix a(dtype, m, k, StrideOf(k, aligned)), b(dtype, k, n, StrideOf(n, aligned));
      TestMatrix c(dtype, m, n, StrideOf(n, aligned)), x(dtype, m, n, StrideOf(n, aligned));
      a.Fill(rng);
      b.Fill(rng);
      x.Fill(rng, 2.0f);
      GemmArgs args;
      args.a = a.view();
      args.b = b.view();
      args.c = c.view();
      args.gelu_input = x.view();
      ops->Gemm(args);
      std::vector<double> expected;
      for (int64_t i = 0; i < m * n; ++i) {
        double sum = 0;
        for (int64_t l = 0; l < k; ++l)
          sum += static_cast<double>(a.Get(i / n, l)) * static_cast<double>(b.Get(l, i % n));
        expected.push_back(sum * ReferenceGeluDerivative(static_cast<double>(x.Get(i / n, i % n))));
      }
      // A bf16 product may be rounded before it is multiplied.
      EXPECT_LE(MaxError(c.Values(), expected, std::sqrt(static_cast<double>(k))), 2 * Tolerance(k, dtype)) << aligned;
      EXPECT_TRUE(c.PaddingIntact());
    }
  }
}

// As a weight's gradient has it, with that of the bias.
TEST(GemmFused, SumsTheColumnsOfA) {
  Rng rng(NewSeed());
  TestOps ops(2);
  for (const DType in : kDTypes) {
    for (const DType in_b : kDTypes) {
      for (const DType out : {DType::kF32, in}) {
        for (const int64_t k : {0, 1, 300}) {
          Problem problem({.m = 50, .n = 70, .k = k, .transpose_a = true, .in = in, .out = out, .in_b = in_b}, rng);
          const std::vector<double> expected = problem.Expected();
          std::vector<float> sums(50, NAN);
          std::vector<double> expected_sums(50, 0.0);
          for (int64_t i = 0; i < 50 * k; ++i) {
            expected_sums[static_cast<size_t>(i % 50)] += static_cast<double>(problem.a.Get(i / 50, i % 50));
          }
          GemmArgs args = problem.Args();
          args.a_sums = sums.data();
          ops->Gemm(args);
          const double typical = std::sqrt(static_cast<double>(k) + 1);
          EXPECT_LE(MaxError(problem.out.Values(), expected, typical), Tolerance(k, out)) << problem.c.Name();
          EXPECT_TRUE(problem.out.PaddingIntact());
          EXPECT_LE(MaxError(sums, expected_sums, typical), Tolerance(k, DType::kF32)) << problem.c.Name();
        }
      }
    }
  }
}

}  // namespace
}  // namespace holdfast::kernels
