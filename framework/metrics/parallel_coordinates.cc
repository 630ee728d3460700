#include "framework/metrics/parallel_coordinates.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "framework/metrics/axis.h"
#include "framework/metrics/plot.h"
#include "framework/metrics/xml_text.h"

namespace holdfast {
namespace {

constexpr double kPictureWidth = 800, kLeastAxisHeight = 350;  // larger where texts need it
constexpr double kMargin = 60, kBelowAxes = 30, kTitleHeight = 50, kLeastGap = 40, kBesideText = 20;
constexpr double kTickLetter = 6.8, kNameLetter = 7.6, kLineHeight = 14;  // about
constexpr double kSlantedAcross = 0.866, kSlantedUp = 0.5;                // of a name that rises by 30 degrees
constexpr double kMostWrappedHeight = 900;
constexpr size_t kMostLetters = 32;  // of a line of a choice
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

/// What is too long loses its beginning: a choice ends with its value.
std::string Shortened(const std::string& text) {
  if (text.size() <= kMostLetters) return text;
  size_t begin = text.size() - kMostLetters + 1;
  while (begin < text.size() && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) ++begin;
  return "…" + text.substr(begin);
}

/// An axis with the texts beside it.
struct DrawnAxis {
  Axis scale;
  std::vector<std::vector<std::string>> texts = {};  // of each tick: its lines
  double x = 0;

  double TextWidth() const {
    size_t letters = 0;
    for (const auto& lines : texts) {
      for (const std::string& line : lines) letters = std::max(letters, line.size());
    }
    return kTickLetter * static_cast<double>(letters);
  }
  size_t LinesOfText() const {
    size_t most = 1;
    for (const auto& lines : texts) most = std::max(most, lines.size());
    return most;
  }
  /// In which the texts of choices do not lie on each other.
  double LeastHeight() const {
    if (texts.size() < 2) return 0;
    const double part = scale.Position(scale.ticks[1]) - scale.Position(scale.ticks[0]);
    return static_cast<double>(LinesOfText()) * kLineHeight / part;
  }
};

/// Choices that set several keys have a line for each, unless there are so many that the picture would become too high.
void AddTexts(const CoordinateAxis& axis, DrawnAxis* drawn) {
  for (const double tick : drawn->scale.ticks) {
    if (axis.choices.empty()) {
      drawn->texts.push_back({drawn->scale.Label(tick)});
      continue;
    }
    std::vector<std::string> lines = absl::StrSplit(axis.choices[static_cast<size_t>(tick)], ' ', absl::SkipEmpty());
    std::transform(lines.begin(), lines.end(), lines.begin(), Shortened);
    drawn->texts.push_back(std::move(lines));
  }
  if (axis.choices.empty() || drawn->LeastHeight() <= kMostWrappedHeight) return;
  for (size_t i = 0; i < axis.choices.size(); ++i) drawn->texts[i] = {Shortened(axis.choices[i])};
}

/// The texts of the last axis stand to its right, of the others to their left.
void PutAxes(std::vector<DrawnAxis>& axes) {
  const size_t last = axes.size() - 1;
  const auto gap_before = [&](size_t i) {
    return i == last ? kLeastGap : std::max(kLeastGap, axes[i].TextWidth() + kBesideText);
  };
  axes[0].x = std::max(kMargin, last == 0 ? 0 : axes[0].TextWidth() + kBesideText);
  for (size_t i = 1; i <= last; ++i) axes[i].x = axes[i - 1].x + gap_before(i);
  const double right = std::max(kMargin, axes[last].TextWidth() + kBesideText);
  const double spare = std::max(0.0, kPictureWidth - right - axes[last].x);
  for (size_t i = 1; i <= last; ++i) axes[i].x += spare * static_cast<double>(i) / static_cast<double>(last);
}

double NameWidth(const CoordinateAxis& axis) { return kNameLetter * static_cast<double>(axis.label.size()); }

/// Where everything stands.
struct Layout {
  std::vector<DrawnAxis> axes;
  double width = kPictureWidth, top = 0, height = kLeastAxisHeight;  // from the top on, the axes
  double beyond = 0;                                                 // of texts, over the ends of an axis
  double names = 0;
  bool slanted = false;  // names that would lie on each other rise from their axes instead

  double YOf(size_t axis, double value) const { return top + (1 - axes[axis].scale.Position(value)) * height; }
  /// Of a name that is level: its middle, within the picture.
  double MiddleOf(const CoordinateAxis& axis, double x) const {
    const double half = NameWidth(axis) / 2 + 4;
    return std::max(half, std::min(x, width - half));
  }
};

Layout LayOut(const std::vector<CoordinateAxis>& axes, const std::vector<CoordinateLine>& lines) {
  Layout layout;
  for (size_t i = 0; i < axes.size(); ++i) {
    DrawnAxis& drawn = layout.axes.emplace_back(DrawnAxis{.scale = ScaleOf(axes[i], lines, i)});
    AddTexts(axes[i], &drawn);
    if (!axes[i].choices.empty()) layout.height = std::max(layout.height, drawn.LeastHeight());
    layout.beyond = std::max(layout.beyond, static_cast<double>(drawn.LinesOfText() - 1) / 2 * kLineHeight);
  }
  if (!axes.empty()) {
    PutAxes(layout.axes);
    const DrawnAxis& last = layout.axes.back();
    layout.width = std::max(layout.width, last.x + std::max(kMargin, last.TextWidth() + kBesideText));
  }
  for (size_t i = 1; i < axes.size(); ++i) {
    const double between =
        layout.MiddleOf(axes[i], layout.axes[i].x) - layout.MiddleOf(axes[i - 1], layout.axes[i - 1].x);
    layout.slanted = layout.slanted || between < (NameWidth(axes[i - 1]) + NameWidth(axes[i]) + kBesideText) / 2;
  }
  double rise = 0;
  for (size_t i = 0; layout.slanted && i < axes.size(); ++i) {
    layout.width = std::max(layout.width, layout.axes[i].x + NameWidth(axes[i]) * kSlantedAcross + kBesideText);
    rise = std::max(rise, NameWidth(axes[i]) * kSlantedUp);
  }
  layout.names = kTitleHeight + kBesideText / 2 + rise;
  layout.top = layout.names + kBesideText / 2 + layout.beyond;
  return layout;
}

void DrawLine(const Layout& layout, const CoordinateLine& line, std::string* svg) {
  std::string path;
  for (size_t i = 0; i < layout.axes.size(); ++i) {
    if (!line.values[i].has_value() || !layout.axes[i].scale.Shows(*line.values[i])) continue;
    absl::StrAppendFormat(&path, "%s%.1f %.1f", path.empty() ? "M" : "L", layout.axes[i].x,
                          layout.YOf(i, *line.values[i]));
  }
  if (path.empty()) return;
  absl::StrAppendFormat(svg, "<path d=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"%s\"/>\n", path,
                        RankColor(line.rank), line.rank == 0 ? "2.6" : "1.2");
}

void DrawAxis(const Layout& layout, size_t index, const CoordinateAxis& axis, std::string* svg) {
  const DrawnAxis& drawn = layout.axes[index];
  const double x = drawn.x;
  absl::StrAppendFormat(svg, "<path d=\"M%.1f %.1fv%.1f\" stroke=\"#7d848c\"/>\n", x, layout.top, layout.height);
  absl::StrAppendFormat(svg, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-weight=\"600\"%s>%s</text>\n",
                        layout.slanted ? x : layout.MiddleOf(axis, x), layout.names,
                        layout.slanted ? "start" : "middle",
                        layout.slanted ? absl::StrFormat(" transform=\"rotate(-30 %.1f %.1f)\"", x, layout.names) : "",
                        XmlText(axis.label));
  const bool is_last = index + 1 == layout.axes.size();
  for (size_t i = 0; i < drawn.texts.size(); ++i) {
    const std::vector<std::string>& text = drawn.texts[i];
    const double middle = layout.YOf(index, drawn.scale.ticks[i]) + 4;
    for (size_t line = 0; line < text.size(); ++line) {
      const double down = static_cast<double>(line) - (static_cast<double>(text.size()) - 1) / 2;
      absl::StrAppendFormat(svg, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x + (is_last ? 6 : -6),
                            middle + down * kLineHeight, is_last ? "start" : "end", XmlText(text[line]));
    }
  }
}

}  // namespace

std::string ParallelCoordinatesSvg(const std::string& title, const std::vector<CoordinateAxis>& axes,
                                   const std::vector<CoordinateLine>& lines) {
  const Layout layout = LayOut(axes, lines);
  const double height = layout.top + layout.height + layout.beyond + kBelowAxes;
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" "
      "style=\"max-width:100%%\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#7d848c\">\n"
      "<text x=\"%.0f\" y=\"26\" font-size=\"16\" font-weight=\"600\">%s</text>\n",
      layout.width, height, layout.width, height, kMargin, XmlText(title));
  std::vector<const CoordinateLine*> order;
  for (const CoordinateLine& line : lines) order.push_back(&line);
  std::stable_sort(order.begin(), order.end(),
                   [](const CoordinateLine* a, const CoordinateLine* b) { return a->rank > b->rank; });
  for (const CoordinateLine* line : order) DrawLine(layout, *line, &svg);
  for (size_t i = 0; i < axes.size(); ++i) DrawAxis(layout, i, axes[i], &svg);
  return svg + "</svg>\n";
}

}  // namespace holdfast
