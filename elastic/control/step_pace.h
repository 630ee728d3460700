#pragma once
// How long a step takes as a rule, and whether steps take far longer now.
//
// Thread-safety: none.

#include <chrono>
#include <cstddef>
#include <deque>

namespace holdfast {

class StepPace {
 public:
  using Instant = std::chrono::nanoseconds;

  /// A step that followed another one in the same world. One that is far beyond, and those that follow it until they
  /// are as usual again, do not count.
  void Add(double seconds);
  /// The median of the last kWindow; 0 until there are kLeast of them.
  double usual_seconds() const { return usual_; }
  bool IsFarBeyond(double seconds) const { return usual_ > 0 && seconds > kLeastSeconds && seconds > kFactor * usual_; }
  /// A step takes far longer than usual, and none has been as usual since.
  bool slow() const { return slow_; }
  void BeginSlow();
  /// While steps are slow for no known cause: whether one is to be looked for now. Ever more rarely, since what is
  /// found at one moment (packets get lost, a machine is busy) may not be what is there.
  bool TakeLook(Instant now);
  void OnCauseFound() { cause_found_ = true; }
  /// True if that ends with this step.
  bool EndSlow(double seconds);

 private:
  static constexpr size_t kWindow = 32, kLeast = 8;
  static constexpr double kFactor = 5, kLeastSeconds = 1;

  std::deque<double> seconds_;
  double usual_ = 0;
  bool slow_ = false, cause_found_ = false;
  int looks_ = 0;
  Instant next_look_{0};
};

}  // namespace holdfast
