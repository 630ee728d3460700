#include "elastic/control/step_pace.h"

#include "elastic/control/median.h"

namespace holdfast {

void StepPace::Add(double seconds) {
  seconds_.push_back(seconds);
  if (seconds_.size() > kWindow) seconds_.pop_front();
  if (seconds_.size() < kLeast) return;
  usual_ = UpperMedian({seconds_.begin(), seconds_.end()});
}

}  // namespace holdfast
