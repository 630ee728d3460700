#include "framework/metrics/recent_rate.h"

namespace holdfast {
namespace {

constexpr std::chrono::milliseconds kApart{250};
constexpr std::chrono::seconds kWindow{30};
constexpr size_t kLeastMarks = 4;

}  // namespace

void RecentRate::Add(Time now, int64_t done) {
  last_ = done;
  if (marks_.empty() || now - marks_.back().when >= kApart) marks_.push_back({now, done});
  while (marks_.size() > kLeastMarks && now - marks_.front().when > kWindow) marks_.pop_front();
}

double RecentRate::PerSecond(Time now) const {
  if (marks_.empty() || last_ <= marks_.front().done) return 0;
  const double seconds = std::chrono::duration<double>(now - marks_.front().when).count();
  return seconds > 0 ? static_cast<double>(last_ - marks_.front().done) / seconds : 0;
}

}  // namespace holdfast
