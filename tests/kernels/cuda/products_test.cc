// Proves on a GPU that matrix products in the shapes, strides and epilogues of GPT-2 and Llama give the CPU's values,
// and that the head does, from hidden states to all of its gradients, with either vocabulary.

#include <cstring>

#include "tests/kernels/cuda/cpu_reference.h"
#include "tests/kernels/gemm_test_util.h"

namespace holdfast::kernels {
namespace {

constexpr DType kBf16 = DType::kBF16;
constexpr int64_t kRows = 256;

/// A linear layer's product, as models/linear.cc has it, of `in` into `out` values.
Case Forward(int64_t in, int64_t out) {
  return {.m = kRows, .n = out, .k = in, .transpose_b = true, .in = kBf16, .out = kBf16, .aligned = true};
}
Case InputGradient(int64_t in, int64_t out) {
  return {.m = kRows, .n = in, .k = out, .in = kBf16, .out = kBf16, .aligned = true};
}
Case WeightGradient(int64_t in, int64_t out) {
  return {.m = out, .n = in, .k = kRows, .transpose_a = true, .in = kBf16, .aligned = true};
}

void ExpectValuesOfTheCpu(TestOps& ops, TestOps& cpu, const Case& c, Rng& rng) {
  SCOPED_TRACE(c.Name());
  Problem problem(c, rng);
  Problem expected = problem;
  ops->Gemm(problem.Args());
  cpu->Gemm(expected.Args());
  const double typical = std::sqrt(static_cast<double>(c.k));
  EXPECT_LE(MaxError(problem.out.Values(), expected.out.Values(), typical), 2 * Tolerance(c.k, c.out));
  if (c.keep_input) {
    EXPECT_LE(MaxError(problem.pre_gelu.Values(), expected.pre_gelu.Values(), typical), 2 * Tolerance(c.k, c.in));
  }
  EXPECT_TRUE(problem.out.PaddingIntact() && problem.pre_gelu.PaddingIntact());
}

TEST(Products, HaveTheCpusValuesInTheShapesOfModels) {
  Rng rng(NewSeed());
  TestOps ops(1), cpu(MakeCpuReference());
  for (const auto& [in, out] : {std::pair<int64_t, int64_t>{768, 2304}, {768, 3072}, {3072, 768}, {2048, 3072}}) {
    Case forward = Forward(in, out);
    ExpectValuesOfTheCpu(ops, cpu, forward, rng);
    forward.bias = true;
    ExpectValuesOfTheCpu(ops, cpu, forward, rng);
    ExpectValuesOfTheCpu(ops, cpu, InputGradient(in, out), rng);
    Case weight = WeightGradient(in, out);
    ExpectValuesOfTheCpu(ops, cpu, weight, rng);
    weight.accumulate = true;
    ExpectValuesOfTheCpu(ops, cpu, weight, rng);
  }
  // Of a router, whose weight and gradients are fp32.
  Case logits = Forward(2048, 64), router = WeightGradient(2048, 64);
  logits.in_b = logits.out = router.in = DType::kF32;
  router.in_b = kBf16;
  ExpectValuesOfTheCpu(ops, cpu, logits, rng);
  ExpectValuesOfTheCpu(ops, cpu, router, rng);
  Case up = Forward(768, 3072);
  up.bias = up.gelu = up.keep_input = true;
  ExpectValuesOfTheCpu(ops, cpu, up, rng);
}

/// What models/head.cc does for a block of rows.
struct Head {
  static constexpr int64_t kHidden = 256;
  TestMatrix hidden, projection, logits, d_projection;
  std::vector<int32_t> targets;
  std::vector<float> losses;

  Head(int64_t vocabulary, Rng& rng)
      : hidden(kBf16, kRows, kHidden),
        projection(kBf16, vocabulary, kHidden),
        logits(DType::kF32, kRows, vocabulary, (vocabulary + 15) / 16 * 16),
        d_projection(DType::kF32, vocabulary, kHidden),
        losses(static_cast<size_t>(kRows)) {
    hidden.Fill(rng);
    projection.Fill(rng, 0.05f);
    d_projection.Fill(rng, 1e-3f);
    for (int64_t r = 0; r < kRows; ++r) {
      targets.push_back(static_cast<int32_t>(rng() % static_cast<uint64_t>(vocabulary)));
    }
    targets[0] = static_cast<int32_t>(vocabulary - 1);
    targets[1] = -1;
  }

  void Run(TestOps& ops) {
    const Matrix all = logits.view(), chunk = hidden.view();
    ops->Gemm({.a = chunk, .b = projection.view(), .transpose_b = true, .c = all});
    const Matrix gradient{all.data, kBf16, all.rows, all.cols, 2 * all.stride};  // over the logits
    ops->SoftmaxCrossEntropy(losses.data(), gradient, all, targets.data(), 1.0f / kRows);
    ops->Gemm({.a = gradient, .transpose_a = true, .b = chunk, .c = d_projection.view(), .accumulate = true});
    ops->Gemm({.a = gradient, .b = projection.view(), .c = chunk});
  }
};

TEST(Products, HeadsOfWholeVocabulariesHaveTheCpusLossesAndGradients) {
  Rng rng(NewSeed());
  TestOps ops(1), cpu(MakeCpuReference());
  for (const int64_t vocabulary : {50257, 128256}) {
    SCOPED_TRACE(vocabulary);
    Head head(vocabulary, rng);
    Head expected = head;
    head.Run(ops);
    expected.Run(cpu);
    EXPECT_LE(MaxError(head.losses, expected.losses), 1e-4);
    // Of gradients that were rounded to bf16 on either side.
    EXPECT_LE(RelativeError(head.hidden.Values(), expected.hidden.Values()), 1e-2);
    EXPECT_LE(RelativeError(head.d_projection.Values(), expected.d_projection.Values()), 1e-2);
    EXPECT_TRUE(head.hidden.PaddingIntact() && head.d_projection.PaddingIntact());
  }
}

}  // namespace
}  // namespace holdfast::kernels
