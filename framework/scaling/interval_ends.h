#pragma once
// The intervals of a law's values, and which of their ends are limits of the search (minimise.h) and not what the runs
// say: on that side the runs do not bound the value.

#include <string>
#include <vector>

#include "framework/scaling/fit.h"
#include "framework/scaling/quantiles.h"

namespace holdfast {

struct ValueInterval {
  std::string name;
  double fitted = 0;
  Interval interval;
  bool low_is_limit = false, high_is_limit = false;

  /// "low end: limit of the search"; empty if neither end is one.
  std::string Note() const;
};

/// Those of ValuesOf, in their order, then that of AllocationExponent, "p". An end is a limit if it comes from
/// resampled laws in which an exponent that the value depends on lies at an end of what is searched, or its coefficient
/// is as good as 0, below which the search ends anywhere.
std::vector<ValueInterval> ValueIntervals(const Fit& fit);

}  // namespace holdfast
