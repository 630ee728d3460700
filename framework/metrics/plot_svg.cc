#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/metrics/axis.h"
#include "framework/metrics/plot.h"
#include "framework/metrics/xml_text.h"

namespace holdfast {
namespace {

constexpr int kWidth = 800, kHeight = 450;
constexpr int kLeft = 68, kRight = 20, kTop = 44, kBottom = 52;  // margins of the plot area
constexpr int kStripHeight = 48, kStripSpace = 64;               // below the plot, and with what is free around it
constexpr int kInnerWidth = kWidth - kLeft - kRight, kInnerHeight = kHeight - kTop - kBottom;
// There is no background: every colour reads on white paper as on a dark page.
constexpr const char* kTextColor = "#7d848c";
constexpr const char* kGridColor = "#7d848c";
constexpr std::array<const char*, 8> kCurveColors = {"#3b82f6", "#f97316", "#22a55b", "#a855f7",
                                                     "#e5484d", "#0d9aa8", "#a98714", "#e06fb0"};

double PixelX(double position) { return kLeft + position * kInnerWidth; }
double PixelY(double position) { return kTop + (1 - position) * kInnerHeight; }

void AppendText(std::string& svg, double x, double y, const std::string& text, const std::string& attributes) {
  absl::StrAppendFormat(&svg, "<text x=\"%.0f\" y=\"%.0f\" %s>%s</text>\n", x, y, attributes, XmlText(text));
}

void AppendAxes(std::string& svg, const Axis& x, const Axis& y, const PlotOptions& options) {
  absl::StrAppendFormat(&svg, "<g stroke=\"%s\" stroke-opacity=\"0.25\">\n", kGridColor);
  for (const double tick : y.ticks) {
    absl::StrAppendFormat(&svg, "<path d=\"M%d %.1fh%d\"/>\n", kLeft, PixelY(y.Position(tick)), kInnerWidth);
  }
  for (const double tick : x.ticks) {
    absl::StrAppendFormat(&svg, "<path d=\"M%.1f %dv%d\"/>\n", PixelX(x.Position(tick)), kTop, kInnerHeight);
  }
  absl::StrAppendFormat(&svg, "</g>\n<path d=\"M%d %dV%dH%d\" fill=\"none\" stroke=\"%s\"/>\n", kLeft, kTop,
                        kHeight - kBottom, kWidth - kRight, kGridColor);
  for (const double tick : y.ticks) {
    AppendText(svg, kLeft - 8, PixelY(y.Position(tick)) + 4, y.Label(tick), "text-anchor=\"end\"");
  }
  for (const double tick : x.ticks) {
    AppendText(svg, PixelX(x.Position(tick)), kHeight - kBottom + 18, x.Label(tick), "text-anchor=\"middle\"");
  }
  AppendText(svg, PixelX(0.5), kHeight - 12, options.x_label, "text-anchor=\"middle\"");
  AppendText(svg, 0, 0, options.y_label,
             absl::StrFormat("text-anchor=\"middle\" transform=\"translate(18 %.0f) rotate(-90)\"", PixelY(0.5)));
}

/// What tells a curve from others: a colour, and, when all have been used or if it is to be, a dashed line and square
/// markers.
struct Look {
  const char* color;
  bool again;

  std::string Line() const { return absl::StrCat("stroke=\"", color, "\"", again ? " stroke-dasharray=\"6 4\"" : ""); }
  std::string Marker(double x, double y) const {
    return again ? absl::StrFormat("<rect x=\"%.1f\" y=\"%.1f\" width=\"6\" height=\"6\"/>\n", x - 3, y - 3)
                 : absl::StrFormat("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"/>\n", x, y);
  }
};

Look LookOf(const std::vector<Curve>& curves, size_t i) {
  const size_t number = curves[i].color < 0 ? i : static_cast<size_t>(curves[i].color);
  return {kCurveColors[number % kCurveColors.size()], curves[i].dashed || number / kCurveColors.size() % 2 == 1};
}

/// From the first to the last point along the upper edge, and back along the lower one.
void AppendBand(std::string& svg, const Curve& curve, const Axis& x, const Axis& y, const char* color) {
  std::string forth, back;
  for (size_t i = 0; i < std::min({curve.x.size(), curve.low.size(), curve.high.size()}); ++i) {
    if (!x.Shows(curve.x[i]) || !y.Shows(curve.low[i]) || !y.Shows(curve.high[i])) continue;
    const double at = PixelX(x.Position(curve.x[i]));
    absl::StrAppendFormat(&forth, "%s%.1f %.1f", forth.empty() ? "M" : "L", at, PixelY(y.Position(curve.high[i])));
    back.insert(0, absl::StrFormat("L%.1f %.1f", at, PixelY(y.Position(curve.low[i]))));
  }
  if (forth.empty()) return;
  absl::StrAppendFormat(&svg, "<path d=\"%s%sZ\" fill=\"%s\" fill-opacity=\"0.18\"/>\n", forth, back, color);
}

void AppendCurve(std::string& svg, const Curve& curve, const Axis& x, const Axis& y, const Look& look) {
  std::string path, markers;
  for (const auto& segment : Segments(curve, x, y, kInnerWidth)) {
    const char* command = "M";
    for (const PlotPoint& point : segment) {
      if (curve.line) absl::StrAppendFormat(&path, "%s%.1f %.1f", command, PixelX(point.x), PixelY(point.y));
      command = "L";
      if (curve.points || segment.size() == 1) {  // a point between two gaps has no line
        markers += look.Marker(PixelX(point.x), PixelY(point.y));
      }
    }
  }
  if (curve.line) {
    absl::StrAppendFormat(&svg, "<path d=\"%s\" fill=\"none\" %s stroke-width=\"1.6\" stroke-linejoin=\"round\"/>\n",
                          path, look.Line());
  }
  if (!markers.empty()) absl::StrAppendFormat(&svg, "<g fill=\"%s\">\n%s</g>\n", look.color, markers);
}

/// Above the plot, where no curve can run under it: to the right of the title, or, where it is too long for that, in
/// rows below the title.
class Legend {
 public:
  Legend(const std::vector<Curve>& curves, const std::string& title) : curves_(curves) {
    constexpr double kTitleLetter = 9;
    double room = kInnerWidth - kTitleLetter * Letters(title) - kSpace, all = 0;
    for (const Curve& curve : curves) all += WidthOf(curve);
    beside_ = all <= room;
    if (!beside_) room = kInnerWidth;
    double left = 0;
    for (size_t i = 0; i < curves.size(); ++i) {
      const double width = WidthOf(curves[i]);
      if (width == 0) continue;
      if (rows_.empty() || left < width) {
        rows_.emplace_back();
        left = room;
      }
      left -= width;
      rows_.back().push_back(i);
    }
  }

  /// How much of the picture is above what it would be without.
  int height() const { return beside_ ? 0 : kRowHeight * static_cast<int>(rows_.size()); }

  void Append(std::string& svg) const {
    double y = 26 - height();
    for (const std::vector<size_t>& row : rows_) {
      double x = kWidth - kRight;  // where the row ends
      if (!beside_) {
        y += kRowHeight;
        x = kLeft - kSpace;
        for (const size_t i : row) x += WidthOf(curves_[i]);
      }
      for (auto i = row.rbegin(); i != row.rend(); ++i) {
        AppendEntry(svg, *i, x, y);
        x -= WidthOf(curves_[*i]);
      }
    }
  }

 private:
  static constexpr double kLetter = 7.2, kMark = 18, kSpace = 18;
  static constexpr int kRowHeight = 20;

  static double Letters(const std::string& utf8) {
    return static_cast<double>(std::count_if(utf8.begin(), utf8.end(), [](char c) { return (c & 0xC0) != 0x80; }));
  }
  static double WidthOf(const Curve& curve) {
    return curve.label.empty() ? 0 : kLetter * Letters(curve.label) + 8 + kMark + kSpace;
  }

  /// That ends at `x`.
  void AppendEntry(std::string& svg, size_t i, double x, double y) const {
    const Curve& curve = curves_[i];
    AppendText(svg, x, y, curve.label, "text-anchor=\"end\"");
    x -= kLetter * Letters(curve.label) + 8;
    const Look look = LookOf(curves_, i);
    if (curve.line) {
      absl::StrAppendFormat(&svg, "<path d=\"M%.0f %.0fh-18\" %s stroke-width=\"2.4\"/>\n", x, y - 4, look.Line());
    }
    if (curve.points) {
      absl::StrAppendFormat(&svg, "<g fill=\"%s\">%s</g>\n", look.color, look.Marker(x - kMark / 2, y - 4));
    }
  }

  const std::vector<Curve>& curves_;
  bool beside_ = true;                     // of the title
  std::vector<std::vector<size_t>> rows_;  // of curves
};

/// A strip with a vertical axis of its own.
void AppendStepsBelow(std::string& svg, const Curve& steps, const Axis& x) {
  const Axis y = MakeAxis({steps, {.label = "", .x = {0}, .y = {0}}}, /*vertical=*/true, /*log=*/false, 3);
  const auto pixel_y = [&](double value) { return kHeight + (1 - y.Position(value)) * kStripHeight; };
  for (const double tick : y.ticks) {
    absl::StrAppendFormat(&svg, "<path d=\"M%d %.1fh%d\" stroke=\"%s\" stroke-opacity=\"0.25\"/>\n", kLeft,
                          pixel_y(tick), kInnerWidth, kGridColor);
    AppendText(svg, kLeft - 8, pixel_y(tick) + 4, y.Label(tick), "text-anchor=\"end\"");
  }
  AppendText(
      svg, 0, 0, steps.label,
      absl::StrFormat("text-anchor=\"middle\" transform=\"translate(18 %d) rotate(-90)\"", kHeight + kStripHeight / 2));
  std::string path;
  for (size_t i = 0; i < steps.x.size(); ++i) {
    const bool is_last = i + 1 == steps.x.size();
    if (i > 0 && !is_last && steps.y[i] == steps.y[i - 1]) continue;
    const double at = PixelX(x.Position(steps.x[i])), value = pixel_y(steps.y[i]);
    if (path.empty()) {
      absl::StrAppendFormat(&path, "M%.1f %.1f", at, value);
    } else {
      absl::StrAppendFormat(&path, "H%.1fV%.1f", at, value);
    }
  }
  absl::StrAppendFormat(&svg, "<path d=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.6\"/>\n", path,
                        kCurveColors[2]);
}

}  // namespace

std::string PlotSvg(const std::vector<Curve>& curves, const PlotOptions& options) {
  const Axis x = MakeAxis(curves, /*vertical=*/false, options.log_x, 8);
  const Axis y = MakeAxis(curves, /*vertical=*/true, options.log_y, 7);
  const Legend legend(curves, options.title);
  const int top = -legend.height();
  const int height = kHeight - top + (options.steps_below.x.empty() ? 0 : kStripSpace);
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 %d %d %d\" width=\"%d\" height=\"%d\" "
      "font-family=\"system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif\" font-size=\"13\" fill=\"%s\">\n",
      top, kWidth, height, kWidth, height, kTextColor);
  AppendAxes(svg, x, y, options);
  AppendText(svg, kLeft, top + 26, options.title, "font-size=\"16\" font-weight=\"600\"");
  for (size_t i = 0; i < curves.size(); ++i) AppendBand(svg, curves[i], x, y, LookOf(curves, i).color);
  for (size_t i = 0; i < curves.size(); ++i) AppendCurve(svg, curves[i], x, y, LookOf(curves, i));
  legend.Append(svg);
  if (!options.steps_below.x.empty()) AppendStepsBelow(svg, options.steps_below, x);
  return svg + "</svg>\n";
}

}  // namespace holdfast
