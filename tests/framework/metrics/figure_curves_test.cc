// Proves that a list of figures becomes a curve for each of its values, of many the extremes and the median, and that
// steps without it leave a gap and no point.

#include "framework/metrics/figure_curves.h"

#include <gtest/gtest.h>

#include <cmath>

namespace holdfast {
namespace {

StepMetrics Step(int64_t step, std::vector<double> load) {
  StepMetrics m;
  m.step = step;
  if (!load.empty()) m.figures.push_back({.name = "expert_load", .values = std::move(load), .is_list = true});
  return m;
}

TEST(FigureCurves, AreOneForEachLayer) {
  const std::vector<Curve> curves =
      FigureCurves({Step(1, {4, 2}), Step(2, {}), Step(3, {3, 1}), Step(4, {5})}, "expert_load");
  ASSERT_EQ(curves.size(), 2u);
  EXPECT_EQ(curves[0].label, "layer 1");
  EXPECT_EQ(curves[0].x, (std::vector<double>{1, 3, 4}));
  EXPECT_EQ(curves[0].y, (std::vector<double>{4, 3, 5}));
  EXPECT_EQ(curves[1].x, curves[0].x);
  EXPECT_EQ(curves[1].y[1], 1);
  EXPECT_TRUE(std::isnan(curves[1].y[2]));
}

TEST(FigureCurves, OfManyLayersAreExtremesAndMedian) {
  const std::vector<Curve> curves =
      FigureCurves({Step(1, {7, 1, 6, 2, 5, 3, 4}), Step(2, {9, 1, 6, 2, 7, 3, 8, 4})}, "expert_load");
  ASSERT_EQ(curves.size(), 3u);
  EXPECT_EQ(curves[0].y, (std::vector<double>{7, 9}));
  EXPECT_EQ(curves[1].y, (std::vector<double>{4, 5})) << "of an even number half way between the two in the middle";
  EXPECT_EQ(curves[2].y, (std::vector<double>{1, 1}));
}

TEST(FigureCurves, OfADenseModelAreNone) { EXPECT_TRUE(FigureCurves({Step(1, {})}, "expert_load").empty()); }

}  // namespace
}  // namespace holdfast
