// Proves that a queue of actions knows that it holds a run's end, wherever that is.

#include "elastic/coordinator/action_queue.h"

#include "gtest/gtest.h"

namespace holdfast {
namespace {

TEST(ActionQueue, HoldsTheEndOfARunAlsoBeforeOtherActions) {
  int tried = 0;
  ActionQueue queue([] { return absl::UnavailableError("the store does not answer"); },
                    [&tried](const CoordinatorAction&) {
                      ++tried;
                      return absl::OkStatus();
                    });
  EXPECT_FALSE(queue.ends_run());
  queue.Add({CloseAction{1}});
  EXPECT_FALSE(queue.ends_run());
  queue.Add({EndAction{1, "no worker holds the state"}});
  EXPECT_TRUE(queue.ends_run());
  queue.Add({ReportAction{event::CheckpointWarning{1, "slow"}}});  // at the same tick
  EXPECT_TRUE(absl::IsUnavailable(queue.CarryOut()));
  EXPECT_EQ(tried, 0);
  EXPECT_TRUE(queue.ends_run());
  EXPECT_EQ(queue.Take().size(), 3u);
  EXPECT_FALSE(queue.ends_run());
}

}  // namespace
}  // namespace holdfast
