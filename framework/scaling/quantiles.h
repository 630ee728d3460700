#pragma once
// From resampled values to intervals.

#include <cstdint>
#include <vector>

namespace holdfast {

struct Interval {
  double low = 0, high = 0;
};

/// The share of resampled values that lies below a central interval of `level` (0.9) when `parameters` values were
/// fitted to `runs` > `parameters` runs: the normal distribution's at sqrt(n / (n - p)) times Student's t with n - p
/// degrees of freedom. Plain percentiles are too narrow where runs are few, for resampling has their variance about the
/// fit and not about the truth (Hesterberg 2015, "What teachers should know about the bootstrap", section 5.3, expanded
/// percentile interval, for a mean: p = 1).
double ExpandedTail(double level, int64_t runs, int parameters);

/// The values at the shares `tail` and 1 - `tail`, interpolated; `values` has at least one.
Interval CentralInterval(std::vector<double> values, double tail);

}  // namespace holdfast
