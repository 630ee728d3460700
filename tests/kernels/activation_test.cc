// Proves GELU, its derivative, SwiGLU and GeGLU in both directions against double precision, from tiny to saturating
// inputs.

#include "tests/kernels/kernel_test_util.h"

namespace holdfast::kernels {
namespace {

constexpr int64_t kWidths[] = {1, 7, 8, 9, 33, 1000};
constexpr GateKind kGates[] = {GateKind::kSilu, GateKind::kGelu};

/// Normal values with some far out, where the activations saturate.
void FillWide(TestMatrix& m, Rng& rng) {
  auto values = RandomVector(rng, m.rows() * m.cols(), 2.0f);
  const float special[] = {0.0f, -0.0f, 1e-20f, -1e-20f, 20.0f, -20.0f, 100.0f, -100.0f, 1e4f, -1e4f};
  for (size_t i = 0; i < values.size(); i += 5) values[i] = special[rng() % std::size(special)];
  m.Set(values);
}

double Gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

double GeluDerivative(double x) {
  const double k = std::sqrt(2 / M_PI), t = std::tanh(k * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * k * (1 + 3 * 0.044715 * x * x);
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

TEST(GeluForward, MatchesReference) {
  Rng rng(NewSeed());
  TestOps ops(2);
  for (DType dtype : kDTypes) {
    for (int64_t cols : kWidths) {
      TestMatrix in(dtype, 17, cols, cols + 3), out(dtype, 17, cols, cols + 1);
      FillWide(in, rng);
      ops->GeluForward(out.view(), in.view());
      std::vector<double> expected;
      for (int64_t r = 0; r < 17; ++r) {
        for (int64_t c = 0; c < cols; ++c) expected.push_back(Gelu(in.Get(r, c)));
      }
      EXPECT_LE(MaxError(out.Values(), expected), RoundingError(dtype));
      EXPECT_TRUE(out.PaddingIntact());
      ops->GeluForward(in.view(), in.view());
      EXPECT_EQ(in.Values(), out.Values()) << "in place";
    }
  }
}

TEST(GeluBackward, MatchesReference) {
  Rng rng(NewSeed());
  TestOps ops(2);
  for (DType dtype : kDTypes) {
    for (int64_t cols : kWidths) {
      TestMatrix in(dtype, 17, cols, cols + 3), d_out(dtype, 17, cols, cols + 1), d_in(dtype, 17, cols);
      FillWide(in, rng);
      d_out.Fill(rng);
      ops->GeluBackward(d_in.view(), d_out.view(), in.view());
      std::vector<double> expected;
      for (int64_t r = 0; r < 17; ++r) {
        for (int64_t c = 0; c < cols; ++c) expected.push_back(d_out.Get(r, c) * GeluDerivative(in.Get(r, c)));
      }
      EXPECT_LE(MaxError(d_in.Values(), expected), RoundingError(dtype));
      EXPECT_TRUE(d_in.PaddingIntact());
      ops->GeluBackward(d_out.view(), d_out.view(), in.view());
      EXPECT_EQ(d_out.Values(), d_in.Values()) << "in place";
    }
  }
}

/// Value and derivative.
std::pair<double, double> Activation(GateKind kind, double x) {
  if (kind == GateKind::kGelu) return {Gelu(x), GeluDerivative(x)};
  const double s = Sigmoid(x);
  return {x * s, s * (1 + x * (1 - s))};
}

TEST(Gated, BothDirectionsMatchReference) {
  Rng rng(NewSeed());
  TestOps ops(2);
  const auto check = [&](DType dtype, int64_t cols, GateKind kind) {
    TestMatrix gate_up(dtype, 9, 2 * cols, 2 * cols + 3), out(dtype, 9, cols, cols + 2), d_out(dtype, 9, cols);
    TestMatrix d_gate_up(dtype, 9, 2 * cols, 2 * cols + 1);
    FillWide(gate_up, rng);
    for (int64_t c = cols; c < 2 * cols; ++c) {  // up only scales: a large one would just blow up the rounding
      for (int64_t r = 0; r < 9; ++r) gate_up.Set(r, c, RandomVector(rng, 1)[0]);
    }
    d_out.Fill(rng);
    ops->GatedForward(out.view(), gate_up.view(), kind);
    ops->GatedBackward(d_gate_up.view(), d_out.view(), gate_up.view(), kind);
    std::vector<double> expected_out, expected_gradient(static_cast<size_t>(9 * 2 * cols));
    for (int64_t r = 0; r < 9; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        const double up = gate_up.Get(r, cols + c);
        const auto [value, slope] = Activation(kind, gate_up.Get(r, c));
        expected_out.push_back(value * up);
        expected_gradient[r * 2 * cols + c] = d_out.Get(r, c) * up * slope;
        expected_gradient[r * 2 * cols + cols + c] = d_out.Get(r, c) * value;
      }
    }
    EXPECT_LE(MaxError(out.Values(), expected_out), RoundingError(dtype)) << cols;
    EXPECT_LE(MaxError(d_gate_up.Values(), expected_gradient), RoundingError(dtype)) << cols;
    EXPECT_TRUE(out.PaddingIntact() && d_gate_up.PaddingIntact());
    ops->GatedBackward(gate_up.view(), d_out.view(), gate_up.view(), kind);
    EXPECT_EQ(gate_up.Values(), d_gate_up.Values()) << "in place";
  };
  for (DType dtype : kDTypes) {
    for (int64_t cols : kWidths) {
      for (GateKind kind : kGates) {
        SCOPED_TRACE(kind == GateKind::kGelu ? "gelu" : "silu");
        check(dtype, cols, kind);
      }
    }
  }
}

// Times 1 nothing is rounded, so a gate has GELU's own bits.
TEST(Gated, GeluIsThatOfGelu) {
  Rng rng(NewSeed());
  TestOps ops(2);
  for (DType dtype : kDTypes) {
    TestMatrix gate_up(dtype, 9, 66), d_gate_up(dtype, 9, 66), out(dtype, 9, 33), d_out(dtype, 9, 33);
    TestMatrix gelu(dtype, 9, 33), d_gelu(dtype, 9, 33);
    FillWide(gate_up, rng);
    for (int64_t r = 0; r < 9; ++r) {
      for (int64_t c = 33; c < 66; ++c) gate_up.Set(r, c, 1.0f);
    }
    d_out.Fill(rng);
    ConstMatrix gate = gate_up.view();
    gate.cols = 33;
    ops->GatedForward(out.view(), gate_up.view(), GateKind::kGelu);
    ops->GatedBackward(d_gate_up.view(), d_out.view(), gate_up.view(), GateKind::kGelu);
    ops->GeluForward(gelu.view(), gate);
    ops->GeluBackward(d_gelu.view(), d_out.view(), gate);
    EXPECT_EQ(out.Values(), gelu.Values());
    for (int64_t r = 0; r < 9; ++r) {
      for (int64_t c = 0; c < 33; ++c) EXPECT_EQ(d_gate_up.Get(r, c), d_gelu.Get(r, c)) << r << ", " << c;
    }
  }
}

// A NaN that a kernel swallows is an error that no monitor sees.
TEST(Activations, KeepNaN) {
  TestOps ops(1);
  TestMatrix in(DType::kF32, 1, 16), ones(DType::kF32, 1, 16), one(DType::kF32, 1, 8), out(DType::kF32, 1, 8);
  TestMatrix d_in(DType::kF32, 1, 16);
  in.Set(std::vector<float>(16, NAN));
  ones.Set(std::vector<float>(16, 1.0f));
  one.Set(std::vector<float>(8, 1.0f));
  ops->GeluBackward(d_in.view(), ones.view(), in.view());
  for (float value : d_in.Values()) EXPECT_TRUE(std::isnan(value));
  for (GateKind kind : kGates) {
    ops->GatedForward(out.view(), in.view(), kind);
    for (float value : out.Values()) EXPECT_TRUE(std::isnan(value));
    ops->GatedBackward(d_in.view(), one.view(), in.view(), kind);
    for (float value : d_in.Values()) EXPECT_TRUE(std::isnan(value));
  }
}

TEST(Activations, SameBitsForAnyThreadCount) {
  const uint64_t seed = NewSeed();
  ExpectSameBitsForAnyThreadCount([&](TestOps& ops) {
    Rng rng(seed);
    TestMatrix gate_up(DType::kBF16, 200, 1000), d_out(DType::kBF16, 200, 500), d_gate_up(DType::kBF16, 200, 1000);
    gate_up.Fill(rng);
    d_out.Fill(rng);
    ops->GatedBackward(d_gate_up.view(), d_out.view(), gate_up.view(), GateKind::kSilu);
    ops->GeluBackward(d_gate_up.view(), d_gate_up.view(), gate_up.view());
    return d_gate_up.Values();
  });
}

}  // namespace
}  // namespace holdfast::kernels
