#pragma once
// Progress of anything that takes more than a few seconds: a bar with ETA on a terminal, a plain line now and then in a
// log.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/strings/string_view.h"
#include "framework/metrics/recent_rate.h"

namespace holdfast {

/// Thread-safety: none.
class Progress {
 public:
  /// `unit` is printed after counts ("B" scales to KiB, MiB, GiB; anything else is printed as is); without one only the
  /// percentage is shown, and no counts. total 0 = unknown.
  Progress(std::string label, int64_t total, std::string unit, std::FILE* out = stderr);
  ~Progress();  // ends the line

  /// `detail` is shown after the bar ("loss 2.31"). Draws at most about ten times a second.
  void Update(int64_t done, const std::string& detail = "");
  /// So much less is to be done than the total so far.
  void ReduceTotal(int64_t by) { total_ -= by; }
  /// Clears the bar so that a whole line can be printed, which the next Update draws below.
  void Clear();
  /// Says how much was done and how long it took, unless there was no Update: how far things are is not known then.
  void Finish();

 private:
  void Draw(int64_t done, const std::string& detail, bool last);
  /// "120/1000 steps, 3.1 steps/s, ETA 4 min 44 s, loss 2.31"
  std::string Numbers(int64_t done, const std::string& detail, bool last) const;

  std::string label_, unit_;
  int64_t total_;
  std::FILE* out_;
  bool terminal_;
  bool drawn_ = false, finished_ = false;
  int64_t first_done_ = -1;  // of the first Update: neither start-up nor work done before it is in the rate
  int64_t last_done_ = 0;
  RecentRate recent_;
  std::string last_detail_;
  std::chrono::steady_clock::time_point start_, first_update_, last_draw_;
};

/// How wide a picture on `out` is: `most` columns, or all of a terminal that has fewer, so that no line wraps.
int PictureColumns(std::FILE* out, int most);

/// "1 h 02 min", "3 min 20 s", "12 s"; of two years and more "4026 years".
std::string FormatDuration(double seconds);
/// 1234567 -> "1.23 M".
std::string FormatCount(double count);

}  // namespace holdfast
