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
constexpr std::array<const char*, 6> kCurveColors = {"#3b82f6", "#f97316", "#22a55b", "#a855f7", "#e5484d", "#0d9aa8"};

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
  AppendText(svg, kLeft, 26, options.title, "font-size=\"16\" font-weight=\"600\"");
  AppendText(svg, PixelX(0.5), kHeight - 12, options.x_label, "text-anchor=\"middle\"");
  AppendText(svg, 0, 0, options.y_label,
             absl::StrFormat("text-anchor=\"middle\" transform=\"translate(18 %.0f) rotate(-90)\"", PixelY(0.5)));
}

const char* ColorOf(const std::vector<Curve>& curves, size_t i) {
  const size_t color = curves[i].color < 0 ? i : static_cast<size_t>(curves[i].color);
  return kCurveColors[color % kCurveColors.size()];
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

void AppendCurve(std::string& svg, const Curve& curve, const Axis& x, const Axis& y, const char* color) {
  std::string path, markers;
  for (const auto& segment : Segments(curve, x, y, kInnerWidth)) {
    const char* command = "M";
    for (const PlotPoint& point : segment) {
      if (curve.line) absl::StrAppendFormat(&path, "%s%.1f %.1f", command, PixelX(point.x), PixelY(point.y));
      command = "L";
      if (curve.points || segment.size() == 1) {  // a point between two gaps has no line
        absl::StrAppendFormat(&markers, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"/>\n", PixelX(point.x),
                              PixelY(point.y));
      }
    }
  }
  if (curve.line) {
    absl::StrAppendFormat(
        &svg, "<path d=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.6\" stroke-linejoin=\"round\"/>\n", path,
        color);
  }
  if (!markers.empty()) absl::StrAppendFormat(&svg, "<g fill=\"%s\">\n%s</g>\n", color, markers);
}

/// To the right of the title, above the plot: no curve can run under it.
void AppendLegend(std::string& svg, const std::vector<Curve>& curves) {
  double x = kWidth - kRight;
  for (size_t i = curves.size(); i-- > 0;) {
    if (curves[i].label.empty()) continue;
    AppendText(svg, x, 26, curves[i].label, "text-anchor=\"end\"");
    x -= 7.2 * static_cast<double>(curves[i].label.size()) + 8;
    const char* color = ColorOf(curves, i);
    if (curves[i].line) {
      absl::StrAppendFormat(&svg, "<path d=\"M%.0f 22h-18\" stroke=\"%s\" stroke-width=\"2.4\"/>\n", x, color);
    }
    if (curves[i].points)
      absl::StrAppendFormat(&svg, "<circle cx=\"%.0f\" cy=\"22\" r=\"3.5\" fill=\"%s\"/>\n", x - 9, color);
    x -= 18 + 18;
  }
}

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
  const int height = kHeight + (options.steps_below.x.empty() ? 0 : kStripSpace);
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
      "font-family=\"system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif\" font-size=\"13\" fill=\"%s\">\n",
      kWidth, height, kWidth, height, kTextColor);
  AppendAxes(svg, x, y, options);
  for (size_t i = 0; i < curves.size(); ++i) AppendBand(svg, curves[i], x, y, ColorOf(curves, i));
  for (size_t i = 0; i < curves.size(); ++i) AppendCurve(svg, curves[i], x, y, ColorOf(curves, i));
  AppendLegend(svg, curves);
  if (!options.steps_below.x.empty()) AppendStepsBelow(svg, options.steps_below, x);
  return svg + "</svg>\n";
}

}  // namespace holdfast
