#pragma once
// The intervals of a law's values, and of what follows from all of them, and which of their ends are limits of the
// search (minimise.h) and not what the runs say: on that side the runs do not bound the value. An end is a limit if it
// comes from resampled laws in which an exponent that the value depends on lies at an end of what is searched, or its
// coefficient is as good as 0, below which the search ends anywhere.

#include <functional>
#include <string>
#include <vector>

#include "framework/scaling/fit.h"
#include "framework/scaling/quantiles.h"

namespace holdfast {

struct LimitedInterval {
  Interval interval;
  bool low_is_limit = false, high_is_limit = false;

  /// "low end: limit of the search"; empty if neither end is one.
  std::string Note() const;
};

struct ValueInterval : LimitedInterval {
  std::string name;
  double fitted = 0;
};

/// Those of ValuesOf, in their order, then that of AllocationExponent, "p".
std::vector<ValueInterval> ValueIntervals(const Fit& fit);

/// Which terms something follows from: those in N and D, or all.
enum class LawPart { kFalling, kWhole };
/// Of something that follows from the coefficients and exponents of these terms.
LimitedInterval LimitedIntervalOf(const Fit& fit, LawPart part, const std::function<double(const Law&)>& value);

}  // namespace holdfast
