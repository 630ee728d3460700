#pragma once
// Matrix products to test with: cases, operands with their result in double precision, and the comparison.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/kernels/kernel_test_util.h"

namespace holdfast::kernels {

struct Case {
  int64_t m, n, k;
  bool transpose_a = false, transpose_b = false;
  DType in = DType::kF32, out = DType::kF32;
  bool accumulate = false, bias = false, gelu = false, keep_input = false;
  int64_t a_gap = 3;     ///< values between the rows of A
  bool aligned = false;  ///< instead, rows of all matrices begin at multiples of 16 bytes, as a model's do
  std::optional<DType> in_b = std::nullopt;  ///< of B, if it is not `in`

  DType TypeOfB() const { return in_b.value_or(in); }

  std::string Name() const {
    return std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) + (transpose_a ? " T" : " N") +
           (transpose_b ? "T " : "N ") + TypeName(in) +
           (TypeOfB() != in ? std::string("*") + TypeName(TypeOfB()) : "") + "->" + TypeName(out) +
           (accumulate ? " +C" : "") + (bias ? " bias" : "") + (gelu ? " gelu" : "") + (keep_input ? " pre" : "") +
           (aligned ? " aligned" : "");
  }

  static const char* TypeName(DType dtype) { return dtype == DType::kBF16 ? "bf16" : "fp32"; }

  /// Between the starts of rows of so many values, `gap` apart.
  int64_t Stride(int64_t cols, int64_t gap) const { return aligned ? (cols + 7) / 8 * 8 : cols + gap; }
};

/// Operands of one case; where rows of C are apart from each other, poison is between them.
struct Problem {
  Case c;
  TestMatrix a, b, out, pre_gelu;
  std::vector<float> bias;

  Problem(const Case& c_in, Rng& rng)
      : c(c_in),
        a(c.in, c.transpose_a ? c.k : c.m, c.transpose_a ? c.m : c.k, c.Stride(c.transpose_a ? c.m : c.k, c.a_gap)),
        b(c.TypeOfB(), c.transpose_b ? c.n : c.k, c.transpose_b ? c.k : c.n, c.Stride(c.transpose_b ? c.k : c.n, 5)),
        out(c.out, c.m, c.n, c.Stride(c.n, 7)),
        pre_gelu(c.in, c.m, c.n, c.Stride(c.n, 1)),
        bias(RandomVector(rng, c.n)) {
    a.Fill(rng);
    b.Fill(rng);
    if (c.accumulate) out.Fill(rng);
    // A device may round the bias of a bf16 product first; with little to be summed that would show.
    for (float& value : bias) value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0xffff0000u);
  }

  GemmArgs Args() {
    GemmArgs args;
    args.a = a.view();
    args.transpose_a = c.transpose_a;
    args.b = b.view();
    args.transpose_b = c.transpose_b;
    args.c = out.view();
    args.accumulate = c.accumulate;
    if (c.bias) args.bias = bias.data();
    args.gelu = c.gelu;
    if (c.keep_input) args.pre_gelu = pre_gelu.view();
    return args;
  }

  /// The values before GELU, in double precision; call before running.
  std::vector<double> Expected() const {
    std::vector<double> values;
    for (int64_t i = 0; i < c.m; ++i) {
      for (int64_t j = 0; j < c.n; ++j) {
        double sum = c.accumulate ? static_cast<double>(out.Get(i, j)) : 0.0;
        if (c.bias) sum += static_cast<double>(bias[static_cast<size_t>(j)]);
        for (int64_t k = 0; k < c.k; ++k) {
          const float x = c.transpose_a ? a.Get(k, i) : a.Get(i, k);
          const float y = c.transpose_b ? b.Get(j, k) : b.Get(k, j);
          sum += static_cast<double>(x) * static_cast<double>(y);
        }
        values.push_back(sum);
      }
    }
    return values;
  }
};

inline double ReferenceGelu(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}

/// What rounding may do to one element, of its size plus that of a typical sum of `k` products: fp32 partial sums drift
/// as a random walk, then comes the rounding to the output's dtype. A dropped product is off by 1/sqrt(k).
inline double Tolerance(int64_t k, DType out) {
  const double drift = std::ldexp(8 + 4 * std::sqrt(static_cast<double>(k)), -24);
  return out == DType::kF32 ? drift : drift + std::ldexp(1, -8);
}

inline void ExpectCorrect(TestOps& ops, const Case& c, Rng& rng) {
  SCOPED_TRACE(c.Name());
  const double typical = std::sqrt(static_cast<double>(std::max<int64_t>(c.k, 1)));
  const auto allowed = [&](DType dtype) {
    const bool twice = ops.may_round_twice() && dtype == DType::kBF16 && (c.bias || c.accumulate);
    return (twice ? 2 : 1) * Tolerance(c.k, dtype);
  };
  Problem problem(c, rng);
  std::vector<double> expected = problem.Expected();
  ops->Gemm(problem.Args());
  if (c.keep_input) {
    EXPECT_LE(MaxError(problem.pre_gelu.Values(), expected, typical), allowed(c.in));
    EXPECT_TRUE(problem.pre_gelu.PaddingIntact());
  }
  if (c.gelu) {
    for (double& x : expected) x = ReferenceGelu(x);
  }
  EXPECT_LE(MaxError(problem.out.Values(), expected, typical), allowed(c.out));
  EXPECT_TRUE(problem.out.PaddingIntact());
}

inline std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (int transposes = 0; transposes < 4; ++transposes) {
    for (DType in : kDTypes) {
      for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1},
                                    {1, 100, 257},
                                    {3, 17, 64},
                                    {17, 3, 100},
                                    {64, 64, 64},
                                    {100, 33, 513},
                                    {257, 65, 17},
                                    {6, 16, 256}}) {
        for (const bool aligned : {false, true}) {
          cases.push_back({m, n, k, (transposes & 1) != 0, (transposes & 2) != 0, in});
          cases.back().aligned = aligned;
        }
      }
    }
  }
  return cases;
}

inline std::vector<float> Product(TestOps& ops, Problem problem) {
  ops->Gemm(problem.Args());
  return problem.out.Values();
}

}  // namespace holdfast::kernels
