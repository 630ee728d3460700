#include "framework/parallel/used_cells.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace holdfast {

// A chunk, or a part where the unit is cut at parts, goes to the cell in which a certain point of it lies, in each unit
// another one: with the same point in all, units alike would give the same ranks the larger pieces.
std::vector<int> CellsOfChunks(const ParameterLayout& layout, int num_cells) {
  constexpr double kGoldenRatio = 0.6180339887498949;  // its multiples are spread evenly over [0, 1)
  std::vector<int> cells;
  cells.reserve(layout.chunks().size());
  for (int u = 0; u < layout.num_units(); ++u) {
    const Unit& unit = layout.units()[static_cast<size_t>(u)];
    const double at = std::fmod((u + 1) * kGoldenRatio, 1.0);
    const int end_of_unit = unit.first_chunk + unit.num_chunks;
    int64_t before = 0;
    for (int chunk = unit.first_chunk, end = 0; chunk < end_of_unit; chunk = end) {
      const auto next_part = std::upper_bound(unit.parts.begin(), unit.parts.end(), chunk);
      end = unit.parts.empty() ? chunk + 1 : next_part == unit.parts.end() ? end_of_unit : *next_part;
      int64_t elements = 0;
      for (int c = chunk; c < end; ++c) elements += layout.chunks()[static_cast<size_t>(c)].elements;
      const int64_t point = before + static_cast<int64_t>(at * static_cast<double>(elements));
      before += elements;
      const auto cell = static_cast<int>(point * num_cells / unit.elements);  // exact, so finer cells lie inside
      cells.resize(static_cast<size_t>(end), cell);
    }
  }
  return cells;
}

UsedCells::UsedCells(std::vector<int> finest) {
  std::sort(finest.begin(), finest.end());
  finest.erase(std::unique(finest.begin(), finest.end()), finest.end());
  finest_ = std::make_shared<const std::vector<int>>(std::move(finest));
}

bool UsedCells::Has(int cell, int num_cells) const {
  if (finest_ == nullptr) return true;
  const int64_t size = kFinest / num_cells, first = cell * size;
  const auto next = std::lower_bound(finest_->begin(), finest_->end(), first);
  return next != finest_->end() && *next < first + size;
}

}  // namespace holdfast
