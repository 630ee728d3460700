#include "elastic/control/checkpoint_schedule.h"

#include <algorithm>
#include <cmath>

namespace holdfast {
namespace {

constexpr double kFirstSeconds = 60;     // before anything is measured
constexpr double kLeastSeconds = 10;     // shorter is of no use to anybody who does not ask for it
constexpr double kMaxSeconds = 3600;     // what a night's work may lose
constexpr double kPriorSeconds = 86400;  // one failure a day, until the run has shown its own
constexpr double kPersistShare = 0.02;   // writing in the background slows training a little even without a stall

double Seconds(CheckpointSchedule::Instant t) { return std::chrono::duration<double>(t).count(); }

}  // namespace

CheckpointSchedule::Interval CheckpointSchedule::Choose(Instant now) const {
  const double running = start_.has_value() ? Seconds(now - *start_) : 0;
  Interval interval;
  interval.failures = failures_;
  interval.failure_seconds = (running + kPriorSeconds) / static_cast<double>(failures_ + 1);
  if (!persist_.has_value()) {
    interval.seconds = kFirstSeconds;
    return interval;
  }
  interval.cost_seconds = std::max(*stall_, kPersistShare * *persist_);
  const double best = std::sqrt(2 * interval.cost_seconds * interval.failure_seconds);
  interval.seconds = std::clamp(best, std::max(kLeastSeconds, *persist_), std::max(kMaxSeconds, *persist_));
  return interval;
}

bool CheckpointSchedule::IsDue(Instant now, int64_t step) {
  if (!start_.has_value()) start_ = last_ = now;
  if (config_.every_steps > 0) return step % config_.every_steps == 0;
  if (!enabled()) return false;
  const double limit = config_.every_seconds > 0 ? static_cast<double>(config_.every_seconds) : Choose(now).seconds;
  return Seconds(now - *last_) >= limit;
}

void CheckpointSchedule::OnSaved(double stall_seconds, double persist_seconds) {
  stall_ = stall_seconds;
  persist_ = persist_seconds;
}

std::optional<CheckpointSchedule::Interval> CheckpointSchedule::TakeNewInterval(Instant now) {
  const bool automatic = config_.every == CheckpointEvery::kAuto && config_.every_steps == 0 &&
                         config_.every_seconds == 0 && persist_.has_value();
  if (!automatic) return std::nullopt;
  const Interval interval = Choose(now);
  if (announced_ > 0 && std::abs(interval.seconds - announced_) < 0.2 * announced_) return std::nullopt;
  announced_ = interval.seconds;
  return interval;
}

}  // namespace holdfast
