#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/metrics/axis.h"
#include "framework/metrics/plot.h"

namespace holdfast {
namespace {

constexpr int kMinColumns = 24, kMinRows = 7;
constexpr int kFewestPlotRows = 3;  // whatever the legend takes
constexpr int kWidestLabel = 8;     // of the vertical axis, as far as the legend's rows know

struct Glyphs {
  const char *vertical, *tick_left, *corner, *horizontal, *tick_down;
  std::array<const char*, 8> curves;  // of the curves not drawn in dots
};
constexpr Glyphs kUnicode = {"│", "┤", "└", "─", "┬", {"●", "○", "■", "◆", "▲", "□", "◇", "△"}};
constexpr Glyphs kAscii = {"|", "+", "+", "-", "+", {"*", "o", "x", "#", "@", "%", "&", "$"}};

int Characters(const std::string& utf8) {
  return static_cast<int>(std::count_if(utf8.begin(), utf8.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

/// The plot area: each cell holds eight dots, of which Unicode has a character for every combination, or one glyph.
class Canvas {
 public:
  Canvas(int columns, int rows)
      : columns_(columns), rows_(rows), dots_(static_cast<size_t>(columns * rows)), glyphs_(dots_.size(), nullptr) {}

  /// A line in steps of at most `1 / columns_per_cell` cells; `put` gets cell coordinates, y downward.
  template <typename Put>
  void Line(const PlotPoint& a, const PlotPoint& b, int x_per_cell, int y_per_cell, Put put) const {
    const double width = columns_ * x_per_cell - 1, height = rows_ * y_per_cell - 1;
    const double ax = a.x * width, ay = (1 - a.y) * height, bx = b.x * width, by = (1 - b.y) * height;
    const int steps = std::max(1, static_cast<int>(std::ceil(std::max(std::abs(bx - ax), std::abs(by - ay)))));
    for (int i = 0; i <= steps; ++i) {
      const double t = static_cast<double>(i) / steps;
      put(static_cast<int>(std::lround(ax + t * (bx - ax))), static_cast<int>(std::lround(ay + t * (by - ay))));
    }
  }

  void DotLine(const PlotPoint& a, const PlotPoint& b) {
    // Bits of the dots in the braille block: left column 0, 1, 2, 6, right column 3, 4, 5, 7 from the top.
    static constexpr unsigned char kBit[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    Line(a, b, 2, 4, [this](int x, int y) { dots_[Cell(x / 2, y / 4)] |= kBit[y % 4][x % 2]; });
  }
  void GlyphLine(const PlotPoint& a, const PlotPoint& b, const char* glyph) {
    Line(a, b, 1, 1, [this, glyph](int x, int y) { glyphs_[Cell(x, y)] = glyph; });
  }

  std::string Row(int row) const {
    std::string text;
    for (int column = 0; column < columns_; ++column) {
      const unsigned char dots = dots_[Cell(column, row)];
      if (const char* glyph = glyphs_[Cell(column, row)]; glyph != nullptr) {
        text += glyph;
      } else if (dots == 0) {
        text += ' ';
      } else {  // U+2800 + dots in UTF-8
        text += {'\xE2', static_cast<char>(0xA0 + (dots >> 6)), static_cast<char>(0x80 + (dots & 0x3F))};
      }
    }
    return text;
  }

 private:
  size_t Cell(int column, int row) const { return static_cast<size_t>(row * columns_ + column); }

  int columns_, rows_;
  std::vector<unsigned char> dots_;
  std::vector<const char*> glyphs_;
};

/// Lines are drawn before markers so that a marker is never hidden. Only one curve can be in dots: dots of two would
/// look the same.
class TerminalPlot {
 public:
  TerminalPlot(const std::vector<Curve>& curves, const PlotOptions& options, int columns, int rows, bool unicode)
      : curves_(curves),
        options_(options),
        unicode_(unicode),
        glyphs_(unicode ? kUnicode : kAscii),
        legend_(LegendRows(columns - kWidestLabel - 2)),
        rows_(std::max(kFewestPlotRows, rows - 2 - (options.title.empty() ? 0 : 1) - static_cast<int>(legend_.size()))),
        y_(MakeAxis(curves, /*vertical=*/true, options.log_y, std::max(3, 2 * rows_ / 5))) {
    for (const double tick : y_.ticks) label_width_ = std::max(label_width_, static_cast<int>(y_.Label(tick).size()));
    columns_ = columns - label_width_ - 2;
    x_ = MakeAxis(curves, /*vertical=*/false, options.log_x, std::max(2, columns_ / 12));
  }

  std::string Draw() const {
    std::string text;
    if (!options_.title.empty()) {
      const std::string unit = options_.y_label.empty() ? "" : absl::StrCat(" (", options_.y_label, ")");
      text += absl::StrCat(Indent(label_width_ + 2), options_.title, unit, "\n");
    }
    Canvas canvas(columns_, rows_);
    DrawCurves(canvas);
    const std::vector<std::string> labels = RowLabels();
    for (int row = 0; row < rows_; ++row) {
      const std::string& label = labels[static_cast<size_t>(row)];
      absl::StrAppend(&text, Indent(label_width_ - static_cast<int>(label.size())), label, " ",
                      label.empty() ? glyphs_.vertical : glyphs_.tick_left, canvas.Row(row), "\n");
    }
    absl::StrAppend(&text, HorizontalAxis(), LastRows());
    return text;
  }

 private:
  static std::string Indent(int count) { return std::string(static_cast<size_t>(std::max(count, 0)), ' '); }

  bool InDots(size_t curve) const { return unicode_ && curve == 0; }
  const char* Glyph(size_t curve) const {
    const size_t all = glyphs_.curves.size();
    return glyphs_.curves[(curve + (unicode_ ? all - 1 : 0)) % all];  // the first is in dots
  }

  void DrawCurves(Canvas& canvas) const {
    for (size_t i = 0; i < curves_.size(); ++i) {
      for (const auto& segment : Segments(curves_[i], x_, y_, 2 * columns_)) {
        // A curve with markers that is not in dots shows the markers alone: its line would hide the others.
        for (size_t p = 0; p < segment.size(); ++p) {
          const bool alone = !curves_[i].line || (curves_[i].points && !InDots(i));
          const PlotPoint& from = segment[p == 0 || alone ? p : p - 1];
          if (InDots(i)) {
            canvas.DotLine(from, segment[p]);
          } else {
            canvas.GlyphLine(from, segment[p], Glyph(i));
          }
        }
      }
    }
  }

  std::vector<std::string> RowLabels() const {
    std::vector<std::string> labels(static_cast<size_t>(rows_));
    for (const double tick : y_.ticks) {
      labels[static_cast<size_t>(std::lround((1 - y_.Position(tick)) * (rows_ - 1)))] = y_.Label(tick);
    }
    return labels;
  }

  /// The line with its ticks, and the line of their labels.
  std::string HorizontalAxis() const {
    std::vector<bool> is_tick(static_cast<size_t>(columns_));
    std::string labels = Indent(label_width_ + 2 + columns_);
    size_t free_from = 0;
    for (const double tick : x_.ticks) {
      const auto column = static_cast<size_t>(std::lround(x_.Position(tick) * (columns_ - 1)));
      is_tick[column] = true;
      const std::string label = x_.Label(tick);
      const size_t center = static_cast<size_t>(label_width_) + 2 + column;
      const size_t begin = std::min(center - std::min(center, label.size() / 2), labels.size() - label.size());
      if (begin < free_from) continue;
      labels.replace(begin, label.size(), label);
      free_from = begin + label.size() + 1;
    }
    std::string line = absl::StrCat(Indent(label_width_ + 1), glyphs_.corner);
    for (const bool tick : is_tick) line += tick ? glyphs_.tick_down : glyphs_.horizontal;
    return absl::StrCat(line, "\n", labels, "\n");
  }

  /// The legend on the left, the horizontal axis's name on the right of its last row.
  std::string LastRows() const {
    std::string text;
    for (size_t i = 0; i < legend_.size(); ++i) {
      absl::StrAppend(&text, Indent(label_width_ + 2), legend_[i]);
      if (i + 1 == legend_.size()) {
        const int gap = columns_ - Characters(legend_[i]) - Characters(options_.x_label);
        absl::StrAppend(&text, Indent(gap), options_.x_label);
      }
      text += "\n";
    }
    return text;
  }

  /// Of at most `width` characters each; the last has room for the horizontal axis's name.
  std::vector<std::string> LegendRows(int width) const {
    constexpr int kSpace = 3;
    std::vector<std::string> legend;
    const auto fits = [&](int more) { return !legend.empty() && Characters(legend.back()) + more <= width; };
    for (size_t i = 0; i < curves_.size(); ++i) {
      if (curves_[i].label.empty()) continue;
      const std::string entry = absl::StrCat(InDots(i) ? "⠒⠒" : Glyph(i), " ", curves_[i].label);
      if (fits(kSpace + Characters(entry))) {
        absl::StrAppend(&legend.back(), Indent(kSpace), entry);
      } else {
        legend.push_back(entry);
      }
    }
    const int name = Characters(options_.x_label);
    if (name > 0 && !fits(2 + name)) legend.emplace_back();
    return legend;
  }

  const std::vector<Curve>& curves_;
  const PlotOptions& options_;
  bool unicode_;
  const Glyphs& glyphs_;
  std::vector<std::string> legend_;
  int rows_, columns_ = 0, label_width_ = 0;
  Axis y_, x_;
};

}  // namespace

std::string PlotTerminal(const std::vector<Curve>& curves, const PlotOptions& options, int columns, int rows,
                         bool unicode) {
  return TerminalPlot(curves, options, std::max(columns, kMinColumns), std::max(rows, kMinRows), unicode).Draw();
}

}  // namespace holdfast
