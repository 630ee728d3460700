#include "elastic/control/step_pace.h"

#include <algorithm>
#include <utility>

#include "elastic/control/median.h"

namespace holdfast {

void StepPace::BeginSlow() {
  slow_ = true;
  cause_found_ = false;
  looks_ = 0;
  next_look_ = Instant{0};
}

bool StepPace::TakeLook(Instant now) {
  constexpr std::chrono::seconds kFirstWait{5};
  constexpr int kMaxDoublings = 6;
  if (!slow_ || cause_found_ || now < next_look_) return false;
  next_look_ = now + kFirstWait * (1 << std::min(looks_++, kMaxDoublings));
  return true;
}

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
