// Proves attention, forward and backward: values against the definition (the full T x T matrix) in double precision,
// with grouped heads, any head size, sequences that are no multiple of a tile, windows, documents, without causality,
// and dropout; that blocks which nobody sees are skipped, by poison in them; poisoned outputs; and bits that do not
// depend on the number of threads, whichever way the backward pass is cut, nor on the instruction set.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/kernels/attention_test_util.h"

namespace holdfast::kernels::attention_test {
namespace {

TEST(AttentionTest, MatchesTheDefinition) {
  Rng rng(NewSeed());
  TestOps ops(3);
  for (DType dtype : kDTypes) {
    for (int64_t t : {1, 2, 5, 17, 64, 95, 96, 97, 200, 300}) ExpectCorrect(ops, Shape(2, t, 2, 2, 16), dtype, rng);
    for (int64_t d : {8, 24, 40, 64, 80, 128, 200, 256}) ExpectCorrect(ops, Shape(1, 130, 2, 2, d), dtype, rng);
  }
}

TEST(AttentionTest, MatchesTheDefinitionInWholeChunks) {
  Rng rng(NewSeed());
  TestOps ops(3);
  const auto expect_correct = [&](const AttentionShape& shape) {
    ExpectCorrect(ops, shape, DType::kBF16, rng, Alignment::kSixteenBytes);
  };
  for (int64_t t : {1, 31, 64, 65, 128, 257}) expect_correct(Shape(t == 65 ? 2 : 1, t, 1, 1, 64));
  expect_correct(Shape(1, 200, 1, 1, 128));
  expect_correct(Shape(2, 70, 4, 2, 128));
  expect_correct(Shape(1, 150, 3, 1, 64));
  for (int64_t t : {68, 101}) expect_correct(Shape(2, t, 2, 1, 64, 0.3f));
  expect_correct(Shape(1, 132, 1, 1, 128, 0.3f));
}

// Which Hopper has no kernels of its own for.
TEST(AttentionTest, MatchesTheDefinitionInWholeChunksOfOtherHeads) {
  Rng rng(NewSeed());
  TestOps ops(3);
  for (int64_t d : {8, 40, 72, 96, 136, 256}) {
    ExpectCorrect(ops, Shape(1, 130, 1, 1, d), DType::kBF16, rng, Alignment::kSixteenBytes);
  }
  ExpectCorrect(ops, Shape(1, 72, 1, 1, 256, 0.3f), DType::kBF16, rng, Alignment::kSixteenBytes);
}

TEST(AttentionTest, GroupedHeads) {
  Rng rng(NewSeed());
  TestOps ops(2);
  for (DType dtype : kDTypes) {
    ExpectCorrect(ops, Shape(2, 110, 6, 2, 32), dtype, rng);
    ExpectCorrect(ops, Shape(1, 210, 4, 1, 64), dtype, rng);
  }
}

TEST(AttentionTest, DropoutIsKeyedByElement) {
  Rng rng(NewSeed());
  TestOps ops(2);
  for (DType dtype : kDTypes) {
    for (int64_t t : {1, 63, 101, 192}) ExpectCorrect(ops, Shape(2, t, 4, 2, 16, 0.3f), dtype, rng);
  }
}

TEST(AttentionTest, AWindowHidesWhatIsBeforeIt) {
  Rng rng(NewSeed());
  TestOps ops(3);
  for (int64_t window : {1, 2, 7, 31, 32, 33, 64, 100, 199, 200, 1000}) {
    ExpectCorrect(ops, Windowed(Shape(1, 200, 2, 1, 16), window), DType::kF32, rng);
    ExpectCorrect(ops, Windowed(Shape(1, 200, 1, 1, 64), window), DType::kBF16, rng, Alignment::kSixteenBytes);
  }
  for (DType dtype : kDTypes) {
    ExpectCorrect(ops, Windowed(Shape(2, 333, 6, 2, 32), 40), dtype, rng);
    ExpectCorrect(ops, Windowed(Shape(2, 150, 4, 2, 16, 0.3f), 20), dtype, rng);
  }
  for (int64_t d : {96, 128, 256}) {
    ExpectCorrect(ops, Windowed(Shape(1, 150, 1, 1, d, d == 128 ? 0.3f : 0), 50), DType::kBF16, rng,
                  Alignment::kSixteenBytes);
  }
}

TEST(AttentionTest, WithoutCausalityEveryQuerySeesEveryKey) {
  Rng rng(NewSeed());
  TestOps ops(3);
  for (int64_t t : {1, 31, 64, 97, 150}) {
    ExpectCorrect(ops, NotCausal(Shape(2, t, 2, 1, 16)), DType::kF32, rng);
    ExpectCorrect(ops, NotCausal(Shape(1, t, 1, 1, 64)), DType::kBF16, rng, Alignment::kSixteenBytes);
  }
  ExpectCorrect(ops, NotCausal(Shape(1, 110, 2, 1, 128, 0.3f)), DType::kBF16, rng, Alignment::kSixteenBytes);
  ExpectCorrect(ops, NotCausal(Shape(1, 110, 2, 1, 24, 0.3f)), DType::kF32, rng);
}

TEST(AttentionTest, DocumentsDoNotSeeEachOther) {
  Rng rng(NewSeed());
  TestOps ops(3);
  for (const std::vector<int64_t>& lengths :
       std::vector<std::vector<int64_t>>{{1}, {3, 1, 40}, {31, 32, 33}, {64}, {100, 7}, {192, 96, 5}, {1000}}) {
    ExpectCorrect(ops, InDocuments(Shape(2, 300, 2, 1, 16), lengths), DType::kF32, rng);
    ExpectCorrect(ops, InDocuments(Shape(2, 300, 1, 1, 64), lengths), DType::kBF16, rng, Alignment::kSixteenBytes);
    ExpectCorrect(ops, InDocuments(Windowed(Shape(1, 200, 2, 2, 16), 20), lengths), DType::kF32, rng);
    ExpectCorrect(ops, InDocuments(NotCausal(Shape(2, 150, 2, 1, 16)), lengths), DType::kF32, rng);
    ExpectCorrect(ops, InDocuments(NotCausal(Shape(1, 150, 1, 1, 64)), lengths), DType::kBF16, rng,
                  Alignment::kSixteenBytes);
  }
  for (DType dtype : kDTypes) {
    ExpectCorrect(ops, InDocuments(Shape(3, 150, 6, 2, 32, 0.3f), {17, 60, 2}), dtype, rng);
  }
  for (int64_t d : {40, 96, 128, 256}) {
    ExpectCorrect(ops, InDocuments(Shape(1, 170, 2, 1, d, d == 128 ? 0.3f : 0), {50, 3, 61}), DType::kBF16, rng,
                  Alignment::kSixteenBytes);
    ExpectCorrect(ops, InDocuments(Windowed(Shape(1, 170, 2, 1, d), 30), {50, 3, 61}), DType::kBF16, rng,
                  Alignment::kSixteenBytes);
  }
}

TEST(AttentionTest, ADocumentChangesNoBitOfItsNeighbours) {
  Rng rng(NewSeed());
  TestOps ops(3);
  for (const auto& [dtype, alignment] :
       {std::pair(DType::kF32, Alignment::kOdd), std::pair(DType::kBF16, Alignment::kSixteenBytes)}) {
    const std::vector<int64_t> lengths = {40, 70, 150, 90};
    Problem before(InDocuments(Shape(1, 350, 2, 1, 64), lengths), dtype, rng, alignment), after = before;
    constexpr int64_t kBegin = 40, kEnd = 110;  // of the second document
    for (int64_t row = kBegin; row < kEnd; ++row) {
      for (int64_t c = 0; c < after.QkvCols(); ++c) after.qkv.Set(row, c, 3 - after.qkv.Get(row, c));
      for (int64_t c = 0; c < after.OutCols(); ++c) after.d_out.Set(row, c, 2 * after.d_out.Get(row, c));
    }
    before.Run(ops);
    after.Run(ops);
    int64_t changed_inside = 0, changed_outside = 0;
    const auto compare = [&](const TestMatrix& a, const TestMatrix& b, int64_t row) {
      int64_t& changed = row >= kBegin && row < kEnd ? changed_inside : changed_outside;
      for (int64_t c = 0; c < a.cols(); ++c) changed += FloatToBits(a.Get(row, c)) != FloatToBits(b.Get(row, c));
    };
    for (int64_t row = 0; row < before.Rows(); ++row) {
      compare(before.out, after.out, row);
      compare(before.d_qkv, after.d_qkv, row);
    }
    EXPECT_EQ(changed_outside, 0);
    EXPECT_GT(changed_inside, 0);
  }
}

TEST(AttentionTest, BlocksThatNobodySeesAreSkipped) {  // what is multiplied by a probability of 0 leaves its poison
  Rng rng(NewSeed());
  constexpr int64_t kPoisoned = 20, kWindow = 40, kLength = 500, kClear = 192;  // more than any block
  for (const auto& [dtype, alignment] :
       {std::pair(DType::kF32, Alignment::kOdd), std::pair(DType::kBF16, Alignment::kSixteenBytes)}) {
    for (int threads : {1, 3}) {
      TestOps ops(threads);
      Problem early(Windowed(Shape(1, kLength, 2, 2, 64), kWindow), dtype, rng, alignment), late = early;
      for (int64_t row = 0; row < kPoisoned; ++row) {
        for (int64_t c = early.OutCols(); c < early.QkvCols(); ++c) early.qkv.Set(row, c, NAN);  // keys and values
        for (int64_t c = 0; c < late.OutCols(); ++c) late.d_out.Set(kLength - 1 - row, c, NAN);
      }
      early.Run(ops);
      late.Run(ops);
      int64_t poisoned = 0;
      for (int64_t row = kPoisoned + kWindow + kClear; row < kLength; ++row) {
        for (int64_t c = 0; c < early.OutCols(); ++c) {
          poisoned += std::isnan(early.out.Get(row, c)) || std::isnan(early.d_qkv.Get(row, c));
          poisoned += std::isnan(late.d_qkv.Get(kLength - 1 - row, late.OutCols() + c));
        }
      }
      EXPECT_EQ(poisoned, 0);
    }
  }
}

TEST(AttentionTest, BlocksOfOtherDocumentsAreSkipped) {
  Rng rng(NewSeed());
  constexpr int64_t kPoisoned = 20, kLength = 700, kClear = 192;  // no block is longer
  for (const auto& [dtype, alignment] :
       {std::pair(DType::kF32, Alignment::kOdd), std::pair(DType::kBF16, Alignment::kSixteenBytes)}) {
    for (int threads : {1, 3}) {
      TestOps ops(threads);
      Problem problem(InDocuments(Shape(1, kLength, 2, 2, 64), {kPoisoned, kClear, 600}), dtype, rng, alignment);
      for (int64_t row = 0; row < kPoisoned; ++row) {
        for (int64_t c = 0; c < problem.QkvCols(); ++c) problem.qkv.Set(row, c, NAN);
      }
      problem.Run(ops);
      int64_t poisoned = 0;
      for (int64_t row = kPoisoned + 2 * kClear; row < kLength; ++row) {
        for (int64_t c = 0; c < problem.OutCols(); ++c) poisoned += std::isnan(problem.out.Get(row, c));
        for (int64_t c = 0; c < problem.QkvCols(); ++c) poisoned += std::isnan(problem.d_qkv.Get(row, c));
      }
      EXPECT_EQ(poisoned, 0);
    }
  }
}

TEST(AttentionTest, LargeScoresDoNotOverflow) {
  Rng rng(NewSeed());
  TestOps ops(1);
  Problem problem(Shape(1, 150, 1, 1, 64), DType::kF32, rng);
  problem.qkv.Fill(rng, 40.0f);  // scores of the order of 10^4
  problem.Run(ops);
  const Reference expected = Expected(problem.shape, problem.qkv, problem.d_out);
  EXPECT_LE(RelativeError(problem.out.Values(), expected.out), 2e-3);
}

TEST(AttentionTest, BitsDoNotDependOnThreads) {
  Rng rng(NewSeed());
  // With 12 and 4 pairs of sequence and key head, some of the thread counts cut the backward pass one way, some the
  // other.
  for (const AttentionShape& shape : {Shape(3, 230, 8, 4, 24), Shape(1, 230, 4, 4, 64, 0.1f), Shape(1, 200, 4, 2, 80),
                                      Windowed(Shape(3, 230, 8, 4, 24), 70), NotCausal(Shape(3, 130, 8, 4, 24)),
                                      InDocuments(Shape(3, 230, 8, 4, 24), {70, 9, 110})}) {
    const Problem problem(shape, DType::kF32, rng);
    ExpectSameBitsForAnyThreadCount([&](TestOps& ops) {
      Problem copy = problem;
      copy.Run(ops);
      return copy.Results();
    });
  }
}

TEST(AttentionTest, APrefixHasTheBitsOfTheWhole) {  // what generation with a growing sequence relies on
  Rng rng(NewSeed());
  TestOps ops(2);
  for (DType dtype : kDTypes) {
    Problem whole(Shape(1, 250, 2, 1, 64), dtype, rng, Alignment::kSixteenBytes);
    whole.Run(ops);
    for (int64_t t : {1, 50, 96, 177}) {
      AttentionShape shape = whole.shape;
      shape.sequence = t;
      TestMatrix out(dtype, t, whole.OutCols());
      std::vector<float> lse(static_cast<size_t>(t * shape.num_heads));
      ops->AttentionForward(out.view(), lse.data(), whole.qkv.view(), shape);
      int64_t different = 0;
      for (int64_t i = 0; i < t * whole.OutCols(); ++i) {
        const int64_t row = i / whole.OutCols(), col = i % whole.OutCols();
        different += FloatToBits(out.Get(row, col)) != FloatToBits(whole.out.Get(row, col));
      }
      EXPECT_EQ(different, 0) << "sequence " << t;
    }
  }
}

}  // namespace
}  // namespace holdfast::kernels::attention_test
