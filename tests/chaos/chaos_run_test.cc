// Proves that what the chaos tests stand on finds what they look for: other bits, a missing step, a step done twice.

#include "tests/chaos/chaos_run.h"

#include <gtest/gtest.h>

#include <fstream>

namespace holdfast::chaos {
namespace {

class ChaosRun : public StageTest {
 protected:
  static void Train(const std::string& run, const std::string& setting) {
    ASSERT_EQ(RunBinary({"train", stage_->config(), "--run-dir", run, "--set", "train.steps=4", "--set", setting},
                        run + ".log"),
              0);
  }
};

TEST_F(ChaosRun, OtherBitsAreFound) {
  ASSERT_NO_FATAL_FAILURE(Train(Run(), "run.seed=2"));
  EXPECT_FALSE(stage_->HasUndisturbedBits(Run()));
}

TEST_F(ChaosRun, EveryStepHasToBeThereOnce) {
  ASSERT_NO_FATAL_FAILURE(Train(Run(), "train.threads=1"));
  EXPECT_TRUE(stage_->HasUndisturbedBits(Run()));
  const auto steps = Lines(Run() + "/metrics.jsonl");
  const auto rewrite = [&](const std::vector<size_t>& order) {
    std::ofstream file(Run() + "/metrics.jsonl");
    for (const size_t i : order) file << steps.at(i).dump() << "\n";
  };
  rewrite({0, 1, 3});
  EXPECT_FALSE(stage_->HasUndisturbedBits(Run()));
  rewrite({0, 1, 1, 2, 3});
  EXPECT_FALSE(stage_->HasUndisturbedBits(Run()));
  rewrite({0, 1, 2, 3});
  EXPECT_TRUE(stage_->HasUndisturbedBits(Run()));
}

TEST_F(ChaosRun, AnEndedProcessIsNotWaitedFor) {
  LoggedProcess process({"--version"}, Run() + ".log");
  EXPECT_FALSE(WaitFor(process, [] { return false; }));
  EXPECT_EQ(process.ExitCode(), 0);
}

}  // namespace
}  // namespace holdfast::chaos
