#pragma once
// Values at places in a row, each with a label: the least of those whose label is not left out, and where it stands. A
// change and a question take the logarithm of the number of places, times the labels that may be left out.
//
// A binary tree over the places. Each range keeps the least value of each label in it, of as many labels as may be left
// out and one more, those with the least values: one of them counts, if any in the range does.

#include <limits>
#include <vector>

#include "absl/types/span.h"

namespace holdfast {

class LeastElsewhere {
 public:
  static constexpr int kNone = std::numeric_limits<int>::max();

  /// `labels` and `values` by place, labels from 0 to `num_labels` - 1. At most `most_out` are left out at a time.
  LeastElsewhere(absl::Span<const int> labels, absl::Span<const int> values, int num_labels, int most_out);

  void Set(int place, int value);
  /// Labels that do not count, instead of those before. One may be named several times.
  void LeaveOut(std::vector<int> labels);

  /// Of all that count; kNone if none does.
  int Least() const { return LeastOf(1); }
  /// The first and the last place in [begin, end) that counts and has at most `value`; -1 if there is none.
  int First(int begin, int end, int value) const { return Find({1, 0, leaves_}, begin, end, value, false); }
  int Last(int begin, int end, int value) const { return Find({1, 0, leaves_}, begin, end, value, true); }

 private:
  struct Entry {
    int value = 0, label = -1;  // -1: no more
  };
  struct Node {
    int index, begin, end;  // places
  };

  absl::Span<const Entry> Of(int node) const { return absl::MakeConstSpan(entries_).subspan(Offset(node), width_); }
  size_t Offset(int node) const { return static_cast<size_t>(node) * width_; }
  int LeastOf(int node) const;
  int Find(const Node& node, int begin, int end, int value, bool last) const;
  void Join(int node);

  size_t width_;                // entries of a node
  int leaves_;                  // a power of two
  std::vector<Entry> entries_;  // [node][entry], ascending by value; the root is node 1
  std::vector<bool> is_out_;    // by label
  std::vector<int> out_;
};

}  // namespace holdfast
