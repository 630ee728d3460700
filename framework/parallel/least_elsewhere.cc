#include "framework/parallel/least_elsewhere.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace holdfast {

LeastElsewhere::LeastElsewhere(absl::Span<const int> labels, absl::Span<const int> values, int num_labels, int most_out)
    : width_(static_cast<size_t>(most_out) + 1),
      leaves_(static_cast<int>(std::bit_ceil(labels.size()))),
      entries_(2 * static_cast<size_t>(leaves_) * width_),
      is_out_(static_cast<size_t>(num_labels)) {
  for (size_t place = 0; place < labels.size(); ++place) {
    entries_[Offset(leaves_ + static_cast<int>(place))] = {values[place], labels[place]};
  }
  for (int node = leaves_ - 1; node > 0; --node) Join(node);
}

void LeastElsewhere::Set(int place, int value) {
  int node = leaves_ + place;
  entries_[Offset(node)].value = value;
  while ((node /= 2) > 0) Join(node);
}

void LeastElsewhere::LeaveOut(std::vector<int> labels) {
  for (const int label : out_) is_out_[static_cast<size_t>(label)] = false;
  out_ = std::move(labels);
  for (const int label : out_) is_out_[static_cast<size_t>(label)] = true;
}

int LeastElsewhere::LeastOf(int node) const {
  for (const Entry& entry : Of(node)) {
    if (entry.label < 0) break;
    if (!is_out_[static_cast<size_t>(entry.label)]) return entry.value;
  }
  return kNone;
}

// A node of which all places are asked for has one if its least says so: on each level two others are looked at.
int LeastElsewhere::Find(const Node& node, int begin, int end, int value, bool last) const {
  if (end <= node.begin || node.end <= begin) return -1;
  if (const int least = LeastOf(node.index); least == kNone || least > value) return -1;
  if (node.index >= leaves_) return node.begin;
  const int middle = (node.begin + node.end) / 2;
  const Node left{2 * node.index, node.begin, middle}, right{2 * node.index + 1, middle, node.end};
  const int place = Find(last ? right : left, begin, end, value, last);
  return place >= 0 ? place : Find(last ? left : right, begin, end, value, last);
}

// Both halves, the less value first, each label once.
void LeastElsewhere::Join(int node) {
  const absl::Span<const Entry> left = Of(2 * node), right = Of(2 * node + 1);
  const absl::Span<Entry> joined = absl::MakeSpan(entries_).subspan(Offset(node), width_);
  size_t l = 0, r = 0, n = 0;
  const auto is_left = [&](absl::Span<const Entry> half, size_t at) { return at < width_ && half[at].label >= 0; };
  while (n < width_ && (is_left(left, l) || is_left(right, r))) {
    const bool from_left = is_left(left, l) && (!is_left(right, r) || left[l].value <= right[r].value);
    const Entry entry = from_left ? left[l++] : right[r++];
    const auto same = [&](const Entry& other) { return other.label == entry.label; };
    if (std::none_of(joined.begin(), joined.begin() + static_cast<std::ptrdiff_t>(n), same)) joined[n++] = entry;
  }
  std::fill(joined.begin() + static_cast<std::ptrdiff_t>(n), joined.end(), Entry{});
}

}  // namespace holdfast
