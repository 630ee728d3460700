#include "checkpoint/admin/tensor_statistics.h"

#include <algorithm>

namespace holdfast {

TensorStatistics TensorStatistics::Of(absl::Span<const float> values) {
  TensorStatistics s;
  for (const float value : values) {
    if (std::isnan(value)) {
      ++s.nans;
      continue;
    }
    ++s.count;
    s.zeros += value == 0 ? 1 : 0;
    s.infinities += std::isinf(value) ? 1 : 0;
    s.min = std::min(s.min, static_cast<double>(value));
    s.max = std::max(s.max, static_cast<double>(value));
    s.sum += value;
    s.sum_of_squares += static_cast<double>(value) * value;
  }
  return s;
}

void TensorStatistics::Append(const TensorStatistics& other) {
  min = std::min(min, other.min);
  max = std::max(max, other.max);
  sum += other.sum;
  sum_of_squares += other.sum_of_squares;
  count += other.count;
  zeros += other.zeros;
  nans += other.nans;
  infinities += other.infinities;
}

}  // namespace holdfast
