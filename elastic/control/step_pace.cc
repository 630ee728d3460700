#include "elastic/control/step_pace.h"

#include <algorithm>
#include <vector>

namespace holdfast {

void StepPace::Add(double seconds) {
  seconds_.push_back(seconds);
  if (seconds_.size() > kWindow) seconds_.pop_front();
  if (seconds_.size() < kLeast) return;
  std::vector<double> sorted(seconds_.begin(), seconds_.end());
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2), sorted.end());
  usual_ = sorted[sorted.size() / 2];
}

}  // namespace holdfast
