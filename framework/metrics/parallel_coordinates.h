#pragma once
// Many values of many things in one picture: a vertical axis for each value, a line across them for each thing.

#include <optional>
#include <string>
#include <vector>

namespace holdfast {

struct CoordinateAxis {
  std::string label;
  bool log = false;
  std::vector<std::string> choices = {};  // of an axis of names: values are places in this list
};

struct CoordinateLine {
  std::vector<std::optional<double>> values;  // one for each axis; nothing: the line leaves it out
  double rank = 0;                            // in [0, 1], its colour: 0 is the best and is drawn last
};

std::string ParallelCoordinatesSvg(const std::string& title, const std::vector<CoordinateAxis>& axes,
                                   const std::vector<CoordinateLine>& lines);

}  // namespace holdfast
