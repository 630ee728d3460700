#pragma once
// The rows of an attention problem, handed over piece by piece with their keys and values kept in between.

#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/kernels/attention_test_util.h"

namespace holdfast::kernels::attention_test {

/// All at once, row by row, in pieces that begin and end anywhere.
inline std::vector<std::vector<int64_t>> Cuts(int64_t sequence) {
  std::vector<std::vector<int64_t>> cuts = {{sequence}, std::vector<int64_t>(static_cast<size_t>(sequence), 1)};
  if (sequence > 4) cuts.push_back({sequence - 4, 1, 2, 1});
  return cuts;
}

/// Where keys and values of a problem are kept, in the reverse order of its sequences and with one more between them;
/// what nobody has written is NaN.
class Continuation {
 public:
  explicit Continuation(Problem& problem)
      : problem_(problem),
        keys_(problem.qkv.dtype(), Sequences() * problem.shape.num_kv_heads * Capacity(), problem.shape.head_dim),
        values_(keys_) {}

  /// Each step hands over so many rows of every sequence.
  template <class AnyOps>
  void Run(AnyOps& ops, const std::vector<int64_t>& steps) {
    int64_t done = 0;
    for (const int64_t count : steps) {
      Step(ops, done, count);
      done += count;
    }
    ASSERT_EQ(done, problem_.shape.sequence);
  }

 private:
  int64_t Sequences() const { return 2 * problem_.shape.batch; }
  int64_t Capacity() const { return problem_.shape.sequence + 3; }

  template <class AnyOps>
  void Step(AnyOps& ops, int64_t first, int64_t count) {
    const AttentionShape& s = problem_.shape;
    TestMatrix qkv(problem_.qkv.dtype(), s.batch * count, problem_.QkvCols(), problem_.QkvCols() + 8);
    TestMatrix out(problem_.qkv.dtype(), s.batch * count, problem_.OutCols(), problem_.OutCols() + 8);
    std::vector<int32_t> sequence_of, position_of;
    for (int64_t row = 0; row < qkv.rows(); ++row) {
      const int64_t b = row / count, position = first + row % count;
      sequence_of.push_back(static_cast<int32_t>(2 * (s.batch - 1 - b)));
      position_of.push_back(static_cast<int32_t>(position));
      for (int64_t c = 0; c < qkv.cols(); ++c) qkv.Set(row, c, problem_.qkv.Get(b * s.sequence + position, c));
    }
    ops->CachedAttention({.out = out.view(),
                          .qkv = qkv.view(),
                          .keys = keys_.view().data,
                          .values = values_.view().data,
                          .sequences = Sequences(),
                          .capacity = Capacity(),
                          .sequence_of = sequence_of.data(),
                          .position_of = position_of.data(),
                          .num_heads = s.num_heads,
                          .num_kv_heads = s.num_kv_heads,
                          .head_dim = s.head_dim,
                          .window = s.window});
    EXPECT_TRUE(out.PaddingIntact());
    for (int64_t row = 0; row < out.rows(); ++row) {
      for (int64_t c = 0; c < out.cols(); ++c) {
        problem_.out.Set(row / count * s.sequence + position_of[static_cast<size_t>(row)], c, out.Get(row, c));
      }
    }
  }

  Problem& problem_;
  TestMatrix keys_, values_;
};

}  // namespace holdfast::kernels::attention_test
