#pragma once
// How fast something counts up of late.
//
// Thread-safety: none.

#include <chrono>
#include <cstdint>
#include <deque>

namespace holdfast {

class RecentRate {
 public:
  using Time = std::chrono::steady_clock::time_point;

  void Add(Time now, int64_t done);
  /// Per second, over the last half minute, or over the last four counts where those reach further back; 0 = unknown.
  /// A standstill until `now` counts.
  double PerSecond(Time now) const;

 private:
  struct Mark {
    Time when;
    int64_t done = 0;
  };
  std::deque<Mark> marks_;  // at least kApart apart
  int64_t last_ = 0;
};

}  // namespace holdfast
