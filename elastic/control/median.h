#pragma once
// The middle of some measurements.

#include <algorithm>
#include <cstddef>
#include <vector>

namespace holdfast {

/// Of an even number the lower of the two in the middle; 0 of none.
inline double LowerMedian(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Of an even number the upper of the two in the middle; 0 of none.
inline double UpperMedian(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace holdfast
