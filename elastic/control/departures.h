#pragma once
// Which of the nodes that are to leave can be let go while there is no world to move state in.

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

}  // namespace holdfast
