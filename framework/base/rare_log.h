#pragma once
// For what comes again and again: a line at once, and then one in a while that says how often it came.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace holdfast {

/// Thread-safety: none. Time is given, of any clock that does not go back.
class RareLog {
 public:
  using Time = std::chrono::nanoseconds;
  /// Nothing is said of what lasts shorter than `patience`, from the first time that it comes. While it goes on, the
  /// interval is doubled with each line, up to `longest`.
  explicit RareLog(Time interval, Time patience = Time(0), Time longest = Time(0))
      : interval_(interval), patience_(patience), longest_(std::max(interval, longest)) {}

  /// It has come once more: what is to be logged of it, if anything is.
  std::optional<std::string> Line(Time now, absl::string_view what);
  /// It is over: the next time is a first one.
  void Reset();

 private:
  const Time interval_, patience_, longest_;
  Time wait_ = interval_;  // until the next line
  std::optional<Time> began_, said_;
  int64_t left_out_ = 0;  // since the last line
};

}  // namespace holdfast
