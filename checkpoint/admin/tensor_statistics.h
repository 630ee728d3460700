#pragma once
// Numbers that describe a tensor: what somebody looks at who suspects that training went wrong.

#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/types/span.h"

namespace holdfast {

/// Of all values that are numbers; NaNs are counted and left out.
struct TensorStatistics {
  double min = std::numeric_limits<double>::infinity(), max = -std::numeric_limits<double>::infinity();
  double sum = 0, sum_of_squares = 0;
  int64_t count = 0, zeros = 0, nans = 0, infinities = 0;

  static TensorStatistics Of(absl::Span<const float> values);
  /// As if the values of `other` came behind; the sums depend on the order.
  void Append(const TensorStatistics& other);

  double mean() const { return count > 0 ? sum / static_cast<double>(count) : 0; }
  double rms() const { return count > 0 ? std::sqrt(sum_of_squares / static_cast<double>(count)) : 0; }
};

}  // namespace holdfast
