#include "elastic/control/step_pace.h"

#include <utility>

#include "elastic/control/median.h"

namespace holdfast {

bool StepPace::EndSlow(double seconds) {
  const bool is_usual = seconds <= kLeastSeconds || seconds <= kFactor / 2 * usual_;
  return is_usual && std::exchange(slow_, false);
}

void StepPace::Add(double seconds) {
  if (slow_ || IsFarBeyond(seconds)) return;
  seconds_.push_back(seconds);
  if (seconds_.size() > kWindow) seconds_.pop_front();
  if (seconds_.size() < kLeast) return;
  usual_ = UpperMedian({seconds_.begin(), seconds_.end()});
}

}  // namespace holdfast
