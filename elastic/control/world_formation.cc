#include "elastic/control/world_formation.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace holdfast {

int64_t WorldFormation::OnJoin(Instant now, const std::string& name, bool with_state) {
  last_join_ = now;
  if (!first_join_.has_value()) first_join_ = now;
  OnNewcomer(now);
  if (with_state) {
    if (returned_.insert(name).second) last_holder_ = now;
    if (!first_claim_.has_value()) first_claim_ = now;
  }
  return ++arrivals_;
}

void WorldFormation::OnNewcomer(Instant now) {
  if (!first_newcomer_.has_value()) first_newcomer_ = now;
}

void WorldFormation::AddReason(const std::string& reason, double detect_seconds) {
  constexpr size_t kMaxBytes = 1000;
  if (reason_.size() < kMaxBytes) absl::StrAppend(&reason_, reason_.empty() ? "" : "; ", reason);
  detect_seconds_ = std::max(detect_seconds_, detect_seconds);
}

bool WorldFormation::OnStateMissing(Instant now) {
  Wait();
  if (missing_since_.has_value()) return false;
  missing_since_ = now;
  return true;
}

std::optional<WorldFormation::Instant> WorldFormation::OnTooFew(Instant now, Instant limit) {
  if (!too_few_since_.has_value()) too_few_since_ = now;
  if (reported_too_few_ || now - *too_few_since_ < limit) return std::nullopt;
  reported_too_few_ = true;
  return now - *too_few_since_;
}

void WorldFormation::OnPublished(Instant now, int64_t size, bool newcomers) {
  last_world_ = {now, size};
  reason_.clear();
  waiting_for_.clear();
  detect_seconds_ = 0;
  had_to_wait_ = false;
  settling_since_.reset();
  too_few_since_.reset();
  reported_too_few_ = false;
  first_newcomer_.reset();
  if (newcomers) first_newcomer_ = now;
}

void WorldFormation::Forgive(Instant gap) {
  last_holder_ += gap;
  last_few_ += gap;
  for (std::optional<Instant>* since : {&first_join_, &first_claim_, &missing_since_, &settling_since_}) {
    if (since->has_value()) **since += gap;
  }
}

}  // namespace holdfast
