// Proves that points and the unit cube map to each other, that what is in a finite space is counted and listed once
// each, conditions included, and that all that is wrong with a space is said at once.
#include "framework/search/space.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::search {
namespace {

using ::testing::HasSubstr;

SearchSpace MustCreate(std::vector<Dimension> dimensions) {
  auto space = SearchSpace::Create(std::move(dimensions));
  EXPECT_TRUE(space.ok()) << space.status();
  return *std::move(space);
}

TEST(Space, MapsTheUnitCube) {
  const SearchSpace space = MustCreate({{.name = "lr", .scale = Scale::kLog, .low = 1e-5, .high = 1e-1},
                                        {.name = "layers", .low = 1, .high = 4, .integer = true},
                                        {.name = "name", .scale = Scale::kChoice, .choices = {"a", "b"}},
                                        {.name = "fixed", .low = 0.3, .high = 0.3}});
  const Point middle = space.FromUnit({0.5, 0.3, 0.5, 0.9});
  EXPECT_EQ(PointText(middle), "fixed=0.3 layers=2 lr=0.001 name=\"b\"");
  EXPECT_EQ(PointText(space.FromUnit({0, 0, 0, 0})), "fixed=0.3 layers=1 lr=1e-05 name=\"a\"");
  EXPECT_EQ(PointText(space.FromUnit({1, 1, 1, 1})), "fixed=0.3 layers=4 lr=0.1 name=\"b\"");
  const auto unit = space.ToUnit(middle);
  ASSERT_TRUE(unit.ok()) << unit.status();
  EXPECT_NEAR((*unit)[0], 0.5, 1e-9);
  EXPECT_NEAR((*unit)[1], 0.375, 1e-9);
  EXPECT_NEAR((*unit)[2], 0.75, 1e-9);
  EXPECT_EQ((*unit)[3], 0.5);
  for (int i = 0; i <= 50; ++i) {
    const Point point = space.FromUnit(std::vector<double>(4, i / 50.0));
    EXPECT_EQ(PointText(space.FromUnit(*space.ToUnit(point))), PointText(point));
  }
}

TEST(Space, WholeNumbersEqualTheirDoubles) {
  EXPECT_EQ(PointText({{"n", int64_t{3}}}), PointText({{"n", 3.0}}));
  EXPECT_NE(PointText({{"a", std::string("1\" b=\"2")}}),
            PointText({{"a", std::string("1")}, {"b", std::string("2")}}));
}

TEST(Space, CountsAndListsConditions) {
  const SearchSpace space = MustCreate(
      {{.name = "optimizer", .scale = Scale::kChoice, .choices = {"adamw", "muon"}},
       {.name = "beta", .low = 1, .high = 3, .integer = true, .condition = Condition{"optimizer", "adamw"}},
       {.name = "kind", .scale = Scale::kChoice, .choices = {"x", "y"}, .condition = Condition{"optimizer", "muon"}},
       {.name = "depth", .low = 1, .high = 2, .integer = true, .condition = Condition{"kind", "y"}},
       {.name = "layers", .low = 1, .high = 5, .integer = true, .steps = 3}});
  EXPECT_EQ(space.Count(), (3 + 1 + 2) * 5);
  EXPECT_EQ(space.GridCount(), (3 + 1 + 2) * 3);
  std::set<std::string> texts;
  for (int64_t i = 0; i < *space.Count(); ++i) {
    const Point point = space.At(i);
    EXPECT_TRUE(space.ToUnit(point).ok()) << PointText(point) << space.ToUnit(point).status();
    texts.insert(PointText(point));
  }
  EXPECT_EQ(texts.size(), 30u);
  EXPECT_FALSE(space.ToUnit({{"optimizer", std::string("muon")}, {"beta", int64_t{1}}, {"layers", int64_t{1}}}).ok());
}

TEST(Space, GridOfNumbersHasItsEnds) {
  const SearchSpace space = MustCreate({{.name = "lr", .scale = Scale::kLog, .low = 1e-4, .high = 1e-2, .steps = 3}});
  EXPECT_FALSE(space.Count().has_value());
  ASSERT_EQ(space.GridCount(), 3);
  EXPECT_EQ(PointText(space.GridAt(0)), "lr=1e-04");
  EXPECT_EQ(PointText(space.GridAt(1)), "lr=0.001");
  EXPECT_EQ(PointText(space.GridAt(2)), "lr=0.01");
}

TEST(Space, SaysAllErrors) {
  const auto space =
      SearchSpace::Create({{.name = "lr", .scale = Scale::kLog, .low = 0, .high = 1},
                           {.name = "late", .low = 0, .high = 1, .condition = Condition{"choice", "a"}},
                           {.name = "choice", .scale = Scale::kChoice, .choices = {"a", "a"}},
                           {.name = "lr", .low = 2, .high = 1},
                           {.name = "half", .low = 0.5, .high = 1, .integer = true},
                           {.name = "other", .low = 0, .high = 1, .condition = Condition{"choice", "z"}}});
  ASSERT_FALSE(space.ok());
  const std::string message(space.status().message());
  EXPECT_THAT(message, HasSubstr("lr: low of a log scale has to be above 0, not 0\n"));
  EXPECT_THAT(message, HasSubstr("late: its condition has to be on an earlier choice, not on choice\n"));
  EXPECT_THAT(message, HasSubstr("choice: has a choice twice\n"));
  EXPECT_THAT(message, HasSubstr("lr: is there twice\n"));
  EXPECT_THAT(message, HasSubstr("lr: low, 2, is above high, 1\n"));
  EXPECT_THAT(message, HasSubstr("half: 0.5 is an end of integers and not whole\n"));
  EXPECT_THAT(message, HasSubstr("other: its condition is a value that choice does not have, z"));
}

}  // namespace
}  // namespace holdfast::search
