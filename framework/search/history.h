#pragma once
// What all strategies ask of a history.

#include <optional>
#include <set>
#include <string>

#include "absl/types/span.h"
#include "framework/search/space.h"
#include "framework/search/trial.h"

namespace holdfast::search {

bool IsMeasured(const Observation& observation);  // with a finite value
bool IsRunning(const Observation& observation);
bool HasCost(const Observation& observation);

/// Texts of the points of this space that were tried, at any rung.
std::set<std::string> Tried(const SearchSpace& space, absl::Span<const Observation> history);

/// The next of an even spread of points that has not been tried; nothing if all of a finite space are.
std::optional<Point> NextSpread(const SearchSpace& space, uint64_t seed, absl::Span<const Observation> history);

}  // namespace holdfast::search
