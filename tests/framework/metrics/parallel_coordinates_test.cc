// Proves what is drawn of things with many values: each as a line, the best last, gaps left out, nothing unescaped.

#include "framework/metrics/parallel_coordinates.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ParallelCoordinates, ALineForEachThingTheBestOnTop) {
  const std::string svg = ParallelCoordinatesSvg(
      "a < b", {{.label = "lr", .log = true}, {.label = "name", .choices = {"x&y", "z"}}, {.label = "loss"}},
      {{.values = {1e-3, 0.0, 2.0}, .rank = 0}, {.values = {1e-1, std::nullopt, 3.0}, .rank = 1}});
  EXPECT_THAT(svg, AllOf(HasSubstr("a &lt; b"), HasSubstr("x&amp;y"), HasSubstr(">z<"), HasSubstr(">loss<")));
  const size_t worst = svg.find("#f97316"), best = svg.find("#3b82f6");
  ASSERT_NE(worst, std::string::npos);
  ASSERT_NE(best, std::string::npos);
  EXPECT_LT(worst, best) << "what is drawn last lies on top";
}

TEST(ParallelCoordinates, LongNamesAndChoicesAreWithinThePicture) {
  const std::string choice = "model.hidden_size=64 model.heads=2", name(20, 'n');
  const auto first_axis = [&](const std::vector<std::string>& choices) {
    const std::string svg = ParallelCoordinatesSvg("t", {{.label = name, .choices = choices}, {.label = name}},
                                                   {{.values = {0.0, 2.0}, .rank = 0}});
    EXPECT_THAT(svg, HasSubstr("<text x=\"80.0\" y=\"60\" text-anchor=\"middle\"")) << "20 letters of 7.6, and 4";
    EXPECT_THAT(svg, HasSubstr("<text x=\"720.0\" y=\"44\" text-anchor=\"middle\""));
    return svg;
  };
  EXPECT_THAT(first_axis({"a", "b"}), HasSubstr("<path d=\"M60.0 70v350\""));
  const std::string wide = ParallelCoordinatesSvg("t", {{.label = "w", .choices = {choice}}, {.label = "loss"}},
                                                  {{.values = {0.0, 2.0}, .rank = 0}});
  EXPECT_THAT(wide, HasSubstr("<path d=\"M243.2 70v350\"")) << "34 letters of 6.8, and 12";
}

TEST(ParallelCoordinates, WhatCannotBeShownIsLeftOut) {
  const std::string svg =
      ParallelCoordinatesSvg("t", {{.label = "a", .log = true}, {.label = "b"}},
                             {{.values = {-1.0, NAN}, .rank = 0.5}, {.values = {1.0, 2.0}, .rank = 0}});
  EXPECT_THAT(svg, AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf")), HasSubstr("#3b82f6")));
  EXPECT_THAT(ParallelCoordinatesSvg("t", {{.label = "a"}}, {}), HasSubstr("</svg>"));
}

}  // namespace
}  // namespace holdfast
