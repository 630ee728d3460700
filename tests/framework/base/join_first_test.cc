// Long lists are shortened, and say by how much.

#include "framework/base/join_first.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace holdfast {
namespace {

TEST(JoinFirst, NamesTheFirstAndCountsTheOthers) {
  const std::set<std::string> names{"c", "a", "b"};
  EXPECT_EQ(JoinFirst(names, 2), "a, b and 1 more");
  EXPECT_EQ(JoinFirst(names, 3), "a, b, c");
  EXPECT_EQ(JoinFirst(names, 1), "a and 2 more");
  EXPECT_EQ(JoinFirst(std::vector<std::string>(), 2), "");
  const auto squared = [](std::string* out, int number) { absl::StrAppend(out, number * number); };
  EXPECT_EQ(JoinFirst(std::vector<int>{1, 2, 3, 4}, 3, squared), "1, 4, 9 and 1 more");
}

}  // namespace
}  // namespace holdfast
