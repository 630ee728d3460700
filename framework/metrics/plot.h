#pragma once
// Curves for people: an SVG file, and a plot of Unicode braille dots for the terminal.

#include <string>
#include <vector>

namespace holdfast {

struct Curve {
  std::string label;
  std::vector<double> x, y;                 // same length; non-finite points are gaps
  bool points = false;                      // draw markers
  bool line = true;                         // and a line
  std::vector<double> low = {}, high = {};  // as long as y, or empty: a band around the line, in SVG alone
  int color = -1;                           // curves of one number look alike; -1: one for each place in the list
  bool dashed = false;                      // in SVG: shows one that it may lie on
};

struct PlotOptions {
  std::string title, x_label, y_label;
  bool log_y = false, log_x = false;
  Curve steps_below = {};  // if it has points: in SVG a strip below the plot, from 0 on, each value up to the next
};

std::string PlotSvg(const std::vector<Curve>& curves, const PlotOptions& options);

/// `columns` x `rows` characters, axes included, more rows only where the legend needs them; plain ASCII if not
/// `unicode`.
std::string PlotTerminal(const std::vector<Curve>& curves, const PlotOptions& options, int columns, int rows,
                         bool unicode);

}  // namespace holdfast
