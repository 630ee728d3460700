#pragma once
// Who can be done without: which of the nodes that are to leave can be let go while there is no world to move state in,
// and whose last copies several would take with them.

#include <string>
#include <vector>

#include "elastic/control/world.h"
#include "framework/parallel/placement.h"
#include "framework/parallel/used_cells.h"

namespace holdfast {

/// By place in `leaving`, where a node stands once: whether it may go, if those before it that may have gone. The state
/// lies in `source`, as `placement` says; of its ranks only those with here[rank] still have their part, and these have
/// all of it. Thousands may leave at once, so each cell is looked at twice, and not once for each of them.
std::vector<bool> WhoCanGo(const World& source, const Placement& placement, const UsedCells& used,
                           const std::vector<bool>& here, const std::vector<std::string>& leaving);

/// Who cannot go together: parts of the ranks of `source` that hold all copies of a cell, for each cell that nobody
/// else holds; each list ascends and stands there once. part_of[rank]: kStays if it is not asked about. The rest as
/// above. Of thousands of sets of parts each is told by these lists, and not by a look at all cells.
inline constexpr int kStays = -1;
std::vector<std::vector<int>> LastHolders(const World& source, const Placement& placement, const UsedCells& used,
                                          const std::vector<bool>& here, const std::vector<int>& part_of);

}  // namespace holdfast
