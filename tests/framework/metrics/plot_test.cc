// Proves that axes hold all values at round ticks, that thinning keeps extremes, that curves are drawn where their
// values are (dot by dot on a small canvas), and that gaps, empty and flat curves and hostile labels are survived.
#include "framework/metrics/plot.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "framework/metrics/axis.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Curve Line(std::vector<double> y) {
  Curve curve{.label = "loss", .x = {}, .y = std::move(y)};
  for (size_t i = 0; i < curve.y.size(); ++i) curve.x.push_back(static_cast<double>(i));
  return curve;
}

std::vector<std::string> Labels(const Axis& axis) {
  std::vector<std::string> labels;
  for (const double tick : axis.ticks) labels.push_back(axis.Label(tick));
  return labels;
}

TEST(Axis, RoundTicks) {
  EXPECT_THAT(Labels(MakeAxis({Line({0, 10})}, true, false, 5)), ElementsAre("0", "5", "10"));
  EXPECT_THAT(Labels(MakeAxis({Line({2.31, 4.87})}, true, false, 6)), ElementsAre("2.5", "3", "3.5", "4", "4.5"));
  EXPECT_THAT(Labels(MakeAxis({Line({-0.1, 0.3})}, true, false, 5)), ElementsAre("-0.1", "0", "0.1", "0.2", "0.3"));
  EXPECT_THAT(Labels(MakeAxis({Line({1e-4, 3e-4})}, true, false, 3)), ElementsAre("0.0001", "0.0002", "0.0003"));
  EXPECT_THAT(Labels(MakeAxis({Line({0, 50000})}, true, false, 6)),
              ElementsAre("0", "10k", "20k", "30k", "40k", "50k"));
  EXPECT_THAT(Labels(MakeAxis({Line({1e6, 2e6})}, true, false, 3)), ElementsAre("1M", "1.5M", "2M"));
}

// There are no 1.5 layers, and no step between two.
TEST(Axis, WholeTicksOfWholeValues) {
  for (const bool log : {false, true}) {
    EXPECT_THAT(Labels(MakeAxis({Line({1, 3})}, true, log, 8)), ElementsAre("1", "2", "3")) << log;
  }
  EXPECT_THAT(Labels(MakeAxis({Line({3, 3})}, true, false, 8)), ElementsAre("3"));
  EXPECT_THAT(Labels(MakeAxis({Line({1, 2.5})}, true, false, 4)), ElementsAre("1", "1.5", "2", "2.5"));
}

TEST(Axis, LabelsTellTicksApart) {
  EXPECT_THAT(Labels(MakeAxis({Line({2.66901, 2.66905})}, true, false, 4)), ElementsAre("2.66902", "2.66904"));
  EXPECT_THAT(Labels(MakeAxis({Line({10000, 10002})}, true, false, 3)), ElementsAre("10k", "10.001k", "10.002k"));
}

TEST(Axis, LogTicks) {
  EXPECT_THAT(Labels(MakeAxis({Line({1, 1000})}, true, true, 5)), ElementsAre("1", "10", "100", "1000"));
  EXPECT_THAT(Labels(MakeAxis({Line({1, 20})}, true, true, 6)), ElementsAre("1", "2", "5", "10", "20"));
  EXPECT_THAT(Labels(MakeAxis({Line({2, 8})}, true, true, 4)), ElementsAre("2", "4", "6", "8"));
  const Axis axis = MakeAxis({Line({1, 100, 0, -5})}, true, true, 5);
  EXPECT_NEAR(axis.Position(10), 0.5, 1e-9);
  EXPECT_FALSE(axis.Shows(0));
  EXPECT_FALSE(axis.Shows(-5));
}

TEST(Axis, AlwaysARangeWithTicksInIt) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const bool log : {false, true}) {
    for (const auto& values : std::vector<std::vector<double>>{
             {}, {kNan, infinity, -infinity}, {3}, {0}, {-7, -7}, {5, 5}, {1e-300, 1e300}, {1e30, 1.00001e30}}) {
      const Axis axis = MakeAxis({Line(values)}, true, log, 6);
      EXPECT_LT(axis.low, axis.high);
      EXPECT_GE(axis.ticks.size(), 1u) << values.size() << " " << log;
      EXPECT_LE(axis.ticks.size(), 20u);
      EXPECT_TRUE(std::is_sorted(axis.ticks.begin(), axis.ticks.end()));
      for (const double tick : axis.ticks) {
        EXPECT_GE(axis.Position(tick), -1e-6);
        EXPECT_LE(axis.Position(tick), 1 + 1e-6);
      }
    }
  }
}

TEST(Segments, GapsSplitTheCurve) {
  const Curve curve = Line({kNan, 1, 2, kNan, kNan, 3, kNan});
  const Axis x = MakeAxis({curve}, false, false, 5), y = MakeAxis({curve}, true, false, 5);
  const auto segments = Segments(curve, x, y, 100);
  ASSERT_EQ(segments.size(), 2u);
  EXPECT_EQ(segments[0].size(), 2u);
  EXPECT_EQ(segments[1].size(), 1u);
}

TEST(Segments, ThinningKeepsSpikesAndEnds) {
  std::vector<double> values(100000, 1.0);
  values[54321] = 9;
  values[54322] = -9;
  const Curve curve = Line(values);
  const Axis x = MakeAxis({curve}, false, false, 5), y = MakeAxis({curve}, true, false, 5);
  const auto segments = Segments(curve, x, y, 50);
  ASSERT_EQ(segments.size(), 1u);
  EXPECT_LE(segments[0].size(), 204u);
  const auto [low, high] = std::minmax_element(segments[0].begin(), segments[0].end(),
                                               [](const PlotPoint& a, const PlotPoint& b) { return a.y < b.y; });
  EXPECT_DOUBLE_EQ(high->y, y.Position(9));
  EXPECT_DOUBLE_EQ(low->y, y.Position(-9));
  EXPECT_DOUBLE_EQ(segments[0].front().x, 0);
  EXPECT_DOUBLE_EQ(segments[0].back().x, 1);
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

int Characters(const std::string& text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

TEST(PlotTerminal, ExactPictureInAscii) {
  EXPECT_EQ(PlotTerminal({Line({0, 1, 2, 3, 4})}, {.title = "", .x_label = "step", .y_label = ""}, 24, 8, false),
            "4 +                  ***\n"
            "  |             *****   \n"
            "2 +        *****        \n"
            "  |   *****             \n"
            "0 +***                  \n"
            "  ++---------+---------+\n"
            "   0         2         4\n"
            "   * loss           step\n");
}

TEST(PlotTerminal, ExactPictureInDots) {
  EXPECT_EQ(PlotTerminal({Line({0, 0.5})}, {.title = "", .x_label = "", .y_label = ""}, 30, 9, true),
            "    │                     ⢀⡠⠤⠒\n"
            "0.4 ┤                 ⣀⠤⠔⠊⠁   \n"
            "    │            ⢀⡠⠤⠒⠉        \n"
            "0.2 ┤        ⣀⠤⠒⠊⠁            \n"
            "    │   ⢀⡠⠔⠒⠉                 \n"
            "  0 ┤⠤⠒⠊⠁                     \n"
            "    └┬───────────────────────┬\n"
            "     0                       1\n"
            "     ⠒⠒ loss                  \n");
}

// check-width has six.
TEST(PlotTerminal, EachOfNineCurvesHasItsMarkInALegendWithinThePicture) {
  for (const bool unicode : {false, true}) {
    std::vector<Curve> curves;
    for (int i = 0; i < (unicode ? 9 : 8); ++i) {
      curves.push_back(Line({1.5 + i, 2.5 + i}));
      curves.back().label = "curve" + std::to_string(i);
    }
    const auto lines = Lines(PlotTerminal(curves, {.title = "", .x_label = "step", .y_label = ""}, 40, 20, unicode));
    EXPECT_EQ(lines.size(), 20u);
    std::set<std::string> marks;
    for (const std::string& line : lines) {
      EXPECT_LE(Characters(line), 40) << line;
      std::istringstream words(line);
      std::string before;
      for (std::string word; words >> word; before = word) {
        if (!word.starts_with("curve")) continue;
        EXPECT_TRUE(marks.insert(before).second) << "mark " << before << " of " << word;
      }
    }
    EXPECT_EQ(marks.size(), curves.size());
    EXPECT_THAT(lines.back(), HasSubstr(" step"));
  }
}

TEST(PlotTerminal, FillsExactlyTheSizeAsked) {
  const PlotOptions options{.title = "Loss", .x_label = "step", .y_label = "nats per token"};
  Curve validation = Line({3, 2.5, 2});
  validation.points = true;
  validation.label = "validation";
  for (const bool unicode : {false, true}) {
    for (const auto& [columns, rows] : {std::pair{78, 18}, std::pair{40, 10}, std::pair{120, 40}}) {
      const std::string text = PlotTerminal({Line({4, 3, 2}), validation}, options, columns, rows, unicode);
      const auto lines = Lines(text);
      EXPECT_EQ(static_cast<int>(lines.size()), rows);
      for (const std::string& line : lines) EXPECT_LE(Characters(line), columns);
      EXPECT_EQ(Characters(lines[3]), columns);
      EXPECT_THAT(text, HasSubstr("Loss (nats per token)"));
      EXPECT_THAT(text, HasSubstr("validation"));
      EXPECT_EQ(std::any_of(text.begin(), text.end(), [](char c) { return c & 0x80; }), unicode);
    }
  }
}

TEST(PlotTerminal, SurvivesNothingToDraw) {
  for (const bool log : {false, true}) {
    const PlotOptions options{.title = "t", .x_label = "x", .y_label = "y", .log_y = log};
    EXPECT_FALSE(PlotTerminal({}, options, 0, 0, true).empty());
    EXPECT_FALSE(PlotTerminal({Line({})}, options, 80, 20, true).empty());
    EXPECT_FALSE(PlotTerminal({Line({kNan, -1, 0, kNan})}, options, -5, 3, true).empty());
    EXPECT_FALSE(PlotSvg({Line({kNan, -1, 0, kNan}), Line({})}, options).empty());
    EXPECT_FALSE(PlotSvg({}, options).empty());
  }
}

TEST(PlotSvg, ADashedCurveShowsOneThatItLiesOn) {
  const Curve first = Line({1, 2});
  Curve second = first;
  second.dashed = true;
  const std::string svg = PlotSvg({first, second}, {.title = "", .x_label = "", .y_label = ""});
  const size_t path = svg.find("fill=\"none\" stroke=\"#", svg.find("</g>"));
  EXPECT_GT(svg.find("stroke-dasharray"), svg.find("stroke-linejoin", path)) << "the second";
}

TEST(PlotSvg, DrawsPointsWhereTheyAre) {
  Curve curve{.label = "", .x = {0, 10}, .y = {0, 10}, .points = true};
  const std::string svg = PlotSvg({curve}, {.title = "", .x_label = "", .y_label = ""});
  // The area is x 68..780, y 44..398 downward; the vertical axis leaves 3% of the range free at both ends.
  EXPECT_THAT(svg, HasSubstr("<circle cx=\"68.0\" cy=\"388.0\""));
  EXPECT_THAT(svg, HasSubstr("<circle cx=\"780.0\" cy=\"54.0\""));
  EXPECT_THAT(svg, HasSubstr("d=\"M68.0 388.0L780.0 54.0\""));
}

TEST(PlotSvg, LabelsCannotBreakTheFile) {
  const std::string svg = PlotSvg({Line({1, 2})}, {.title = "a<b>&\x01\n", .x_label = "</svg>", .y_label = "\"'"});
  EXPECT_THAT(svg, HasSubstr(">a&lt;b&gt;&amp;</text>"));
  EXPECT_EQ(svg.find("</svg>"), svg.size() - 7);
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(PlotSvg, IsSmallHoweverLongTheRun) {
  std::vector<double> noisy;
  for (int i = 0; i < 1'000'000; ++i) noisy.push_back(std::sin(i * 12.9898));
  EXPECT_LT(PlotSvg({Line(noisy)}, {.title = "", .x_label = "", .y_label = ""}).size(), 60000u);
}

TEST(PlotSvg, ABandIsDrawnAroundItsLineAndBelongsToTheAxis) {
  Curve curve = Line({2, 3});
  curve.low = {1, 2};
  curve.high = {4, 9};
  const Axis y = MakeAxis({curve}, true, false, 5);
  EXPECT_LE(y.low, 1);
  EXPECT_GE(y.high, 9);
  const std::string svg = PlotSvg({curve}, {.title = "t", .x_label = "", .y_label = ""});
  // Its upper edge from left to right, then the lower one back: four corners.
  const size_t band = svg.find("fill-opacity");
  ASSERT_NE(band, std::string::npos);
  const std::string path = svg.substr(svg.rfind("<path", band), band - svg.rfind("<path", band));
  EXPECT_EQ(std::count(path.begin(), path.end(), 'L'), 3) << path;
  EXPECT_THAT(path, HasSubstr("Z"));
  curve.high.clear();
  EXPECT_THAT(PlotSvg({curve}, {.title = "t", .x_label = "", .y_label = ""}), Not(HasSubstr("fill-opacity")));
}

TEST(PlotSvg, StepsBelowAreAStripOfTheirOwn) {
  PlotOptions options{.title = "t", .x_label = "", .y_label = ""};
  const Curve curve{.label = "loss", .x = {0, 1, 2, 3, 4}, .y = {5, 4, 3, 2, 1}};
  const std::string alone = PlotSvg({curve}, options);
  EXPECT_THAT(alone, HasSubstr("height=\"450\""));
  options.steps_below = {.label = "workers", .x = {0, 1, 2, 3, 4}, .y = {4, 4, 2, 2, 2}};
  const std::string svg = PlotSvg({curve}, options);
  EXPECT_THAT(svg, HasSubstr("height=\"514\""));
  EXPECT_THAT(svg, HasSubstr(">workers</text>"));
  // Flat, down in the middle, flat: with the axis from 0 to 4 and 3% free at both ends, 48 pixels high.
  EXPECT_THAT(svg, HasSubstr("d=\"M68.0 451.4H424.0V474.0H780.0V474.0\""));
  EXPECT_THAT(svg, HasSubstr(alone.substr(alone.find("<path"), 200))) << "the plot stays as it is";
}

TEST(PlotSvg, PointsWithoutALineAndCurvesOfOneColour) {
  Curve points = Line({1, 5, 2});
  points.points = true;
  points.line = false;
  points.color = 1;
  Curve line = Line({1, 2, 3});
  line.color = 1;
  const std::string svg = PlotSvg({points, line}, {.title = "t", .x_label = "", .y_label = ""});
  EXPECT_THAT(svg, HasSubstr("<circle"));
  EXPECT_THAT(svg, HasSubstr("stroke=\"#f97316\""));
  EXPECT_THAT(svg, HasSubstr("<g fill=\"#f97316\">"));
  EXPECT_THAT(PlotSvg({points}, {.title = "t", .x_label = "", .y_label = ""}), Not(HasSubstr("stroke-linejoin")));
}

TEST(PlotSvg, SixteenCurvesLookDifferent) {
  std::vector<Curve> curves;
  for (int i = 0; i < 16; ++i) {
    curves.push_back(Line({1.0 * i, 2.0 * i}));
    curves.back().label = "";
  }
  const std::string svg = PlotSvg(curves, {.title = "t", .x_label = "", .y_label = ""});
  std::set<std::string> looks;
  const std::string begin = "fill=\"none\" stroke=\"", end = " stroke-width=\"1.6\"";
  for (size_t at = svg.find(begin); at != std::string::npos; at = svg.find(begin, at + 1)) {
    const size_t stop = svg.find(end, at);
    if (stop != std::string::npos && stop - at < 80) looks.insert(svg.substr(at, stop - at));  // else of the axes
  }
  EXPECT_EQ(looks.size(), 16u);
}

// Beside the title it ran over it.
TEST(PlotSvg, ALegendTooWideForItsPlaceHasRowsOfItsOwn) {
  PlotOptions options{.title = "validation_loss over optimizer.lr", .x_label = "", .y_label = ""};
  const auto labelled = [](int count) {
    std::vector<Curve> curves(static_cast<size_t>(count), Line({1, 2}));
    for (Curve& curve : curves) curve.label = "model.hidden_size=64 model.num_heads=2";
    return curves;
  };
  EXPECT_THAT(PlotSvg(labelled(1), options), HasSubstr("viewBox=\"0 0 800 450\" width=\"800\" height=\"450\""));
  const std::string svg = PlotSvg(labelled(3), options);  // two in the first row
  EXPECT_THAT(svg, HasSubstr("viewBox=\"0 -40 800 490\" width=\"800\" height=\"490\""));
  EXPECT_THAT(svg, HasSubstr("y=\"-14\" font-size=\"16\"")) << "the title";
  for (const auto& [y, count] :
       {std::pair{"y=\"6\" text-anchor=\"end\">model", 2}, std::pair{"y=\"26\" text-anchor=\"end\">model", 1}}) {
    int found = 0;
    for (size_t at = svg.find(y); at != std::string::npos; at = svg.find(y, at + 1)) ++found;
    EXPECT_EQ(found, count) << y;
  }
}

TEST(PlotSvg, ALogarithmicHorizontalAxis) {
  Curve curve{.label = "", .x = {1, 10, 100}, .y = {1, 2, 3}, .points = true};
  const std::string log = PlotSvg({curve}, {.title = "", .x_label = "", .y_label = "", .log_x = true}),
                    linear = PlotSvg({curve}, {.title = "", .x_label = "", .y_label = ""});
  EXPECT_THAT(log, HasSubstr("<circle cx=\"424.0\""));  // in the middle of the 712 pixels from 68
  EXPECT_THAT(linear, Not(HasSubstr("<circle cx=\"424.0\"")));
}

}  // namespace
}  // namespace holdfast
