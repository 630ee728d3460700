// Proves that a layout tiles the flat vector: parameters, units and chunks without hole or overlap, chunks of whole
// rows, for even, uneven and very wide shapes.
#include "framework/nn/layout.h"

#include <gtest/gtest.h>

namespace holdfast {
namespace {

constexpr int64_t kMax = ParameterLayout::kChunkElements;

ParameterSpec Spec(const std::string& name, Shape shape, int unit) {
  return {.name = name, .shape = shape, .unit = unit};
}

ParameterLayout UnevenLayout() {
  return ParameterLayout(
      {
          Spec("table", {1000, 192}, 0),      // 341 rows to a chunk, the last one short
          Spec("exact", {4, kMax / 2}, 0),    // two rows to a chunk, no rest
          Spec("wide", {3, kMax + 1}, 1),     // a row is more than a chunk may hold
          Spec("vector", {kMax + 7}, 1),      // one row
          Spec("cube", {2, 3, kMax / 4}, 2),  // rows of all but the last dimension
          Spec("one", {1}, 2),
      },
      {"first", "second", "third"});
}

TEST(LayoutTest, ChunksTileEveryParameter) {
  const ParameterLayout layout = UnevenLayout();
  int64_t offset = 0;
  size_t next = 0;
  for (size_t p = 0; p < layout.parameters().size(); ++p) {
    const ParameterSpec& spec = layout.parameters()[p];
    EXPECT_EQ(spec.offset, offset) << spec.name;
    int64_t row = 0;
    for (; next < layout.chunks().size() && layout.chunks()[next].parameter == static_cast<int>(p); ++next) {
      const Chunk& chunk = layout.chunks()[next];
      EXPECT_EQ(chunk.first_row, row) << spec.name;
      EXPECT_EQ(chunk.offset, offset) << spec.name;
      EXPECT_EQ(chunk.elements, chunk.num_rows * spec.shape.cols()) << spec.name;
      EXPECT_TRUE(chunk.elements <= kMax || chunk.num_rows == 1) << spec.name;
      EXPECT_GT(chunk.num_rows, 0) << spec.name;
      row += chunk.num_rows;
      offset += chunk.elements;
    }
    EXPECT_EQ(row, spec.shape.rows()) << spec.name;
  }
  EXPECT_EQ(next, layout.chunks().size());
  EXPECT_EQ(offset, layout.elements());
}

TEST(LayoutTest, UnitsTileParametersAndChunks) {
  const ParameterLayout layout = UnevenLayout();
  int parameter = 0, chunk = 0;
  int64_t offset = 0;
  ASSERT_EQ(layout.num_units(), 3);
  for (const Unit& unit : layout.units()) {
    EXPECT_EQ(unit.first_parameter, parameter) << unit.name;
    EXPECT_EQ(unit.first_chunk, chunk) << unit.name;
    EXPECT_EQ(unit.offset, offset) << unit.name;
    int64_t elements = 0;
    for (int p = 0; p < unit.num_parameters; ++p) {
      const ParameterSpec& spec = layout.parameters()[parameter + p];
      EXPECT_EQ(spec.unit_offset, elements) << spec.name;
      elements += spec.shape.elements();
    }
    EXPECT_EQ(unit.elements, elements) << unit.name;
    parameter += unit.num_parameters;
    chunk += unit.num_chunks;
    offset += unit.elements;
  }
  EXPECT_EQ(parameter, 6);
  EXPECT_EQ(chunk, static_cast<int>(layout.chunks().size()));
  EXPECT_EQ(offset, layout.elements());
}

TEST(LayoutTest, RowsOfAChunk) {
  const ParameterLayout layout = UnevenLayout();
  std::vector<int64_t> rows;
  for (const Chunk& chunk : layout.chunks()) rows.push_back(chunk.num_rows);
  EXPECT_EQ(rows, (std::vector<int64_t>{341, 341, 318, 2, 2, 1, 1, 1, 1, 4, 2, 1}));
}

TEST(LayoutTest, FindsByName) {
  const ParameterLayout layout = UnevenLayout();
  EXPECT_EQ(layout.Find("wide"), 2);
  EXPECT_EQ(layout.Find("widest"), -1);
}

TEST(LayoutDeathTest, RefusesUnitsOutOfOrder) {
  EXPECT_DEATH(ParameterLayout({Spec("a", {2}, 1), Spec("b", {2}, 0)}, {"first", "second"}), "check failed");
  EXPECT_DEATH(ParameterLayout({Spec("a", {2}, 0), Spec("b", {2}, 1)}, {"first"}), "check failed");
}

TEST(LayoutTest, PartsBeginAtTheirFirstParameters) {
  const auto part = [](const char* name, Shape shape, int unit, int index) {
    ParameterSpec spec = Spec(name, shape, unit);
    spec.part = index;
    return spec;
  };
  const ParameterLayout layout({Spec("dense", {9}, 0), part("e0.up", {4, kMax / 2}, 1, 0), part("e0.down", {7}, 1, 0),
                                part("e1.up", {4, kMax / 2}, 1, 1), part("e2.up", {9}, 1, 2)},
                               {"block", "experts"});
  EXPECT_TRUE(layout.units()[0].parts.empty());
  EXPECT_EQ(layout.units()[1].parts, (std::vector<int>{1, 4, 6}));
}

TEST(LayoutTest, PartsFollowEachOther) {
  const auto layout = [](const std::vector<int>& parts) {
    std::vector<ParameterSpec> specs;
    for (const int part : parts) {
      specs.push_back(Spec("p", {2}, 0));
      specs.back().part = part;
    }
    return ParameterLayout(std::move(specs), {"unit"});
  };
  EXPECT_EQ(layout({0, 0, 1}).units()[0].parts.size(), 2u);
  for (const std::vector<int>& wrong : std::vector<std::vector<int>>{{1}, {0, 2}, {0, 1, 0}, {-1, 0}, {0, -1}}) {
    EXPECT_DEATH(layout(wrong), "");
  }
}

}  // namespace
}  // namespace holdfast
