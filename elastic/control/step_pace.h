#pragma once
// How long a step takes as a rule, and whether steps take far longer now.
//
// Thread-safety: none.

#include <cstddef>
#include <deque>

namespace holdfast {

class StepPace {
 public:
  /// A step that followed another one in the same world. One that is far beyond, and those that follow it until they
  /// are as usual again, do not count.
  void Add(double seconds);
  /// The median of the last kWindow; 0 until there are kLeast of them.
  double usual_seconds() const { return usual_; }
  bool IsFarBeyond(double seconds) const { return usual_ > 0 && seconds > kLeastSeconds && seconds > kFactor * usual_; }
  /// A step takes far longer than usual, and none has been as usual since.
  bool slow() const { return slow_; }
  void BeginSlow() { slow_ = true; }
  /// True if that ends with this step.
  bool EndSlow(double seconds);

 private:
  static constexpr size_t kWindow = 32, kLeast = 8;
  static constexpr double kFactor = 5, kLeastSeconds = 1;

  std::deque<double> seconds_;
  double usual_ = 0;
  bool slow_ = false;
};

}  // namespace holdfast
