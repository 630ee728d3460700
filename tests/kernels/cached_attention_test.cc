// Proves attention over kept keys and values: row after row, or several at once, gives what attention over the whole
// sequence gives, by its definition in double precision, and its log-sum-exp; nothing that another sequence keeps, or
// that lies after a row, is read; and bits do not depend on the number of threads.

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/kernels/attention_test_util.h"
#include "tests/kernels/cached_attention_util.h"

namespace holdfast::kernels::attention_test {
namespace {

std::vector<AttentionShape> Shapes() {
  return {Shape(2, 1, 2, 2, 16),
          Shape(2, 40, 3, 3, 24),
          Shape(1, 270, 1, 1, 8),
          Shape(1, 33, 14, 2, 64),
          Shape(1, 101, 2, 1, 256),
          Windowed(Shape(2, 70, 4, 2, 24), 37),
          Windowed(Shape(1, 203, 2, 1, 24), 100)};
}

TEST(CachedAttention, MatchesTheDefinitionHoweverRowsAreCut) {
  Rng rng(NewSeed());
  TestOps ops(3);
  for (const AttentionShape& shape : Shapes()) {
    for (DType dtype : kDTypes) {
      SCOPED_TRACE(NameOf(shape, dtype));
      Problem problem(shape, dtype, rng);
      const Reference expected = Expected(shape, problem.qkv, problem.d_out);
      for (const std::vector<int64_t>& cut : Cuts(shape.sequence)) {
        problem.lse.assign(problem.lse.size(), NAN);
        Continuation continuation(problem);
        continuation.Run(ops, cut);
        EXPECT_LE(MaxError(problem.lse, expected.lse), 4e-6);
        EXPECT_LE(RelativeError(problem.out.Values(), expected.out), RoundingError(dtype));
        EXPECT_LE(MaxError(problem.out.Values(), expected.out), dtype == DType::kF32 ? 1e-5 : RoundingError(dtype));
        EXPECT_TRUE(problem.out.PaddingIntact());
      }
    }
  }
}

// Where a sequence is by one row ahead of the one before it in a call, its row has the position that follows.
TEST(CachedAttention, RowsOfSequencesWhosePositionsFollowEachOtherAreKeptApart) {
  Rng rng(NewSeed());
  TestOps ops(2);
  for (DType dtype : kDTypes) {
    const AttentionShape shape = Shape(2, 3, 2, 1, 16);
    Problem problem(shape, dtype, rng);
    const Reference expected = Expected(shape, problem.qkv, problem.d_out);
    Continuation continuation(problem);
    using Rows = std::vector<Continuation::Row>;
    for (const Rows& rows : {Rows{{1, 0}}, Rows{{0, 0}, {1, 1}}, Rows{{0, 1}, {1, 2}}, Rows{{0, 2}}}) {
      continuation.Step(ops, rows);
    }
    EXPECT_LE(RelativeError(problem.out.Values(), expected.out), RoundingError(dtype));
  }
}

TEST(CachedAttention, BitsDoNotDependOnThreads) {
  Rng rng(NewSeed());
  for (DType dtype : kDTypes) {
    Problem problem(Shape(3, 61, 4, 2, 24), dtype, rng);
    ExpectSameBitsForAnyThreadCount([&](TestOps& ops) {
      Continuation continuation(problem, false);
      continuation.Run(ops, {50, 1, 10});
      return problem.out.Values();
    });
  }
}

}  // namespace
}  // namespace holdfast::kernels::attention_test
