// Proves what is drawn of things with many values: each as a line, the best last, gaps left out, nothing unescaped;
// that no text lies on another one or is cut off.

#include "framework/metrics/parallel_coordinates.h"

#include <cmath>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
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

/// A level text as it is drawn, if letters are as wide as the widest of usual fonts on average.
struct TextBox {
  std::string text;
  double left, right, bottom, top;  // downwards
};

/// Of the texts of the axes, but for names that rise.
std::vector<TextBox> BoxesOf(const std::string& svg) {
  const std::regex texts(
      "<text x=\"([0-9.]+)\" y=\"([0-9.]+)\" text-anchor=\"([a-z]+)\"( font-weight=\"600\")?>([^<]*)<");
  std::vector<TextBox> boxes;
  for (std::sregex_iterator it(svg.begin(), svg.end(), texts), end; it != end; ++it) {
    const double x = std::stod((*it)[1]), y = std::stod((*it)[2]);
    const double width = ((*it)[4].matched ? 7.6 : 6.8) * static_cast<double>((*it)[5].length());
    const double left = (*it)[3] == "start" ? x : (*it)[3] == "end" ? x - width : x - width / 2;
    boxes.push_back({.text = (*it)[5], .left = left, .right = left + width, .bottom = y + 3, .top = y - 9});
  }
  return boxes;
}

/// How many texts of the axes are level.
size_t ExpectApartAndWithin(const std::string& svg) {
  std::smatch size;
  EXPECT_TRUE(std::regex_search(svg, size, std::regex("viewBox=\"0 0 ([0-9]+) ([0-9]+)\"")));
  const std::vector<TextBox> boxes = BoxesOf(svg);
  for (size_t i = 0; i < boxes.size(); ++i) {
    const TextBox& a = boxes[i];
    EXPECT_TRUE(a.left >= 0 && a.right <= std::stod(size[1]) && a.bottom <= std::stod(size[2])) << a.text;
    EXPECT_GT(a.top, 30) << a.text << ": where the title is";
    for (size_t j = 0; j < i; ++j) {
      const TextBox& b = boxes[j];
      const bool apart = a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
      EXPECT_TRUE(apart) << a.text << " lies on " << b.text;
    }
  }
  return boxes.size();
}

TEST(ParallelCoordinates, TextsAreWithinThePictureAndApart) {
  const std::string name(20, 'n');
  const std::string two = ParallelCoordinatesSvg("t", {{.label = name, .choices = {"a", "b"}}, {.label = name}},
                                                 {{.values = {0.0, 2.0}, .rank = 0}});
  EXPECT_THAT(two, AllOf(HasSubstr("viewBox=\"0 0 800 450\""), HasSubstr("<path d=\"M60.0 70.0v350.0\"")));
  EXPECT_GE(ExpectApartAndWithin(two), 5U);

  const std::vector<std::string> several = {"model.hidden_size=64 model.num_heads=2 model.num_layers=1",
                                            "model.hidden_size=128 model.num_heads=4 model.num_layers=2"};
  std::vector<CoordinateAxis> axes = {{.label = "shape", .choices = several}, {.label = "optimizer.lr", .log = true}};
  for (const char* each : {"optimizer.weight_decay", "schedule.min_lr_ratio", "optimizer.grad_clip_norm",
                           "optimizer.beta1", "optimizer.beta2", "model.dropout", "lora.dropout"}) {
    axes.push_back({.label = each});
  }
  axes.push_back({.label = "kind", .choices = several});
  axes.push_back({.label = "a_metric_of_a_long_name"});
  std::vector<CoordinateLine> lines;
  for (const double place : {0.0, 1.0}) {
    lines.push_back({.values = std::vector<std::optional<double>>(axes.size(), 0.0012345 + place), .rank = place});
    lines.back().values.front() = lines.back().values[axes.size() - 2] = place;
  }
  const std::string many = ParallelCoordinatesSvg("t", axes, lines);
  EXPECT_THAT(many, AllOf(HasSubstr(">model.num_heads=4<"), HasSubstr("rotate(-30 ")));
  EXPECT_GE(ExpectApartAndWithin(many), 12U);
  // Names that rise are apart if their axes are, and end within the picture.
  const std::regex names(
      "<text x=\"([0-9.]+)\" y=\"([0-9.]+)\" text-anchor=\"start\" font-weight=\"600\" transform=[^>]*>([^<]*)<");
  std::smatch size;
  ASSERT_TRUE(std::regex_search(many, size, std::regex("viewBox=\"0 0 ([0-9]+) ")));
  double before = 0;
  size_t count = 0;
  for (std::sregex_iterator it(many.begin(), many.end(), names), end; it != end; ++it, ++count) {
    const double x = std::stod((*it)[1]), length = 7.6 * static_cast<double>((*it)[3].length());
    EXPECT_GE(x - before, 30) << (*it)[3];
    EXPECT_LE(x + 0.866 * length, std::stod(size[1])) << (*it)[3];
    EXPECT_GE(std::stod((*it)[2]) - length / 2, 40) << (*it)[3];
    before = x;
  }
  EXPECT_EQ(count, axes.size());
}

TEST(ParallelCoordinates, ManyChoicesMakeTheTextsShorterOrThePictureHigher) {
  const std::string path = "data.train=[/a/place/that/is/far/away/";
  for (const size_t count : {3, 20, 60}) {
    std::vector<std::string> choices;
    for (size_t i = 0; i < count; ++i) choices.push_back(absl::StrCat(path, i, ".bin] batch.microbatches=", i));
    const std::string svg = ParallelCoordinatesSvg("t", {{.label = "data", .choices = choices}, {.label = "loss"}},
                                                   {{.values = {0.0, 2.0}, .rank = 0}});
    EXPECT_THAT(svg, AllOf(Not(HasSubstr(path)), HasSubstr("…"), HasSubstr("batch.microbatches=2<")));
    EXPECT_EQ(svg.find(">batch.microbatches=2<") != std::string::npos, count < 60) << "in a line of its own";
    EXPECT_GE(ExpectApartAndWithin(svg), count);
  }
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
