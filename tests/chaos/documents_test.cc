// Proves that training on rows of packed conversations, which do not see each other and of which only the answers are
// learned, has the bits of an undisturbed run through kills and resumes in worlds of 3, 7 and 1 workers, with and
// without recomputation.

#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <string>
#include <vector>

#include "tests/chaos/chaos_run.h"
#include "tests/framework/base/temporary_directory.h"
#include "tests/paths.h"

namespace holdfast::chaos {
namespace {

class Documents : public testing::Test {
 protected:
  void SetUp() override {
    std::ofstream talks(files_ / "talks.jsonl");
    for (int i = 0; i < 300; ++i) {
      talks << R"({"messages":[{"role":"user","content":"line )" << i * i % 37
            << R"("},{"role":"assistant","content":")" << std::string(static_cast<size_t>(i * i % 23), '!') << i % 7
            << "\"}]}\n";
    }
    talks.close();
    const std::string tokenizer = SourceDir() + "/tests/framework/chat/golden/phi3";
    ASSERT_EQ(RunBinary({"data", "pack", "--chat", files_ / "talks.jsonl", "--tokenizer", tokenizer, "--out",
                         files_ / "talks.bin", "--sequence-length", "64"},
                        files_ / "pack.log"),
              0);
    settings_ = {"data.train=[" + files_ / "talks.bin]",
                 "data.validation=[]",
                 "train.validate_every_steps=0",
                 "data.tokenizer=" + tokenizer + "/tokenizer.json",
                 "model.vocab_size=600",
                 "batch.sequence_length=64",
                 "model.max_sequence_length=64"};
    stage_ = std::make_unique<Stage>(settings_);
  }
  void TearDown() override {
    if (HasFailure() && stage_ != nullptr) stage_->PrintLogs("run");
  }

  std::unique_ptr<LoggedProcess> Train(int workers, std::vector<std::string> more) const {
    more.insert(more.end(), settings_.begin(), settings_.end());
    std::vector<std::string> arguments{"train", stage_->config(), "--workers", std::to_string(workers), "--run-dir",
                                       Run()};
    for (const std::string& setting : more) arguments.insert(arguments.end(), {"--set", setting});
    return std::make_unique<LoggedProcess>(
        arguments, Run() + ".log",
        std::vector<std::pair<std::string, std::string>>{{"HOLDFAST_TEST_SLOWDOWN_MS", "2"}});
  }
  std::string Run() const { return stage_->Path("run"); }

  TemporaryDirectory files_;
  std::vector<std::string> settings_;
  std::unique_ptr<Stage> stage_;
};

TEST_F(Documents, HaveEqualBitsInEveryWorldAndThroughKills) {
  const auto three = Train(3, {"checkpoint.every_steps=3"});
  ASSERT_TRUE(WaitForEvents(*three, Run(), "checkpoint"));
  ASSERT_TRUE(KillAll(*three, Run()));
  const auto seven = Train(7, {"checkpoint.every_steps=3", "train.recompute=block"});
  int pid = -1;
  ASSERT_TRUE(WaitUntil(*seven, Run(), [&](const RunView& view) {
    if (view.world_size == 7) pid = view.workers.at(2).pid;
    return view.world_size == 7;
  }));
  ASSERT_TRUE(WaitForStep(*seven, Run(), CommittedSteps(Run()) + 3));
  kill(pid, SIGKILL);
  ASSERT_TRUE(WaitForStep(*seven, Run(), CommittedSteps(Run()) + 6));
  seven->Signal(SIGTERM);
  EXPECT_EQ(seven->ExitCode(), 143);
  const int64_t steps = CommittedSteps(Run()) + 6;
  EXPECT_EQ(Train(1, {"train.steps=" + std::to_string(steps)})->ExitCode(), 0);
  EXPECT_EQ(CommittedSteps(Run()), steps);
  EXPECT_TRUE(stage_->HasUndisturbedBits(Run()));
}

}  // namespace
}  // namespace holdfast::chaos
