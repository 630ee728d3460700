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
  /// `wants_lse`: also writes the problem's.
  explicit Continuation(Problem& problem, bool wants_lse = true)
      : problem_(problem),
        wants_lse_(wants_lse),
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

  /// A row of the problem.
  struct Row {
    int64_t sequence, position;
  };
  /// Hands over these rows.
  template <class AnyOps>
  void Step(AnyOps& ops, const std::vector<Row>& rows) {
    const AttentionShape& s = problem_.shape;
    const auto count = static_cast<int64_t>(rows.size());
    TestMatrix qkv(problem_.qkv.dtype(), count, problem_.QkvCols(), problem_.QkvCols() + 8);
    TestMatrix out(problem_.qkv.dtype(), count, problem_.OutCols(), problem_.OutCols() + 8);
    std::vector<float> lse(static_cast<size_t>(count * s.num_heads), NAN);
    std::vector<int32_t> sequence_of, position_of;
    for (const Row& row : rows) {
      const auto at = static_cast<int64_t>(sequence_of.size());
      for (int64_t c = 0; c < qkv.cols(); ++c) {
        qkv.Set(at, c, problem_.qkv.Get(row.sequence * s.sequence + row.position, c));
      }
      sequence_of.push_back(static_cast<int32_t>(2 * (s.batch - 1 - row.sequence)));
      position_of.push_back(static_cast<int32_t>(row.position));
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
                          .window = s.window,
                          .lse = wants_lse_ ? lse.data() : nullptr});
    EXPECT_TRUE(out.PaddingIntact());
    for (int64_t at = 0; at < count; ++at) {
      const Row& row = rows[static_cast<size_t>(at)];
      for (int64_t c = 0; c < out.cols(); ++c) {
        problem_.out.Set(row.sequence * s.sequence + row.position, c, out.Get(at, c));
      }
      for (int64_t h = 0; h < s.num_heads && wants_lse_; ++h) {
        const int64_t to = (row.sequence * s.num_heads + h) * s.sequence + row.position;
        problem_.lse[static_cast<size_t>(to)] = lse[static_cast<size_t>(at * s.num_heads + h)];
      }
    }
  }

 private:
  int64_t Sequences() const { return 2 * problem_.shape.batch; }
  int64_t Capacity() const { return problem_.shape.sequence + 3; }

  template <class AnyOps>
  void Step(AnyOps& ops, int64_t first, int64_t count) {
    std::vector<Row> rows;
    for (int64_t b = 0; b < problem_.shape.batch; ++b) {
      for (int64_t position = first; position < first + count; ++position) rows.push_back({b, position});
    }
    Step(ops, rows);
  }

  Problem& problem_;
  bool wants_lse_;
  TestMatrix keys_, values_;
};

}  // namespace holdfast::kernels::attention_test
