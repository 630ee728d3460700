#include "elastic/control/validations.h"

#include <cmath>

namespace holdfast {

bool Validations::Add(const ValidationResult& result) {
  if (Has(result.step)) return false;
  known_.push_back(result);
  return true;
}

std::optional<ValidationResult> Validations::Of(int64_t step) const {
  for (auto it = known_.rbegin(); it != known_.rend() && it->step >= step; ++it) {
    if (it->step == step) return *it;
  }
  return std::nullopt;
}

void Validations::GoBackTo(int64_t step) {
  while (!known_.empty() && known_.back().step > step) known_.pop_back();
}

std::optional<Validations::EarlyStop> Validations::EndAfter(int64_t step) const {
  if (rule_.patience == 0 || known_.empty() || known_.back().step != step) return std::nullopt;
  const auto falls = [](const ValidationResult& result, const ValidationResult& before, double by) {
    return result.loss < before.loss - by || (std::isnan(before.loss) && !std::isnan(result.loss));
  };
  EarlyStop stop{.lowest = known_.front(), .last_fall = known_.front()};
  for (const ValidationResult& result : known_) {
    if (falls(result, stop.lowest, 0)) stop.lowest = result;
    if (falls(result, stop.last_fall, rule_.min_delta)) {
      stop.last_fall = result;
      stop.later = 0;
    } else if (result.step > stop.last_fall.step) {
      ++stop.later;
    }
  }
  return stop.later >= rule_.patience ? std::optional(stop) : std::nullopt;
}

}  // namespace holdfast
