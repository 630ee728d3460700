#pragma once
// Who mirrors each cell, by definition: for every cell all ranks are looked at. Placement has to choose the same.

#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "framework/parallel/placement.h"

namespace holdfast {

/// A placement and what became of its ranks: rank r is rank ranks[r] in the one after it, or gone (-1).
struct PlacementBefore {
  const Placement& placement;
  int leaving;
  absl::Span<const int> ranks;
};

/// Holders of each cell in the order of Placement::Holders, with those who serve and sum taken from `placement`, the
/// one after `before` (none: the first), of whose ranks the last `leaving` leave.
std::vector<std::vector<int>> PlainHolders(const Placement& placement, int leaving,
                                           const std::optional<PlacementBefore>& before = std::nullopt);

}  // namespace holdfast
