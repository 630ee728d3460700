// Proves what a table looks like as text, CSV and JSON.

#include "framework/metrics/table.h"

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

TEST(Table, AColumnOfACsvMayBeCalledAnything) {
  const Table table{.name = "t", .columns = {"a,b", "n"}, .rows = {{1.0, 2.0}}};
  EXPECT_EQ(table.ToCsv(), "\"a,b\",n\n1,2\n");
}

TEST(Table, NumbersInCsvAreShortAndReadBackAsTheSame) {
  const Table table{.name = "t",
                    .columns = {"n"},
                    .rows = {{1e5}, {-3.0}, {0.0}, {9007199254740991.0}, {3e22}, {0.1}, {1e-7}, {1.0 / 3}}};
  EXPECT_EQ(table.ToCsv(), "n\n100000\n-3\n0\n9007199254740991\n3e+22\n0.1\n1e-07\n0.3333333333333333\n");
}

// For people with three digits, also where as many others would not need a power of ten.
TEST(Table, CountsAreShortenedForPeopleAlone) {
  const Table table{.name = "t",
                    .columns = {"tokens", "flops"},
                    .rows = {{Table::Count{98304}, 1e18}, {Table::Count{2700000}, 2.5e17}}};
  EXPECT_EQ(table.ToText(), "  tokens    flops\n  98.3 K    1e+18\n  2.70 M  2.5e+17\n");
  EXPECT_THAT(table.ToHtml(), HasSubstr("<td>98.3 K</td>"));
  EXPECT_EQ(table.ToCsv(), "tokens,flops\n98304,1e+18\n2700000,2.5e+17\n");
  EXPECT_THAT(table.ToJson(), HasSubstr("\"tokens\": 98304.0"));
}

TEST(Table, AsAPage) {
  const Table table{.name = "t", .columns = {"<n>", "text"}, .rows = {{1.0 / 3, "a & b"}}};
  EXPECT_EQ(
      table.ToHtml(),
      "<table>\n<tr><th>&lt;n&gt;</th><th>text</th></tr>\n<tr><td>0.333333</td><td>a &amp; b</td></tr>\n</table>\n");
  const std::string page = HtmlPage("<title>", "<p>body</p>\n");
  EXPECT_THAT(page, HasSubstr("<h1>&lt;title&gt;</h1>\n<p>body</p>\n"));
  EXPECT_THAT(page, HasSubstr("<title>&lt;title&gt;</title>"));
}

}  // namespace
}  // namespace holdfast
