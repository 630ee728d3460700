#include "elastic/control/straggler.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "elastic/control/median.h"

namespace holdfast {
namespace {

constexpr double kClear = 5;             // robust standard deviations
constexpr double kLeastExcess = 0.0005;  // seconds per microbatch: below, nobody notices
constexpr double kNotable = 1.2;         // against the ranks, for one that is slower than it used to be
constexpr int64_t kStreak = 3;
constexpr double kStreakSeconds = 1;
constexpr int64_t kMemoryWindows = 10;  // without microbatches
constexpr double kUsualWeight = 0.02;   // of one step in the long-time mean

}  // namespace

StragglerDetector::StragglerDetector(double factor, int64_t window)
    : factor_(factor), window_(static_cast<size_t>(std::max<int64_t>(1, window))) {}

void StragglerDetector::Add(const Sample& sample) {
  Track& track = tracks_[sample.worker];
  if (sample.microbatches <= 0) {
    ++track.idle_steps;
    if (track.idle_steps >= kMemoryWindows * static_cast<int64_t>(window_)) {
      track.seconds.clear();
      track.median = 0;
    }
    return;
  }
  track.idle_steps = 0;
  track.last_seconds = sample.compute_seconds;
  track.seconds.push_back(std::max(0.0, sample.compute_seconds) / static_cast<double>(sample.microbatches));
  if (track.seconds.size() > window_) track.seconds.pop_front();
  if (track.seconds.size() == window_) track.median = LowerMedian({track.seconds.begin(), track.seconds.end()});
}

void StragglerDetector::Measure() {
  std::vector<double> medians, distances;
  for (const auto& [worker, track] : tracks_) {
    if (track.median > 0) medians.push_back(track.median);
  }
  median_ = LowerMedian(medians);
  distances.reserve(medians.size());
  for (const double m : medians) distances.push_back(std::abs(m - median_));
  deviation_ = 1.4826 * LowerMedian(distances);  // of a normal distribution, from its median absolute deviation
  for (auto& [worker, track] : tracks_) track.ratio = median_ > 0 ? track.median / median_ : 0;
}

bool StragglerDetector::SpeaksForChange(const Track& track) const {
  const bool against_past = track.usual_ratio > 0 && track.ratio > factor_ * track.usual_ratio;
  const double excess = track.median - median_;
  if (!track.slow) {
    const bool against_ranks = track.ratio > factor_ && excess > kClear * deviation_;
    return excess > kLeastExcess && (against_ranks || (against_past && track.ratio > kNotable));
  }
  const double half_way = (1 + factor_) / 2;
  const bool as_usual = track.usual_ratio > 0 && track.usual_ratio < kNotable && track.ratio < half_way;
  return track.ratio < half_way && (as_usual || track.usual_ratio <= 0 || !against_past);
}

std::vector<StragglerDetector::Change> StragglerDetector::OnStep(const std::vector<Sample>& samples) {
  std::vector<Change> changes;
  std::set<std::string> present;
  for (const Sample& sample : samples) present.insert(sample.worker);
  for (auto it = tracks_.begin(); it != tracks_.end();) {
    if (present.count(it->first) == 0) {
      if (it->second.slow) changes.push_back({it->first, false, 0, 0, "left the world"});
      it = tracks_.erase(it);
    } else {
      ++it;
    }
  }
  for (const Sample& sample : samples) Add(sample);
  Measure();
  for (auto& [worker, track] : tracks_) {
    if (track.median <= 0 || track.idle_steps > 0) continue;
    const bool speaks = SpeaksForChange(track);
    track.streak = speaks ? track.streak + 1 : 0;
    track.streak_seconds = speaks ? track.streak_seconds + track.last_seconds : 0;
    if (track.streak >= kStreak && track.streak_seconds >= kStreakSeconds) {
      track.streak = 0;
      track.streak_seconds = 0;
      track.slow = !track.slow;
      const double own = track.usual_ratio > 0 ? track.ratio / track.usual_ratio : 0;
      changes.push_back({worker, track.slow, track.ratio, own,
                         !track.slow             ? "as fast as the others again"
                         : track.ratio > factor_ ? "slower than the median of the ranks"
                                                 : kSlowerThanBefore});
    }
    if (!track.slow && track.streak == 0) {
      const double weight = track.usual_ratio > 0 ? kUsualWeight : 1;
      track.usual_ratio += weight * (track.ratio - track.usual_ratio);
    }
  }
  return changes;
}

double StragglerDetector::SecondsOf(const std::string& worker) const {
  const auto it = tracks_.find(worker);
  return it == tracks_.end() ? 0 : it->second.median;
}

double StragglerDetector::FactorOf(const std::string& worker) const {
  const auto it = tracks_.find(worker);
  return it == tracks_.end() ? 0 : it->second.ratio;
}

}  // namespace holdfast
