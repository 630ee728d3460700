#pragma once
// The cells of a placement (placement.h) in which a model has chunks. A model with few chunks leaves some empty, and an
// empty cell is never lost, whoever goes.

#include <memory>
#include <vector>

#include "framework/nn/layout.h"

namespace holdfast {

/// The cell of each chunk, when a model is cut into `num_cells`; the same one for all chunks of a part. Cells of a
/// power of two more lie inside those of fewer.
std::vector<int> CellsOfChunks(const ParameterLayout& layout, int num_cells);

/// A copy costs nothing. Thread-safe.
class UsedCells {
 public:
  static constexpr int kFinest = 1 << 21;  // no placement has more cells

  /// Of a model that is not known: all of them.
  UsedCells() = default;
  explicit UsedCells(const ParameterLayout& layout) : UsedCells(CellsOfChunks(layout, kFinest)) {}
  /// Of `kFinest` cells those that are used, in any order.
  explicit UsedCells(std::vector<int> finest);

  /// `cell` of `num_cells`, a power of two.
  bool Has(int cell, int num_cells) const;
  friend bool operator==(const UsedCells& a, const UsedCells& b) {
    return a.finest_ == b.finest_ || (a.finest_ != nullptr && b.finest_ != nullptr && *a.finest_ == *b.finest_);
  }

 private:
  std::shared_ptr<const std::vector<int>> finest_;  // ascending; null = all. By all copies
};

}  // namespace holdfast
