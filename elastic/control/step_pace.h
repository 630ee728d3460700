#pragma once
// How long a step takes as a rule, and whether one takes far longer.
//
// Thread-safety: none.

#include <cstddef>
#include <deque>

namespace holdfast {

class StepPace {
 public:
  /// A step that followed another one in the same world.
  void Add(double seconds);
  /// The median of the last kWindow; 0 until there are kLeast of them.
  double usual_seconds() const { return usual_; }
  bool IsFarBeyond(double seconds) const { return usual_ > 0 && seconds > kLeastSeconds && seconds > kFactor * usual_; }
  /// After one that was.
  bool IsUsualAgain(double seconds) const { return seconds <= kLeastSeconds || seconds <= kFactor / 2 * usual_; }

 private:
  static constexpr size_t kWindow = 32, kLeast = 8;
  static constexpr double kFactor = 5, kLeastSeconds = 1;

  std::deque<double> seconds_;
  double usual_ = 0;
};

}  // namespace holdfast
