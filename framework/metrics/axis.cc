#include "framework/metrics/axis.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"

namespace holdfast {
namespace {

constexpr double kLargest = 1e100;  // so that no range, ratio or margin overflows

/// The smallest of 1, 2, 5 times a power of ten that is at least `size`.
double RoundStep(double size) {
  const double power = std::pow(10.0, std::floor(std::log10(size)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= size * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

/// `step_min`: 1 where all values are whole, as numbers of layers: there is nothing half way between two of them.
std::vector<double> LinearTicks(double low, double high, int max_ticks, double step_min) {
  const double step = std::max(step_min, RoundStep((high - low) / std::max(1, max_ticks)));
  std::vector<double> ticks;
  for (double index = std::ceil(low / step - 1e-9); index * step <= high + 1e-9 * step; ++index) {
    ticks.push_back(index * step);
  }
  return ticks;
}

/// Powers of ten, with 2 and 5 between them where there is room, thinned out where there is not.
std::vector<double> LogTicks(double low, double high, int max_ticks, double step_min) {
  const double decades = std::log10(high / low);
  if (decades < 1) return LinearTicks(low, high, max_ticks, step_min);
  const int stride = std::max(1, static_cast<int>(std::ceil(decades / std::max(1, max_ticks))));
  std::vector<double> factors = {1};
  if (3 * decades <= max_ticks) factors = {1, 2, 5};
  std::vector<double> ticks;
  for (int power = static_cast<int>(std::floor(std::log10(low))); std::pow(10.0, power) <= high; power += stride) {
    for (const double factor : factors) {
      const double tick = factor * std::pow(10.0, power);
      if (tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9)) ticks.push_back(tick);
    }
  }
  return ticks;
}

/// Widens a range without extent, and gives both ends a little room on a vertical axis.
void Widen(Axis& axis, bool vertical) {
  if (axis.log) {
    const double margin = axis.low == axis.high ? 2 : vertical ? std::pow(axis.high / axis.low, 0.03) : 1;
    axis.low /= margin;
    axis.high *= margin;
    return;
  }
  const double size = std::max(std::abs(axis.low), std::abs(axis.high));
  const bool flat = axis.high - axis.low <= 1e-12 * size;
  const double margin = flat ? (size > 0 ? 0.1 * size : 1) : vertical ? 0.03 * (axis.high - axis.low) : 0;
  axis.low -= margin;
  axis.high += margin;
}

/// Of the points of one column, those that show: first, lowest, highest, last, in their order.
void AppendColumn(const std::vector<PlotPoint>& points, size_t begin, size_t end, std::vector<PlotPoint>& out) {
  if (end - begin <= 4) {
    out.insert(out.end(), points.begin() + static_cast<std::ptrdiff_t>(begin),
               points.begin() + static_cast<std::ptrdiff_t>(end));
    return;
  }
  size_t lowest = begin, highest = begin;
  for (size_t i = begin; i < end; ++i) {
    if (points[i].y < points[lowest].y) lowest = i;
    if (points[i].y > points[highest].y) highest = i;
  }
  std::vector<size_t> kept = {begin, lowest, highest, end - 1};
  std::sort(kept.begin(), kept.end());
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  for (const size_t i : kept) out.push_back(points[i]);
}

std::vector<PlotPoint> Thinned(const std::vector<PlotPoint>& points, int columns) {
  std::vector<PlotPoint> out;
  const auto column = [columns](const PlotPoint& p) { return std::floor(p.x * columns); };
  for (size_t begin = 0; begin < points.size();) {
    size_t end = begin + 1;
    while (end < points.size() && column(points[end]) == column(points[begin])) ++end;
    AppendColumn(points, begin, end, out);
    begin = end;
  }
  return out;
}

}  // namespace

bool Axis::Shows(double value) const {
  return std::abs(value) <= kLargest && (!log || value >= 1 / kLargest);  // false for NaN too
}

double Axis::Position(double value) const {
  return log ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
}

std::string Axis::Label(double tick) const {
  const double largest = std::max(std::abs(low), std::abs(high));
  if (std::abs(tick) < 1e-12 * largest) return "0";
  const int digits = DigitsOf(tick);
  // 20000 -> "20k": the unit goes on the number, with only the digits it needs.
  if (std::abs(tick) >= 1e4 && std::abs(tick) < 1e15) {
    const int thousands = static_cast<int>(std::log10(std::abs(tick)) / 3);
    return absl::StrFormat("%.*g%c", std::max(4, digits), tick / std::pow(1000.0, thousands), "kMBT"[thousands - 1]);
  }
  return absl::StrFormat("%.*g", std::max(5, digits), tick);
}

// As many as tell it from its neighbours.
int Axis::DigitsOf(double tick) const {
  double apart = std::abs(tick);
  for (size_t i = 1; i < ticks.size(); ++i) apart = std::min(apart, ticks[i] - ticks[i - 1]);
  constexpr double kMost = 15;
  return static_cast<int>(std::min(kMost, 1 + std::ceil(std::log10(std::abs(tick) / apart))));
}

Axis MakeAxis(const std::vector<Curve>& curves, bool vertical, bool log, int max_ticks) {
  Axis axis{.low = std::numeric_limits<double>::infinity(),
            .high = -std::numeric_limits<double>::infinity(),
            .log = log,
            .ticks = {}};
  bool whole = true;
  const auto include = [&axis, &whole](const std::vector<double>& values) {
    for (const double value : values) {
      if (!axis.Shows(value)) continue;
      whole = whole && value == std::floor(value);
      axis.low = std::min(axis.low, value);
      axis.high = std::max(axis.high, value);
    }
  };
  for (const Curve& curve : curves) {
    include(vertical ? curve.y : curve.x);
    if (!vertical) continue;
    include(curve.low);
    include(curve.high);
  }
  if (axis.low > axis.high) {
    whole = false;
    axis.low = log ? 1 : 0;
    axis.high = log ? 10 : 1;
  }
  Widen(axis, vertical);
  axis.ticks = (log ? LogTicks : LinearTicks)(axis.low, axis.high, max_ticks, whole ? 1 : 0);
  return axis;
}

std::vector<std::vector<PlotPoint>> Segments(const Curve& curve, const Axis& x, const Axis& y, int columns) {
  std::vector<std::vector<PlotPoint>> segments(1);
  for (size_t i = 0; i < std::min(curve.x.size(), curve.y.size()); ++i) {
    if (x.Shows(curve.x[i]) && y.Shows(curve.y[i])) {
      segments.back().push_back({x.Position(curve.x[i]), y.Position(curve.y[i])});
    } else if (!segments.back().empty()) {
      segments.emplace_back();
    }
  }
  if (segments.back().empty()) segments.pop_back();
  for (auto& segment : segments) segment = Thinned(segment, columns);
  return segments;
}

}  // namespace holdfast
