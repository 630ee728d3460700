// Proves the matrix product: values against sums in double precision for every transpose, dtype, epilogue and odd size;
// that nothing beyond C is written; and that bits depend neither on the number of threads nor on the number of rows.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/kernels/gemm_test_util.h"

namespace holdfast::kernels {
namespace {

TEST(GemmTest, MatchesDoublePrecisionForAnyShapeAndTranspose) {
  Rng rng(NewSeed());
  TestOps ops(3);
  for (const Case& c : Cases()) ExpectCorrect(ops, c, rng);
}

TEST(GemmTest, RandomShapes) {
  Rng rng(NewSeed());
  TestOps ops(2);
  for (int i = 0; i < 60; ++i) {
    Case c = {static_cast<int64_t>(rng() % 130 + 1), static_cast<int64_t>(rng() % 200 + 1),
              static_cast<int64_t>(rng() % 700 + 1)};
    c.transpose_a = rng() % 2;
    c.transpose_b = rng() % 2;
    c.in = kDTypes[rng() % 2];
    c.in_b = kDTypes[rng() % 2];
    c.out = kDTypes[rng() % 2];
    c.accumulate = rng() % 2;
    c.bias = rng() % 2;
    c.gelu = rng() % 2;
    c.keep_input = c.gelu && rng() % 2;
    c.aligned = rng() % 2;
    ExpectCorrect(ops, c, rng);
  }
}

TEST(GemmTest, Epilogues) {
  Rng rng(NewSeed());
  TestOps ops(2);
  for (DType in : kDTypes) {
    for (int64_t k : {40, 300}) {  // one and two blocks of k
      for (const bool aligned : {false, true}) {
        Case c = {.m = 50, .n = 70, .k = k, .in = in, .aligned = aligned};
        c.accumulate = true;
        ExpectCorrect(ops, c, rng);
        c.accumulate = false, c.out = in, c.bias = true;
        ExpectCorrect(ops, c, rng);
        c.gelu = true;
        ExpectCorrect(ops, c, rng);
        c.keep_input = true;
        ExpectCorrect(ops, c, rng);
        c.bias = false;
        ExpectCorrect(ops, c, rng);
      }
    }
  }
}

// As the routers of layers with experts have it, whose weights and gradients are fp32 in a bf16 model.
TEST(GemmTest, OperandsOfTwoTypes) {
  Rng rng(NewSeed());
  TestOps ops(2);
  for (const bool a_is_bf16 : {true, false}) {
    for (int transposes = 0; transposes < 4; ++transposes) {
      for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1},
                                    {100, 8, 64},
                                    {37, 65, 129},
                                    {0, 4, 3},
                                    {5, 0, 3},
                                    {5, 4, 0}}) {
        for (const bool aligned : {false, true}) {
          Case c = {m, n, k, (transposes & 1) != 0, (transposes & 2) != 0, kDTypes[a_is_bf16 ? 1 : 0]};
          c.in_b = kDTypes[a_is_bf16 ? 0 : 1];
          c.a_gap = transposes;
          c.aligned = aligned;
          ExpectCorrect(ops, c, rng);
          c.accumulate = true;
          ExpectCorrect(ops, c, rng);
          c.accumulate = false, c.bias = true, c.out = DType::kBF16;
          ExpectCorrect(ops, c, rng);
          c.gelu = c.keep_input = true;
          ExpectCorrect(ops, c, rng);
        }
      }
    }
  }
}

// Rows of C that begin on a cache line may be written past the caches.
TEST(GemmTest, AlignedWeightGradientsHaveTheBitsOfOthers) {
  Rng rng(NewSeed());
  TestOps ops(3);
  for (DType in : kDTypes) {
    Problem problem({.m = 500, .n = 330, .k = 600, .transpose_a = true, .in = in}, rng);
    ops->Gemm(problem.Args());
    constexpr int64_t kStride = 336;  // a multiple of 64 bytes, wider than C
    TestMatrix room(DType::kF32, problem.c.m + 1, kStride);
    room.Set(std::vector<float>(static_cast<size_t>((problem.c.m + 1) * kStride), 7.0f));
    GemmArgs args = problem.Args();
    float* aligned = static_cast<float*>(room.view().data);
    while (reinterpret_cast<uintptr_t>(aligned) % 64 != 0) ++aligned;
    args.c = {aligned, DType::kF32, problem.c.m, problem.c.n, kStride};
    ops->Gemm(args);
    int64_t different = 0;
    for (int64_t r = 0; r < problem.c.m; ++r) {
      for (int64_t col = 0; col < kStride; ++col) {
        const float expected = col < problem.c.n ? problem.out.Get(r, col) : 7.0f;
        different += FloatToBits(aligned[r * kStride + col]) != FloatToBits(expected);
      }
    }
    EXPECT_EQ(different, 0);
  }
}

TEST(GemmTest, ManyBlocksOfRows) {
  Rng rng(NewSeed());
  TestOps ops(2);
  ExpectCorrect(ops, {.m = 2100, .n = 20, .k = 30, .in = DType::kBF16}, rng);
  ExpectCorrect(ops, {.m = 500, .n = 20, .k = 9000, .transpose_a = true, .accumulate = true}, rng);
}

// As of GPT-2's vocabulary. A GPU does all but the last few in a product of their own, and those in another.
TEST(GemmTest, LargeProductsOfSizesThatAreNoWholeChunks) {
  Rng rng(NewSeed());
  TestOps ops(2);
  const Case logits = {.m = 64, .n = 1027, .k = 1024, .transpose_b = true, .in = DType::kBF16, .aligned = true};
  const Case d_input = {.m = 64, .n = 1024, .k = 1027, .in = DType::kBF16, .out = DType::kBF16, .aligned = true};
  const Case d_weight = {.m = 1027, .n = 1024, .k = 64, .transpose_a = true, .in = DType::kBF16, .aligned = true};
  const Case all_odd = {.m = 65, .n = 1031, .k = 1025, .transpose_b = true, .in = DType::kBF16, .aligned = true};
  for (Case c : {logits, d_input, d_weight, all_odd}) {
    ExpectCorrect(ops, c, rng);
    c.accumulate = true;
    ExpectCorrect(ops, c, rng);
  }
}

TEST(GemmTest, EmptyProductsAreZeroOrUntouched) {
  Rng rng(NewSeed());
  TestOps ops(2);
  ExpectCorrect(ops, {.m = 5, .n = 4, .k = 0, .bias = true}, rng);
  ExpectCorrect(ops, {.m = 0, .n = 4, .k = 3}, rng);
  ExpectCorrect(ops, {.m = 4, .n = 0, .k = 3}, rng);
}

TEST(GemmTest, InfinityAndNanPassThrough) {
  TestOps ops(1);
  TestMatrix a(DType::kBF16, 2, 40), b(DType::kBF16, 40, 3), c(DType::kBF16, 2, 3);
  for (int64_t i = 0; i < 40; ++i) {
    for (int64_t r = 0; r < 2; ++r) a.Set(r, i, 1.0f);
    for (int64_t j = 0; j < 3; ++j) b.Set(i, j, 1.0f);
  }
  b.Set(7, 0, INFINITY);
  b.Set(9, 1, NAN);
  GemmArgs args;
  args.a = a.view();
  args.b = b.view();
  args.c = c.view();
  ops->Gemm(args);
  EXPECT_EQ(c.Get(0, 0), INFINITY);
  EXPECT_TRUE(std::isnan(c.Get(1, 1)));
  EXPECT_EQ(c.Get(1, 2), 40.0f);
}

TEST(GemmTest, BitsDoNotDependOnThreads) {
  Rng rng(NewSeed());
  for (const Case& c : {Case{.m = 700, .n = 150, .k = 520, .in = DType::kBF16, .gelu = true},
                        Case{.m = 90, .n = 1000, .k = 300, .transpose_b = true},
                        Case{.m = 64, .n = 64, .k = 3000, .transpose_a = true, .accumulate = true}}) {
    SCOPED_TRACE(c.Name());
    const Problem problem(c, rng);
    ExpectSameBitsForAnyThreadCount([&](TestOps& ops) { return Product(ops, problem); });
  }
}

/// Runs the first `rows` rows of A only, for several numbers of rows, and expects the bits of the whole.
void ExpectRowsIndependent(TestOps& ops, const Case& c, Rng& rng) {
  SCOPED_TRACE(c.Name());
  const Problem before(c, rng);
  Problem whole = before;
  ops->Gemm(whole.Args());
  for (int64_t rows : {1, 2, 5, 6, 7, 12, 13, 23, 24, 25, 31, 100}) {
    for (int64_t first : {int64_t{0}, c.m - rows}) {
      Problem part = whole;
      GemmArgs args = part.Args();
      const int64_t skip = first * (c.transpose_a ? 1 : part.a.view().stride) * static_cast<int64_t>(SizeOf(c.in));
      args.a.data = static_cast<const char*>(args.a.data) + skip;
      (c.transpose_a ? args.a.cols : args.a.rows) = rows;
      TestMatrix out(c.out, rows, c.n);
      for (int64_t i = 0; i < rows * c.n && c.accumulate; ++i) {
        out.Set(i / c.n, i % c.n, before.out.Get(first + i / c.n, i % c.n));
      }
      args.c = out.view();
      ops->Gemm(args);
      int64_t different = 0;
      for (int64_t i = 0; i < rows * c.n; ++i) {
        different += FloatToBits(out.Get(i / c.n, i % c.n)) != FloatToBits(whole.out.Get(first + i / c.n, i % c.n));
      }
      EXPECT_EQ(different, 0) << rows << " rows from " << first;
    }
  }
}

TEST(GemmTest, ARowDoesNotDependOnTheNumberOfRows) {
  Rng rng(NewSeed());
  TestOps ops(2);
  for (DType in : kDTypes) {
    ExpectRowsIndependent(ops, {.m = 300, .n = 50, .k = 600, .in = in}, rng);
    ExpectRowsIndependent(ops, {.m = 300, .n = 50, .k = 600, .transpose_b = true, .in = in}, rng);
    ExpectRowsIndependent(ops, {.m = 300, .n = 50, .k = 600, .transpose_a = true, .in = in}, rng);
    const DType other = in == DType::kF32 ? DType::kBF16 : DType::kF32;
    ExpectRowsIndependent(ops, {.m = 300, .n = 50, .k = 600, .transpose_b = true, .in = in, .in_b = other}, rng);
    // As sampling has them; where k fills whole cache lines, a single row goes another way.
    for (int i = 0; i < 10; ++i) {
      const int epilogue = i % 5;
      Case c{.m = 200, .n = 101, .k = i < 5 ? 1027 : 1056, .transpose_b = true, .in = in};
      c.accumulate = epilogue == 1;
      c.bias = epilogue >= 2;
      c.gelu = c.keep_input = epilogue == 3;
      if (epilogue == 4) c.out = in;
      ExpectRowsIndependent(ops, c, rng);
    }
  }
}

TEST(GemmTest, BitsDoNotDependOnHowFarRowsAreApart) {
  const auto seed = NewSeed();
  TestOps ops(2);
  for (DType in : kDTypes) {
    std::vector<float> first;
    for (int64_t gap : {3, 4, 424, 1448}) {  // 424 and 1448: 4 KiB, in fp32 and in bf16
      Rng rng(seed);
      const std::vector<float> out = Product(ops, Problem({.m = 40, .n = 50, .k = 600, .in = in, .a_gap = gap}, rng));
      if (first.empty()) first = out;
      EXPECT_EQ(out, first) << gap;
    }
  }
}

}  // namespace
}  // namespace holdfast::kernels
