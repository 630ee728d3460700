#include "framework/search/history.h"

#include <cmath>

#include "framework/search/low_discrepancy.h"

namespace holdfast::search {

bool IsMeasured(const Observation& observation) {
  return observation.outcome == TrialOutcome::kMeasured && std::isfinite(observation.value);
}

bool IsRunning(const Observation& observation) { return observation.outcome == TrialOutcome::kRunning; }

bool HasCost(const Observation& observation) { return std::isfinite(observation.cost) && observation.cost > 0; }

std::set<std::string> Tried(const SearchSpace& space, absl::Span<const Observation> history) {
  std::set<std::string> tried;
  for (const Observation& observation : history) {
    if (space.ToUnit(observation.point).ok()) tried.insert(PointText(observation.point));
  }
  return tried;
}

std::optional<Point> NextSpread(const SearchSpace& space, uint64_t seed, absl::Span<const Observation> history) {
  const std::set<std::string> tried = Tried(space, history);
  const std::optional<int64_t> count = space.Count();
  if (count.has_value() && static_cast<int64_t>(tried.size()) >= *count) return std::nullopt;
  constexpr uint64_t kTries = 200;
  for (uint64_t i = 0; i < kTries; ++i) {
    Point point = space.FromUnit(HaltonPoint(seed, history.size() + i, space.dimensions().size()));
    if (!tried.contains(PointText(point))) return point;
  }
  if (!count.has_value()) return std::nullopt;
  // Few are left: the first of those from a random one on.
  const double start = Uniform(seed, Draw::kStart, static_cast<uint32_t>(history.size()), 0, 0);
  const auto first = static_cast<int64_t>(start * static_cast<double>(*count));
  for (int64_t i = 0; i < *count; ++i) {
    Point point = space.At((first + i) % *count);
    if (!tried.contains(PointText(point))) return point;
  }
  return std::nullopt;
}

}  // namespace holdfast::search
