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

TEST(ParallelCoordinates, WhatCannotBeShownIsLeftOut) {
  const std::string svg =
      ParallelCoordinatesSvg("t", {{.label = "a", .log = true}, {.label = "b"}},
                             {{.values = {-1.0, NAN}, .rank = 0.5}, {.values = {1.0, 2.0}, .rank = 0}});
  EXPECT_THAT(svg, AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf")), HasSubstr("#3b82f6")));
  EXPECT_THAT(ParallelCoordinatesSvg("t", {{.label = "a"}}, {}), HasSubstr("</svg>"));
}

}  // namespace
}  // namespace holdfast
