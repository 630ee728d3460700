// Proves attention in the native arithmetics: values against the definition in double precision, and the bits of a
// processor's instructions against those of an emulation, which every processor can run, for any number of threads.
// And in every arithmetic of a CPU, that attention over kept keys and values has the bits of attention over all.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "framework/base/thread_pool.h"
#include "kernels/cpu/cpu_ops.h"
#include "tests/kernels/attention_test_util.h"
#include "tests/kernels/cached_attention_util.h"
#include "tests/kernels/emulated_dot.h"
// What is compiled once per instruction set comes after the macro in emulated_dot.h.
#include "kernels/cpu/gemm_fp32-inl.h"
#include "kernels/cpu/head_backward-inl.h"
#include "kernels/cpu/head_cached-inl.h"
#include "kernels/cpu/head_forward-inl.h"

namespace holdfast::kernels::attention_test {
namespace {

using EmulatedKernel = static_target::PairKernel<EmulatedDot>;

void RunEmulated(Problem& p) {
  ThreadPool pool(2);
  static_target::ForwardPass<EmulatedKernel>(pool, p.out.view(), p.lse.data(), p.qkv.view(), p.shape);
  static_target::BackwardPass<EmulatedKernel>(pool, p.d_qkv.view(), p.d_out.view(), p.out.view(), p.lse.data(),
                                              p.qkv.view(), p.shape);
}

void RunOn(CpuOps& ops, Problem& p) {
  ops.AttentionForward(p.out.view(), p.lse.data(), p.qkv.view(), p.shape);
  ops.AttentionBackward(p.d_qkv.view(), p.d_out.view(), p.out.view(), p.lse.data(), p.qkv.view(), p.shape);
}

/// Lengths and heads of odd sizes, several tiles, grouped heads, dropout, windows.
std::vector<AttentionShape> Shapes() {
  return {Shape(2, 1, 2, 2, 16),
          Shape(1, 97, 2, 1, 24),
          Shape(1, 130, 2, 2, 64),
          Shape(1, 203, 2, 1, 40),
          Shape(1, 101, 4, 2, 8, 0.3f),
          Shape(3, 64, 3, 3, 80),
          Windowed(Shape(1, 203, 2, 1, 24), 37),
          NotCausal(Shape(1, 99, 2, 1, 24, 0.3f)),
          InDocuments(Shape(2, 203, 2, 1, 40), {33, 90, 1})};
}

int64_t Differences(const Problem& a, const Problem& b) {
  const std::vector<float> x = a.Results(), y = b.Results();
  int64_t different = x.size() == y.size() ? 0 : 1;
  for (size_t i = 0; i < x.size() && i < y.size(); ++i) different += FloatToBits(x[i]) != FloatToBits(y[i]);
  return different;
}

TEST(NativeAttentionTest, MatchesTheDefinition) {
  Rng rng(NewSeed());
  for (const AttentionShape& shape : Shapes()) {
    SCOPED_TRACE(NameOf(shape, DType::kBF16));
    Problem problem(shape, DType::kBF16, rng);
    RunEmulated(problem);
    ExpectDefinition(problem, true);
  }
}

TEST(NativeAttentionTest, ThisProcessorGivesTheBitsOfTheEmulation) {
  Rng rng(NewSeed());
  int found = 0;
  for (Arithmetic arithmetic : {Arithmetic::kAvx512Bf16, Arithmetic::kAmxBf16}) {
    if (!CpuHas(arithmetic)) continue;
    ++found;
    for (const AttentionShape& shape : Shapes()) {
      SCOPED_TRACE(NameOf(shape, DType::kBF16));
      const Problem problem(shape, DType::kBF16, rng);
      Problem emulated = problem;
      RunEmulated(emulated);
      for (int threads : kThreadCounts) {
        ThreadPool pool(threads);
        CpuOps ops(pool, arithmetic);
        Problem copy = problem;
        RunOn(ops, copy);
        EXPECT_EQ(Differences(copy, emulated), 0) << NameOf(arithmetic) << ", " << threads << " threads";
      }
    }
  }
  if (found == 0) GTEST_SKIP() << "this processor has no bf16 instructions";
}

TEST(NativeAttentionTest, APrefixHasTheBitsOfTheWhole) {
  Rng rng(NewSeed());
  ThreadPool pool(2);
  Problem whole(Shape(1, 150, 2, 1, 24), DType::kBF16, rng);
  RunEmulated(whole);
  for (int64_t t : {1, 33, 96, 131}) {
    AttentionShape shape = whole.shape;
    shape.sequence = t;
    TestMatrix out(DType::kBF16, t, whole.OutCols());
    std::vector<float> lse(static_cast<size_t>(t * shape.num_heads));
    static_target::ForwardPass<EmulatedKernel>(pool, out.view(), lse.data(), whole.qkv.view(), shape);
    int64_t different = 0;
    for (int64_t row = 0; row < t; ++row) {
      for (int64_t col = 0; col < whole.OutCols(); ++col) {
        different += FloatToBits(out.Get(row, col)) != FloatToBits(whole.out.Get(row, col));
      }
    }
    EXPECT_EQ(different, 0) << "sequence " << t;
  }
}

// The document ends within a pair of keys, where one thread packs all keys and three pack what their queries see.
TEST(NativeAttentionTest, AnInfiniteValueOfTheNextDocumentCountsTheSameOnAnyNumberOfThreads) {
  Rng rng(NewSeed());
  Problem problem(InDocuments(NotCausal(Shape(1, 400, 2, 2, 8)), {193, 207}), DType::kBF16, rng);
  problem.qkv.Set(193, 4 * 8, INFINITY);  // the first value of the first head
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    static_target::ForwardPass<EmulatedKernel>(pool, problem.out.view(), problem.lse.data(), problem.qkv.view(),
                                               problem.shape);
    results.push_back(problem.out.Values());
  }
  for (size_t i = 0; i < results[0].size(); ++i) {
    const float one = results[0][i], three = results[1][i];
    ASSERT_TRUE(FloatToBits(one) == FloatToBits(three) || (std::isnan(one) && std::isnan(three))) << i;
  }
}

TEST(NativeAttentionTest, DiffersFromPortableAndLeavesFp32Alone) {
  Rng rng(NewSeed());
  ThreadPool pool(2);
  CpuOps portable(pool);
  const AttentionShape shape = Shape(1, 130, 2, 2, 64);
  Problem emulated(shape, DType::kBF16, rng), plain = emulated;
  RunEmulated(emulated);
  RunOn(portable, plain);
  EXPECT_GT(Differences(emulated, plain), 0);
  for (Arithmetic arithmetic : {Arithmetic::kAvx512Bf16, Arithmetic::kAmxBf16}) {
    if (!CpuHas(arithmetic)) continue;
    CpuOps native(pool, arithmetic);
    Problem a(shape, DType::kF32, rng), b = a;
    RunOn(portable, a);
    RunOn(native, b);
    EXPECT_EQ(Differences(a, b), 0);
  }
}

/// Several tiles, one query head to a key head and many, windows within a tile and beyond one.
std::vector<AttentionShape> CausalShapes() {
  std::vector<AttentionShape> shapes = {Shape(2, 40, 3, 3, 8), Shape(1, 203, 14, 2, 64), Shape(1, 97, 2, 2, 128),
                                        Shape(1, 130, 2, 1, 256), Shape(1, 193, 33, 1, 16)};
  for (int64_t window : {1, 2, 37, 96, 100}) shapes.push_back(Windowed(Shape(1, 203, 4, 2, 40), window));
  return shapes;
}

template <class AnyOps>
void ExpectBitsOfTheWhole(AnyOps ops, const Problem& problem) {
  for (const std::vector<int64_t>& cut : Cuts(problem.shape.sequence)) {
    Problem continued = problem;
    continued.lse.assign(continued.lse.size(), NAN);
    Continuation(continued).Run(ops, cut);
    EXPECT_TRUE(continued.out.SameBits(problem.out)) << cut.size() << " steps";
    EXPECT_EQ(std::memcmp(continued.lse.data(), problem.lse.data(), problem.lse.size() * sizeof(float)), 0)
        << cut.size() << " steps";
  }
}

TEST(CachedAttentionOnCpu, HasTheBitsOfAttentionOverTheWholeSequence) {
  Rng rng(NewSeed());
  for (Arithmetic arithmetic : {Arithmetic::kPortable, Arithmetic::kAvx512Bf16, Arithmetic::kAmxBf16}) {
    if (!CpuHas(arithmetic)) continue;
    ThreadPool pool(3);
    CpuOps ops(pool, arithmetic);
    for (const AttentionShape& shape : CausalShapes()) {
      for (DType dtype : kDTypes) {
        SCOPED_TRACE(NameOf(shape, dtype) + " " + NameOf(arithmetic));
        Problem problem(shape, dtype, rng);
        ops.AttentionForward(problem.out.view(), problem.lse.data(), problem.qkv.view(), problem.shape);
        ExpectBitsOfTheWhole(&ops, problem);
      }
    }
  }
}

/// What a processor with the instructions would do, on any.
struct EmulatedOps {
  void CachedAttention(const CachedAttentionArgs& args) {
    ThreadPool pool(2);
    static_target::CachedPass<EmulatedKernel>(pool, args);
  }
};

TEST(CachedAttentionOnCpu, HasThemInPairs) {
  Rng rng(NewSeed());
  EmulatedOps ops;
  for (const AttentionShape& shape : {Shape(1, 103, 4, 2, 24), Windowed(Shape(1, 103, 4, 2, 24), 37)}) {
    Problem problem(shape, DType::kBF16, rng);
    RunEmulated(problem);
    ExpectBitsOfTheWhole(&ops, problem);
  }
}

}  // namespace
}  // namespace holdfast::kernels::attention_test
