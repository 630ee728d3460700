#include "framework/metrics/parallel_coordinates.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "framework/metrics/axis.h"
#include "framework/metrics/plot.h"
#include "framework/metrics/xml_text.h"

namespace holdfast {
namespace {

constexpr int kPictureWidth = 800, kPictureHeight = 450;
constexpr int kFirstAxis = 60, kFirstAxisMost = 260, kAfterAxes = 60, kAxisTop = 70, kBelowAxes = 30;
constexpr int kAxisHeight = kPictureHeight - kAxisTop - kBelowAxes;
constexpr double kTickLetter = 6.8, kNameLetter = 7.6;  // about
constexpr int kMostTicks = 6;

/// Blue is the best, orange the worst: told apart by those who do not see red or green.
std::string RankColor(double rank) {
  const auto mix = [rank](double a, double b) { return static_cast<int>(std::lround(a + (b - a) * rank)); };
  return absl::StrFormat("#%02x%02x%02x", mix(0x3b, 0xf9), mix(0x82, 0x73), mix(0xf6, 0x16));
}

/// The values that an axis shows, as the curve that MakeAxis wants.
Axis ScaleOf(const CoordinateAxis& axis, const std::vector<CoordinateLine>& lines, size_t index) {
  Curve curve;
  if (!axis.choices.empty()) curve.y = {0, static_cast<double>(axis.choices.size() - 1)};
  for (const CoordinateLine& line : lines) {
    if (line.values[index].has_value()) curve.y.push_back(*line.values[index]);
  }
  curve.x.assign(curve.y.size(), 0);
  Axis made = MakeAxis({curve}, /*vertical=*/true, axis.log, kMostTicks);
  if (!axis.choices.empty()) {
    made.ticks.clear();
    for (size_t i = 0; i < axis.choices.size(); ++i) made.ticks.push_back(static_cast<double>(i));
  }
  return made;
}

std::string TextOf(const CoordinateAxis& axis, const Axis& made, double tick) {
  return axis.choices.empty() ? made.Label(tick) : axis.choices[static_cast<size_t>(tick)];
}

/// Where the first axis stands: to the right of its texts, which may be long choices.
double FirstAxis(const CoordinateAxis& axis, const Axis& made) {
  double room = kFirstAxis;
  for (const double tick : made.ticks) {
    room = std::max(room, 12 + kTickLetter * static_cast<double>(TextOf(axis, made, tick).size()));
  }
  return std::min<double>(room, kFirstAxisMost);
}

/// The middle of a name that should stand at `x`, within the picture.
double MiddleOf(const std::string& name, double x) {
  const double half = kNameLetter * static_cast<double>(name.size()) / 2 + 4;
  return std::max(half, std::min(x, kPictureWidth - half));
}

}  // namespace

std::string ParallelCoordinatesSvg(const std::string& title, const std::vector<CoordinateAxis>& axes,
                                   const std::vector<CoordinateLine>& lines) {
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\" "
      "fill=\"#7d848c\">\n<text x=\"%d\" y=\"26\" font-size=\"16\" font-weight=\"600\">%s</text>\n",
      kPictureWidth, kPictureHeight, kFirstAxis, XmlText(title));
  std::vector<Axis> made;
  for (size_t i = 0; i < axes.size(); ++i) made.push_back(ScaleOf(axes[i], lines, i));
  const double first = axes.empty() ? kFirstAxis : FirstAxis(axes[0], made[0]);
  const double gap = axes.size() < 2 ? 0 : (kPictureWidth - first - kAfterAxes) / static_cast<double>(axes.size() - 1);
  const auto x_of = [&](size_t axis) { return first + gap * static_cast<double>(axis); };
  const auto y_of = [&](size_t axis, double value) {
    return kAxisTop + (1 - made[axis].Position(value)) * kAxisHeight;
  };

  std::vector<const CoordinateLine*> order;
  for (const CoordinateLine& line : lines) order.push_back(&line);
  std::stable_sort(order.begin(), order.end(),
                   [](const CoordinateLine* a, const CoordinateLine* b) { return a->rank > b->rank; });
  for (const CoordinateLine* line : order) {
    std::string path;
    for (size_t i = 0; i < axes.size(); ++i) {
      if (!line->values[i].has_value() || !made[i].Shows(*line->values[i])) continue;
      absl::StrAppendFormat(&path, "%s%.1f %.1f", path.empty() ? "M" : "L", x_of(i), y_of(i, *line->values[i]));
    }
    if (path.empty()) continue;
    absl::StrAppendFormat(&svg, "<path d=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"%s\"/>\n", path,
                          RankColor(line->rank), line->rank == 0 ? "2.6" : "1.2");
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    absl::StrAppendFormat(&svg, "<path d=\"M%.1f %dv%d\" stroke=\"#7d848c\"/>\n", x_of(i), kAxisTop, kAxisHeight);
    // Long names of neighbours stand on two levels.
    absl::StrAppendFormat(&svg, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" font-weight=\"600\">%s</text>\n",
                          MiddleOf(axes[i].label, x_of(i)), kAxisTop - (i % 2 == 0 ? 10 : 26), XmlText(axes[i].label));
    for (const double tick : made[i].ticks) {
      const std::string text = TextOf(axes[i], made[i], tick);
      const bool last = i + 1 == axes.size();
      absl::StrAppendFormat(&svg, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n",
                            x_of(i) + (last ? 6 : -6), y_of(i, tick) + 4, last ? "start" : "end", XmlText(text));
    }
  }
  return svg + "</svg>\n";
}

}  // namespace holdfast
