// Proves, with an emulated cuBLASLt whose speed the test decides, what a GPU asks of the library: what is fused by
// default and what cannot be, that tuning takes the faster way and the fastest algorithm whose sums have an order, and
// that a table of it is kept to.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/kernels/emulation/cublasLt.h"
#include "tests/kernels/emulation/emulated_queue.h"
#include "tests/kernels/gemm_test_util.h"

namespace holdfast::kernels {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr int64_t kRows = 24, kIn = 16, kOut = 32;

struct Matrices {
  TestMatrix x, d_y, weight, y, pre_gelu, d_x, d_weight;
  std::vector<float> bias, d_bias;

  /// `extra`: elements between the rows of what GELU reads; fused it has to be a multiple of 8.
  explicit Matrices(int64_t extra = 0)
      : x(DType::kBF16, kRows, kIn),
        d_y(DType::kBF16, kRows, kOut),
        weight(DType::kBF16, kOut, kIn),
        y(DType::kBF16, kRows, kOut, kOut + extra),
        pre_gelu(DType::kBF16, kRows, kOut, kOut + extra),
        d_x(DType::kBF16, kRows, kIn),
        d_weight(DType::kF32, kOut, kIn) {
    Rng rng(7);
    for (TestMatrix* m : {&x, &d_y, &weight, &pre_gelu}) m->Fill(rng);
    bias = RandomVector(rng, kOut);
    d_bias.resize(kOut);
  }
};

/// y = gelu(x W^T + bias), as the up projection.
void Forward(Ops& ops, Matrices& m) {
  GemmArgs args;
  args.a = m.x.view();
  args.b = m.weight.view();
  args.transpose_b = true;
  args.c = m.y.view();
  args.bias = m.bias.data();
  args.gelu = true;
  args.pre_gelu = m.pre_gelu.view();
  ops.Gemm(args);
}

/// The gradient of what was before GELU: x W^T stands for that of what came out of it.
void Derivative(Ops& ops, Matrices& m) {
  GemmArgs args;
  args.a = m.x.view();
  args.b = m.weight.view();
  args.transpose_b = true;
  args.c = m.y.view();
  args.gelu_input = m.pre_gelu.view();
  ops.Gemm(args);
}

/// d_W = d_y^T x with the gradient of the bias.
void WeightGradient(Ops& ops, Matrices& m) {
  GemmArgs args;
  args.a = m.d_y.view();
  args.transpose_a = true;
  args.b = m.x.view();
  args.c = m.d_weight.view();
  args.a_sums = m.d_bias.data();
  ops.Gemm(args);
}

/// The epilogues of what `call` asks the library for.
std::vector<uint32_t> EpiloguesOf(Ops& ops, void (*call)(Ops&, Matrices&), Matrices matrices) {
  emulation::Library().calls.clear();
  call(ops, matrices);
  std::vector<uint32_t> epilogues;
  for (const auto& made : emulation::Library().calls) epilogues.push_back(made.epilogue);
  return epilogues;
}

class GemmChoiceTest : public ::testing::Test {
 protected:
  GemmChoiceTest() { emulation::Library() = {}; }

  /// Runs all three on a GPU that tunes; the library's epilogues take `epilogue_ms`.
  std::vector<TunedGemm> Tune(double epilogue_ms) {
    std::vector<TunedGemm> told;
    EmulatedQueue queue;
    emulation::Library().epilogue_ms = epilogue_ms;
    const auto ops =
        MakeCudaOps(queue, {.on_tuned = [&](const TunedGemm& gemm) {
                      told.push_back(gemm);
                      gemm.apart ? table_.PinApart(gemm.product) : table_.Pin(gemm.product, gemm.algorithm);
                    }});
    for (const auto call : {Forward, Derivative, WeightGradient}) {
      Matrices matrices;
      call(*ops, matrices);
      call(*ops, matrices);  // is not tuned again
    }
    return told;
  }

  GemmTable table_;
};

TEST_F(GemmChoiceTest, GeluAndItsDerivativeAreFusedByDefaultAndSumsAreNot) {
  EmulatedQueue queue;
  const auto ops = MakeCudaOps(queue);
  EXPECT_THAT(EpiloguesOf(*ops, Forward, Matrices()), ElementsAre(CUBLASLT_EPILOGUE_GELU_AUX_BIAS));
  EXPECT_THAT(EpiloguesOf(*ops, Derivative, Matrices()), ElementsAre(CUBLASLT_EPILOGUE_DGELU));
  EXPECT_THAT(EpiloguesOf(*ops, WeightGradient, Matrices()), ElementsAre(CUBLASLT_EPILOGUE_DEFAULT));
  EXPECT_EQ(emulation::Library().calls.back().algorithm, emulation::kPreferred);
}

TEST_F(GemmChoiceTest, RowsThatTheLibraryDoesNotTakeAreDoneApart) {
  EmulatedQueue queue;
  const auto ops = MakeCudaOps(queue);
  EXPECT_THAT(EpiloguesOf(*ops, Derivative, Matrices(4)), ElementsAre(CUBLASLT_EPILOGUE_DEFAULT));
  EXPECT_THAT(EpiloguesOf(*ops, Forward, Matrices(4)), ElementsAre(CUBLASLT_EPILOGUE_DEFAULT));
}

TEST_F(GemmChoiceTest, LargeSizesThatAreNoWholeChunksAreDoneInTwo) {
  EmulatedQueue queue;
  const auto ops = MakeCudaOps(queue, {});
  const auto products = [&](int64_t n, int64_t k, int64_t stride) {
    TestMatrix a(DType::kBF16, 64, k, stride), b(DType::kBF16, n, k, stride), c(DType::kF32, 64, n, (n + 7) / 8 * 8);
    emulation::Library().calls.clear();
    ops->Gemm({.a = a.view(), .b = b.view(), .transpose_b = true, .c = c.view()});
    return emulation::Library().calls.size();
  };
  EXPECT_EQ(products(1032, 1024, 1024), 1u);
  EXPECT_EQ(products(1033, 1024, 1024), 2u);
  EXPECT_EQ(products(1032, 1025, 1032), 2u);
  EXPECT_EQ(products(1033, 1025, 1032), 3u);  // what is left of the columns is small
  EXPECT_EQ(products(1033, 1025, 1025), 1u) << "rows that do not begin at 16 bytes";
  EXPECT_EQ(products(1001, 1024, 1024), 1u) << "a small one";
}

TEST_F(GemmChoiceTest, TuningTakesTheFasterWay) {
  const std::vector<TunedGemm> fused = Tune(0);
  std::vector<std::string> names;
  for (const TunedGemm& gemm : fused) {
    names.push_back(gemm.product);
    EXPECT_FALSE(gemm.apart) << gemm.product;
    EXPECT_TRUE(gemm.changed) << gemm.product;
    EXPECT_EQ(gemm.algorithm[0], emulation::kFastest) << gemm.product;
    EXPECT_LT(gemm.ms, gemm.preferred_ms) << gemm.product;
  }
  // Each way is tuned: first what the product is apart.
  EXPECT_THAT(names, ElementsAre(HasSubstr("_bias16_a"), HasSubstr("_gelu_pre32x16"),
                                 EndsWith("bf16_bf16_a16x16_b16x16_c32x16"), HasSubstr("_dgelu32x16"),
                                 HasSubstr("f32_a"), HasSubstr("_sums")));

  table_ = {};
  int apart = 0;
  for (const TunedGemm& gemm : Tune(100)) {
    const bool has_epilogue =
        gemm.product.find("gelu") != std::string::npos || gemm.product.find("sums") != std::string::npos;
    EXPECT_EQ(gemm.apart, has_epilogue) << gemm.product;
    EXPECT_EQ(gemm.changed, gemm.product.find("sums") == std::string::npos) << gemm.product;
    EXPECT_LE(gemm.ms, gemm.preferred_ms);
    apart += gemm.apart ? 1 : 0;
  }
  EXPECT_EQ(apart, 3);
}

TEST_F(GemmChoiceTest, ATableIsKeptTo) {
  for (const double epilogue_ms : {0.0, 100.0}) {
    table_ = {};
    Tune(epilogue_ms);
    GemmTable read;
    ASSERT_EQ(read.Parse(table_.Print(130100), 130100), "");
    EXPECT_EQ(read, table_);
    EmulatedQueue queue;
    const auto ops = MakeCudaOps(queue, {.pinned = &read});
    const bool fuses = epilogue_ms == 0;
    EXPECT_THAT(EpiloguesOf(*ops, Forward, Matrices()),
                ElementsAre(fuses ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_BIAS));
    EXPECT_EQ(emulation::Library().calls.back().algorithm, emulation::kFastest);
    EXPECT_THAT(EpiloguesOf(*ops, Derivative, Matrices()),
                ElementsAre(fuses ? CUBLASLT_EPILOGUE_DGELU : CUBLASLT_EPILOGUE_DEFAULT));
    EXPECT_EQ(emulation::Library().calls.back().algorithm, emulation::kFastest);
    EXPECT_THAT(EpiloguesOf(*ops, WeightGradient, Matrices()),
                ElementsAre(fuses ? CUBLASLT_EPILOGUE_BGRADB : CUBLASLT_EPILOGUE_DEFAULT));
    EXPECT_EQ(emulation::Library().calls.back().algorithm, emulation::kFastest);
  }
}

TEST_F(GemmChoiceTest, BothWaysGiveTheSameValues) {
  std::vector<std::vector<float>> values;
  for (const double epilogue_ms : {0.0, 100.0}) {
    table_ = {};
    Tune(epilogue_ms);
    EmulatedQueue queue;
    const auto ops = MakeCudaOps(queue, {.pinned = &table_});
    std::vector<float>& all = values.emplace_back();
    for (const auto call : {Forward, Derivative, WeightGradient}) {
      Matrices m;
      call(*ops, m);
      for (const TestMatrix* result : {&m.y, &m.pre_gelu, &m.d_weight}) {
        const std::vector<float> x = result->Values();
        all.insert(all.end(), x.begin(), x.end());
      }
      all.insert(all.end(), m.d_bias.begin(), m.d_bias.end());
    }
  }
  // What was not written are equal NaNs in both.
  for (std::vector<float>& all : values)
    std::replace_if(
        all.begin(), all.end(), [](float x) { return std::isnan(x); }, 0.0f);
  EXPECT_LE(MaxError(values[0], values[1], 4.0), 1.0 / 128);
}

}  // namespace
}  // namespace holdfast::kernels
