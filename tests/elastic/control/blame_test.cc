// Proves that blame of failed worlds adds up only for consecutive worlds: one that is named again after others were
// blamed begins anew.

#include "elastic/control/blame.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace holdfast {
namespace {

TEST(BlameOnEnd, AWorldThatNamesOthersBeginsTheCountAnew) {
  std::vector<Member> members;
  for (const char* name : {"a", "b", "c"}) members.push_back({{name, 1}, "n", "h", 1});
  const World world{1, members};
  Blame blame;
  // Two worlds name b, one names c, then b is named by two more, and by a third.
  for (const auto& [suspect, culprit] :
       {std::pair{1, false}, {1, false}, {2, false}, {1, false}, {1, false}, {1, true}}) {
    blame.Add(world, 0, {1, 1, Phase::kReduce, "reset", {suspect}, false});
    EXPECT_EQ(blame.Conclude(world).culprit.has_value(), culprit);
  }
}

}  // namespace
}  // namespace holdfast
