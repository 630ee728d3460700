// Proves that two workers whose data goes between GPUs by NCCL have the bits of one GPU alone, also when one of them is
// killed and the survivor's calls have to be ended. Skipped where there are no two GPUs.

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/chaos/chaos_run.h"

namespace holdfast::chaos {
namespace {

TEST(NcclRun, AKilledWorkerCostsNoBit) {
  if (access("/dev/nvidia1", R_OK) != 0) GTEST_SKIP() << "there are no two GPUs";
  const Stage stage(60);
  const auto train = [&](const std::string& run, std::vector<std::string> more) {
    std::vector<std::string> arguments{"train", stage.config(), "--run-dir", run, "--set", "train.device=cuda"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return LoggedProcess(arguments, run + ".log", {{"HOLDFAST_TEST_SLOWDOWN_MS", "20"}});
  };
  const std::string alone = stage.Path("alone"), together = stage.Path("together");
  LoggedProcess one = train(alone, {});
  if (one.Wait(300) == 1) GTEST_SKIP() << "this build cannot use a GPU: " << one.Log();
  LoggedProcess two = train(together, {"--workers", "2", "--set", "parallel.transport=nccl"});
  ASSERT_TRUE(WaitUntil(together, 120, [](const RunView& v) { return v.committed_step > 10; })) << two.Log();
  kill(Look(together).workers[1].pid, SIGKILL);
  EXPECT_EQ(two.Wait(300).value_or(-1), 0) << two.Log();
  EXPECT_EQ(RunBinary({"compare", alone, together}, stage.Path("compare.log")), 0);
  EXPECT_EQ(Events(together, "worker_lost").size(), 1u) << two.Log();
}

}  // namespace
}  // namespace holdfast::chaos
