#pragma once
// One axis of a plot: the range that holds all values, round tick values (whole ones where all values are whole), and
// the map from a value to its place.

#include <string>
#include <vector>

#include "framework/metrics/plot.h"

namespace holdfast {

struct Axis {
  double low = 0, high = 1;
  bool log = false;
  std::vector<double> ticks;  // rising, within [low, high]

  bool Shows(double value) const;        // false for a gap: not finite, absurdly large, or not positive on a log axis
  double Position(double value) const;   // [low, high] -> [0, 1]
  std::string Label(double tick) const;  // no two ticks have the same

 private:
  int DigitsOf(double tick) const;
};

/// The axis over the values of `curves` that can be shown: of Curve::x or, if `vertical`, of Curve::y and of bands.
/// At most about `max_ticks` ticks.
Axis MakeAxis(const std::vector<Curve>& curves, bool vertical, bool log, int max_ticks);

struct PlotPoint {
  double x, y;  // in [0, 1], y upward
};

/// The curve's runs between gaps, in [0, 1] x [0, 1]. Where more than four points share one of `columns` columns, only
/// the first, lowest, highest and last of them are kept, which draw the same.
std::vector<std::vector<PlotPoint>> Segments(const Curve& curve, const Axis& x, const Axis& y, int columns);

}  // namespace holdfast
