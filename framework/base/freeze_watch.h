#pragma once
// Time in which this process did not run while others did: it was stopped (SIGSTOP, a suspended job), or its machine
// was. It says nothing of who did not answer meanwhile, nor of how long its own threads took. Pure: time is given.

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <optional>
#include <utility>

namespace holdfast {

/// Thread-safety: none.
class FreezeWatch {
 public:
  using Clock = std::chrono::steady_clock;
  using Since = std::optional<Clock::time_point>;
  /// `interval`: from one look to the next of a process that runs.
  FreezeWatch(Clock::time_point now, Clock::duration interval) : interval_(interval), last_(now) {}

  /// If the process was frozen since the last look, what has lasted since these moments counts for so much less.
  void Look(Clock::time_point now, std::initializer_list<Since*> since) {
    const Clock::duration gap = now - std::exchange(last_, now);
    if (gap <= kLate * interval_) return;
    for (Since* const moment : since) {
      if (moment->has_value()) *moment = std::min(now, **moment + (gap - interval_));
    }
  }

 private:
  static constexpr int kLate = 5;  // of a busy machine
  const Clock::duration interval_;
  Clock::time_point last_;
};

}  // namespace holdfast
