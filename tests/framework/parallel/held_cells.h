#pragma once
// What each rank of a placement holds.

#include <vector>

#include "framework/parallel/placement.h"

namespace holdfast {

/// By rank: the cells whose state it holds, ascending.
inline std::vector<std::vector<int>> HeldCells(const Placement& placement) {
  std::vector<std::vector<int>> held(static_cast<size_t>(placement.size()));
  for (int cell = 0; cell < placement.num_cells(); ++cell) {
    for (const int rank : placement.Holders(cell)) held[static_cast<size_t>(rank)].push_back(cell);
  }
  return held;
}

}  // namespace holdfast
