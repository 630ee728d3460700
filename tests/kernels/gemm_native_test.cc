// Proves the native arithmetics: products by a processor's bf16 instructions have the bits of their definition
// (kernels/cpu/native_dot.h) for every transpose and odd size, for any number of threads and rows; where the processor
// lacks the instructions, with an emulation of them in the same code.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#define HWY_DISABLE_PCLMUL_AES  // as kernels/cpu/foreach_target.h says
#include "framework/base/thread_pool.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/gemm_amx-inl.h"
#include "kernels/cpu/gemm_bf16_dot-inl.h"
#include "kernels/cpu/gemm_few_rows-inl.h"
#include "kernels/cpu/gemm_product-inl.h"
#include "kernels/cpu/native_dot.h"
#include "tests/kernels/emulated_dot.h"
#include "tests/kernels/gemm_test_util.h"

namespace holdfast::kernels {
namespace {

constexpr Arithmetic kNative[] = {Arithmetic::kAvx512Bf16, Arithmetic::kAmxBf16};

/// Tile registers in memory.
class EmulatedTiles {
 public:
  template <int kTile>
  void Zero() {
    std::memset(words_[kTile], 0, sizeof(words_[kTile]));
  }
  template <int kTile>
  void Load(const uint32_t* from, int64_t stride) {
    for (int r = 0; r < 16; ++r) std::memcpy(words_[kTile] + r * 16, from + r * stride, 64);
  }
  template <int kTile>
  void Store(float* to, int64_t stride) {
    for (int r = 0; r < 16; ++r) std::memcpy(to + r * stride, words_[kTile] + r * 16, 64);
  }
  template <int kC, int kA, int kB>
  void Dot() {
    for (int r = 0; r < 16; ++r) {
      for (int c = 0; c < 16; ++c) {
        float x[32], y[32];
        for (int k = 0; k < 32; ++k) {
          x[k] = FromBf16(static_cast<uint16_t>(words_[kA][r * 16 + k / 2] >> (16 * (k % 2))));
          y[k] = FromBf16(static_cast<uint16_t>(words_[kB][k / 2 * 16 + c] >> (16 * (k % 2))));
        }
        float sum;
        std::memcpy(&sum, &words_[kC][r * 16 + c], 4);
        sum = DotOfTileRow(sum, x, y);
        std::memcpy(&words_[kC][r * 16 + c], &sum, 4);
      }
    }
  }

 private:
  uint32_t words_[8][256];
};

std::vector<float> Definition(Arithmetic arithmetic, const Problem& problem) {
  const Case& c = problem.c;
  std::vector<float> values;
  for (int64_t i = 0; i < c.m; ++i) {
    for (int64_t j = 0; j < c.n; ++j) {
      float sum = NativeDot(
          arithmetic, c.k, [&](int64_t k) { return ToBf16(c.transpose_a ? problem.a.Get(k, i) : problem.a.Get(i, k)); },
          [&](int64_t k) { return ToBf16(c.transpose_b ? problem.b.Get(j, k) : problem.b.Get(k, j)); });
      if (c.accumulate) sum += problem.out.Get(i, j);
      values.push_back(sum);
    }
  }
  return values;
}

std::vector<Case> NativeCases() {
  std::vector<Case> cases;
  for (int transposes = 0; transposes < 4; ++transposes) {
    for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1},
                                  {3, 17, 63},
                                  {33, 31, 100},
                                  {70, 45, 256},
                                  {100, 33, 1043},
                                  {24, 45, 600},
                                  {13, 140, 513},
                                  {1, 140, 1056}}) {
      cases.push_back({m, n, k, (transposes & 1) != 0, (transposes & 2) != 0, DType::kBF16});
      cases.back().accumulate = k == 100;
    }
    // Rows of whole, aligned words are multiplied where they lie.
    cases.push_back({37, 45, 1044, (transposes & 1) != 0, (transposes & 2) != 0, DType::kBF16});
    cases.back().a_gap = 4;
  }
  return cases;
}

int64_t Differences(const std::vector<float>& a, const std::vector<float>& b) {
  int64_t different = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) different += FloatToBits(a[i]) != FloatToBits(b[i]);
  return different;
}

template <template <class> class AnyProduct, class Kernel>
void ExpectDefinition(ThreadPool& pool, Problem problem, Arithmetic arithmetic) {
  const std::vector<float> expected = Definition(arithmetic, problem);
  const static_target::ProductArgs args = {problem.Args()};
  AnyProduct<Kernel>(pool, args).Run();
  EXPECT_EQ(Differences(problem.out.Values(), expected), 0) << NameOf(arithmetic);
  EXPECT_TRUE(problem.out.PaddingIntact());
}

TEST(NativeArithmeticTest, EmulatedInstructionsGiveTheDefinition) {
  Rng rng(NewSeed());
  ThreadPool pool(2);
  for (const Case& c : NativeCases()) {
    SCOPED_TRACE(c.Name());
    const Problem problem(c, rng);
    ExpectDefinition<static_target::Product, static_target::PairKernel<EmulatedDot>>(pool, problem,
                                                                                     Arithmetic::kAvx512Bf16);
    ExpectDefinition<static_target::Product, static_target::AmxKernel<EmulatedTiles>>(pool, problem,
                                                                                      Arithmetic::kAmxBf16);
    if (!static_target::HasFewRows(Problem(problem).Args())) continue;
    ExpectDefinition<static_target::FewRowsProduct, static_target::PairKernel<EmulatedDot>>(pool, problem,
                                                                                            Arithmetic::kAvx512Bf16);
    ExpectDefinition<static_target::FewRowsProduct, static_target::AmxKernel<EmulatedTiles>>(pool, problem,
                                                                                             Arithmetic::kAmxBf16);
  }
}

TEST(NativeArithmeticTest, ThisProcessorGivesTheDefinition) {
  Rng rng(NewSeed());
  int found = 0;
  for (Arithmetic arithmetic : kNative) {
    if (!CpuHas(arithmetic)) continue;
    ++found;
    for (int threads : kThreadCounts) {
      ThreadPool pool(threads);
      for (const Case& c : NativeCases()) {
        SCOPED_TRACE(c.Name());
        Problem problem(c, rng);
        const std::vector<float> expected = Definition(arithmetic, problem);
        CpuOps(pool, arithmetic).Gemm(problem.Args());
        EXPECT_EQ(Differences(problem.out.Values(), expected), 0) << NameOf(arithmetic);
      }
    }
  }
  if (found == 0) GTEST_SKIP() << "this processor has no bf16 instructions";
}

// Roundings that differ from the definition in one thing each.
template <uint32_t kAdded>
uint16_t WithAnotherBias(float x) {
  return std::isnormal(x) ? static_cast<uint16_t>((FloatToBits(x) + kAdded) >> 16) : RoundedToBf16(x);
}
uint16_t ToTheLargest(float x) {
  const uint16_t bits = RoundedToBf16(x);
  return std::isfinite(x) && (bits & 0x7fff) == 0x7f80 ? static_cast<uint16_t>(bits - 1) : bits;
}
uint16_t WithoutFlushing(float x) { return ToBf16(x); }
uint16_t FlushedAfterwards(float x) {
  const uint16_t bits = ToBf16(x);
  return (bits & 0x7f80) == 0 ? bits & 0x8000 : bits;
}
uint16_t WithoutSignOfZero(float x) { return std::fpclassify(x) == FP_ZERO ? 0 : RoundedToBf16(x); }
uint16_t WithoutSignOfFlushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? 0 : RoundedToBf16(x); }
uint16_t WithoutNan(float x) {
  return std::isnan(x) ? static_cast<uint16_t>(FloatToBits(x) >> 16 & 0xff80) : RoundedToBf16(x);
}
uint16_t WithOneNan(float x) { return std::isnan(x) ? 0x7fc0 : RoundedToBf16(x); }

struct PairsTheOtherWayRound : EmulatedDot {
  static auto RoundPairs(Floats even, Floats odd) { return EmulatedDot::RoundPairs(odd, even); }
};

template <uint16_t (*... Roundings)(float)>
int Pass() {
  return (0 + ... + static_target::RoundsAsDefined<EmulatedDotThatRounds<Roundings>>());
}

// By the check that a processor has to pass before it is used.
TEST(NativeArithmeticTest, OtherRoundingsAreFound) {
  EXPECT_EQ(Pass<RoundedToBf16>(), 1);
  EXPECT_EQ((Pass<WithAnotherBias<0>, WithAnotherBias<0x7fff>, WithAnotherBias<0x8000>, ToTheLargest>()), 0);
  EXPECT_EQ((Pass<WithoutFlushing, FlushedAfterwards, WithoutSignOfZero, WithoutSignOfFlushed>()), 0);
  EXPECT_EQ((Pass<WithoutNan, WithOneNan>()), 0);
  EXPECT_FALSE(static_target::RoundsAsDefined<PairsTheOtherWayRound>());
}

TEST(NativeArithmeticTest, DiffersFromPortableAndLeavesFp32Alone) {
  Rng rng(NewSeed());
  ThreadPool pool(1);
  Case c = {.m = 40, .n = 50, .k = 300, .in = DType::kBF16};
  Problem portable(c, rng);
  const std::vector<float> native = Definition(Arithmetic::kAvx512Bf16, portable);
  CpuOps(pool, Arithmetic::kPortable).Gemm(portable.Args());
  EXPECT_GT(Differences(portable.out.Values(), native), 0);
  c.in = DType::kF32;
  for (Arithmetic arithmetic : kNative) {
    if (!CpuHas(arithmetic)) continue;
    Problem a(c, rng), b = a;
    CpuOps(pool, Arithmetic::kPortable).Gemm(a.Args());
    CpuOps(pool, arithmetic).Gemm(b.Args());
    EXPECT_EQ(Differences(a.out.Values(), b.out.Values()), 0);
  }
}

TEST(NativeArithmeticTest, NamesAreReadBack) {
  for (Arithmetic arithmetic : {Arithmetic::kPortable, Arithmetic::kAvx512Bf16, Arithmetic::kAmxBf16}) {
    EXPECT_EQ(ArithmeticOf(NameOf(arithmetic)), arithmetic);
  }
  EXPECT_EQ(ArithmeticOf("fast"), std::nullopt);
  EXPECT_TRUE(CpuHas(FastestArithmetic()));
}

}  // namespace
}  // namespace holdfast::kernels
