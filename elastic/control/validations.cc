#include "elastic/control/validations.h"

#include <cmath>

namespace holdfast {

Validations::Validations(const EarlyStopRule& rule, const std::vector<ValidationResult>& known) : rule_(rule) {
  known_.reserve(known.size());
  for (const ValidationResult& result : known) Add(result);
}

bool Validations::Add(const ValidationResult& result) {
  if (Has(result.step)) return false;
  known_.push_back({.result = result, .so_far = StandAfter(result)});
  return true;
}

Validations::EarlyStop Validations::StandAfter(const ValidationResult& result) const {
  if (known_.empty()) return {.lowest = result, .last_fall = result};
  const auto falls = [&result](const ValidationResult& before, double by) {
    return result.loss < before.loss - by || (std::isnan(before.loss) && !std::isnan(result.loss));
  };
  EarlyStop stop = known_.back().so_far;
  if (falls(stop.lowest, 0)) stop.lowest = result;
  ++stop.later;
  if (falls(stop.last_fall, rule_.min_delta)) {
    stop.last_fall = result;
    stop.later = 0;
  }
  return stop;
}

std::optional<ValidationResult> Validations::Of(int64_t step) const {
  for (auto it = known_.rbegin(); it != known_.rend() && it->result.step >= step; ++it) {
    if (it->result.step == step) return it->result;
  }
  return std::nullopt;
}

void Validations::GoBackTo(int64_t step) {
  while (!known_.empty() && known_.back().result.step > step) known_.pop_back();
}

std::optional<Validations::EarlyStop> Validations::EndAfter(int64_t step) const {
  if (rule_.patience == 0 || known_.empty() || known_.back().result.step != step) return std::nullopt;
  const EarlyStop& stop = known_.back().so_far;
  return stop.later >= rule_.patience ? std::optional(stop) : std::nullopt;
}

}  // namespace holdfast
