// Proves that two workers whose data goes between GPUs by NCCL have the bits of one GPU alone, also when one of them is
// killed and the survivor's calls have to be ended. Skipped where there are no two GPUs.

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/chaos/chaos_run.h"

namespace holdfast::chaos {
namespace {

class NcclRun : public StageTest {
 protected:
  static void SetUpTestSuite() { stage_ = std::make_unique<Stage>(std::vector<std::string>{"train.device=cuda"}); }
};

TEST_F(NcclRun, AKilledWorkerCostsNoBit) {
  if (access("/dev/nvidia1", R_OK) != 0) GTEST_SKIP() << "there are no two GPUs";
  if (RunBinary(
          {"train", stage_->config(), "--run-dir", Run() + "1", "--set", "train.device=cuda", "--set", "train.steps=1"},
          Run() + "1.log") == 1) {
    GTEST_SKIP() << "this build cannot use a GPU";
  }
  LoggedProcess process({"train", stage_->config(), "--run-dir", Run(), "--workers", "2", "--set", "train.device=cuda",
                         "--set", "parallel.transport=nccl", "--set", "elastic.heartbeat_timeout_ms=15000"},
                        Run() + ".log", {{"HOLDFAST_TEST_SLOWDOWN_MS", "20"}});
  int pid = -1;
  const auto has_begun = [&](const RunView& v) {
    if (v.committed_step <= 10 || v.world_size != 2) return false;
    pid = v.workers[1].pid;
    return true;
  };
  ASSERT_TRUE(WaitUntil(process, Run(), has_begun));
  kill(pid, SIGKILL);
  ASSERT_TRUE(WaitForEvents(process, Run(), "worker_lost"));
  ASSERT_TRUE(WaitForStep(process, Run(), CommittedSteps(Run()) + 20));
  process.Signal(SIGTERM);
  EXPECT_EQ(process.ExitCode(), 143);
  EXPECT_TRUE(stage_->HasUndisturbedBits(Run()));
  EXPECT_EQ(Events(Run(), "worker_lost").size(), 1u);
}

}  // namespace
}  // namespace holdfast::chaos
