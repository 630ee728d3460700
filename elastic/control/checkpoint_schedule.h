#pragma once
// When the next checkpoint is due. Every so many steps or seconds, or, with `every: auto`, at the interval that loses
// the least time: after sqrt(2 C M) seconds, where C is what a checkpoint costs training and M the mean time between
// failures (Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974; Daly, FGCS
// 22(3), 2006). Both are measured while the run goes on.
//
// Thread-safety: none. Pure: time comes in from outside.

#include <chrono>
#include <cstdint>
#include <optional>

#include "framework/config/config.h"

namespace holdfast {

class CheckpointSchedule {
 public:
  using Instant = std::chrono::nanoseconds;

  explicit CheckpointSchedule(const CheckpointConfig& config) : config_(config) {}

  bool enabled() const { return config_.enabled(); }
  /// Whether the step that has just been committed is to be saved.
  bool IsDue(Instant now, int64_t step);
  void OnBegun(Instant now) { last_ = now; }
  /// `stall`: of training; `persist`: from beginning to durable.
  void OnSaved(double stall_seconds, double persist_seconds);
  void OnFailure() { ++failures_; }

  /// With `auto`: the interval in force and why, for people.
  struct Interval {
    double seconds = 0;
    double cost_seconds = 0, failure_seconds = 0;  // C and M
    int64_t failures = 0;                          // so far; of none M is an assumption
  };
  /// Set if it has changed by a fifth or more since it was last asked for.
  std::optional<Interval> TakeNewInterval(Instant now);

 private:
  Interval Choose(Instant now) const;

  CheckpointConfig config_;
  std::optional<Instant> start_, last_;
  int64_t failures_ = 0;
  std::optional<double> stall_, persist_;  // of the last one
  double announced_ = 0;
};

}  // namespace holdfast
