// Proves that a queue of actions knows that it holds a run's end, wherever that is, and that it finds out that the run
// is another coordinator's before anybody is told what was recorded or why that failed.

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

TEST(ActionQueue, LooksBetweenRecordingAndTelling) {
  absl::Status ours;
  int told = 0;
  ActionQueue queue([&ours] { return ours; },
                    [&](const CoordinatorAction& action) {
                      if (std::holds_alternative<RecordAction>(action)) ours = absl::FailedPreconditionError("taken");
                      if (std::holds_alternative<CloseAction>(action)) ++told;
                      return absl::OkStatus();
                    });
  queue.Add({RecordAction{}, CloseAction{1}});
  EXPECT_TRUE(absl::IsFailedPrecondition(queue.CarryOut()));
  EXPECT_TRUE(queue.replaced());
  EXPECT_EQ(told, 0);
}

// Each may be the first sign of another coordinator, which has put a copy in the place of a file.
TEST(ActionQueue, AFileThatIsNotThereMayBeAnothersDoing) {
  for (const absl::Status& failure : {absl::FailedPreconditionError("removed"), absl::UnavailableError("moved")}) {
    absl::Status ours;
    ActionQueue queue([&ours] { return ours; },
                      [&](const CoordinatorAction&) {
                        ours = absl::FailedPreconditionError("taken");
                        return failure;
                      });
    queue.Add({RecordAction{}});
    EXPECT_EQ(queue.CarryOut(), absl::FailedPreconditionError("taken"));
    EXPECT_TRUE(queue.replaced()) << failure;
  }
  ActionQueue queue([] { return absl::OkStatus(); },
                    [](const CoordinatorAction&) { return absl::FailedPreconditionError("removed"); });
  queue.Add({RecordAction{}});
  EXPECT_EQ(queue.CarryOut(), absl::FailedPreconditionError("removed"));
  EXPECT_FALSE(queue.replaced());
}

}  // namespace
}  // namespace holdfast
