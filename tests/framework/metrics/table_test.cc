// Proves what a table looks like as text, CSV and JSON.

#include "framework/metrics/table.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

TEST(Table, AsTextCsvAndJson) {
  const Table table{.name = "t", .columns = {"what", "n"}, .rows = {{"a, \"b\"", 1.0 / 3}, {"c", INFINITY}}};
  EXPECT_EQ(table.ToText(), "  what          n\n  a, \"b\"  0.33333\n  c           inf\n");
  EXPECT_EQ(table.ToCsv(), "what,n\n\"a, \"\"b\"\"\",0.3333333333333333\nc,inf\n");
  EXPECT_THAT(table.ToJson(), HasSubstr("\"what\": \"a, \\\"b\\\"\""));
  EXPECT_THAT(table.ToJson(), HasSubstr("\"n\": null"));
}

TEST(Table, NumbersInCsvAreShortAndReadBackAsTheSame) {
  const Table table{.name = "t",
                    .columns = {"n"},
                    .rows = {{1e5}, {-3.0}, {0.0}, {9007199254740991.0}, {3e22}, {0.1}, {1e-7}, {1.0 / 3}}};
  EXPECT_EQ(table.ToCsv(), "n\n100000\n-3\n0\n9007199254740991\n3e+22\n0.1\n1e-07\n0.3333333333333333\n");
}

}  // namespace
}  // namespace holdfast
