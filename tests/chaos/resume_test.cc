// Proves that a run which was stopped by any means goes on from its newest checkpoint with other workers and another
// sharding strategy as if nothing had been: every line of metrics.jsonl stands there once, with the bits of the run
// that was never stopped. Also that state which nobody holds any more comes from the newest checkpoint, and that of two
// runs on one directory the second is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "tests/chaos/chaos_run.h"

namespace holdfast::chaos {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
namespace fs = std::filesystem;

class Resume : public testing::Test {
 protected:
  static void SetUpTestSuite() { stage_ = std::make_unique<Stage>(120); }
  static void TearDownTestSuite() { stage_.reset(); }

  std::string Run() const { return stage_->Path(testing::UnitTest::GetInstance()->current_test_info()->name()); }
  std::unique_ptr<LoggedProcess> Train(int workers, const std::vector<std::string>& settings,
                                       const std::string& crash = "", const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments{"train", stage_->config(), "--workers", std::to_string(workers), "--run-dir",
                                       Run()};
    for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    arguments.insert(arguments.end(), more.begin(), more.end());
    std::vector<std::pair<std::string, std::string>> environment{{"HOLDFAST_TEST_SLOWDOWN_MS", "2"}};
    if (!crash.empty()) environment.emplace_back("HOLDFAST_CRASH_POINT", crash);
    return std::make_unique<LoggedProcess>(arguments, Run() + ".log", environment);
  }
  /// kill -9 of everything that belongs to the run.
  void KillAll(LoggedProcess& process) {
    process.Signal(SIGKILL);
    for (const int pid : ProcessesWith(Run())) kill(pid, SIGKILL);
    process.Wait(20);
    for (int i = 0; i < 200 && !ProcessesWith(Run()).empty(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  // By the metrics: a run of one worker has nobody to ask.
  bool WaitForStep(int64_t step) const {
    for (int i = 0; i < 3000 && Lines() < step; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return Lines() >= step;
  }
  bool EqualBits() const { return RunBinary({"compare", stage_->undisturbed(), Run()}, Run() + ".compare") == 0; }
  int Lines() const {
    std::ifstream file(Run() + "/metrics.jsonl");
    int count = 0;
    for (std::string line; std::getline(file, line);) ++count;
    return count;
  }

  static std::unique_ptr<Stage> stage_;
};

std::unique_ptr<Stage> Resume::stage_;

struct World {
  int workers;
  std::string sharding;
};

TEST_F(Resume, AfterKillingEverythingAgainAndAgainInOtherWorldsEachTime) {
  const char* replay = std::getenv("HOLDFAST_CHAOS_SEED");
  const uint64_t seed = replay != nullptr ? std::strtoull(replay, nullptr, 10) : std::random_device{}();
  std::printf("replay with HOLDFAST_CHAOS_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  const std::vector<World> worlds{
      {3, "full_shard"}, {1, "full_shard"}, {4, "shard_grad_op"}, {2, "no_shard"}, {5, "full_shard"}};
  int64_t step = 0;
  for (const World& world : worlds) {
    const auto process = Train(world.workers, {"checkpoint.every_steps=3", "parallel.sharding=" + world.sharding});
    step += static_cast<int64_t>(8 + random() % 14);
    if (&world == &worlds.back()) {
      EXPECT_EQ(process->Wait(120).value_or(-1), 0) << process->Log();
      break;
    }
    ASSERT_TRUE(WaitForStep(step)) << process->Log();
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 60));
    KillAll(*process);
  }
  EXPECT_EQ(Lines(), 120);
  EXPECT_TRUE(EqualBits());
  EXPECT_EQ(RunBinary({"ckpt", "verify", Run(), "--all"}, Run() + ".verify"), 0);
}

TEST_F(Resume, AfterASigtermThatLeftACheckpointOfTheLastStep) {
  auto process = Train(3, {"checkpoint.every_steps=1000"});
  ASSERT_TRUE(WaitForStep(10)) << process->Log();
  process->Signal(SIGTERM);
  EXPECT_EQ(process->Wait(30).value_or(-1), 143) << process->Log();
  const int lines = Lines();
  process = Train(2, {"checkpoint.every_steps=1000"});
  EXPECT_EQ(process->Wait(120).value_or(-1), 0) << process->Log();
  EXPECT_THAT(process->Log(), HasSubstr("world of 2 after step " + std::to_string(lines)));
  EXPECT_TRUE(EqualBits());
}

TEST_F(Resume, SaysThatTheTokenFilesAreOthers) {
  const fs::path copy = Run() + ".bin";
  fs::copy_file(stage_->Path("train.bin"), copy);
  const std::vector<std::string> settings{"checkpoint.every_steps=2", "data.train=[" + copy.string() + "]"};
  auto process = Train(1, settings);
  ASSERT_TRUE(WaitForStep(5)) << process->Log();
  KillAll(*process);
  {
    std::fstream file(copy, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-2, std::ios::end);  // the low byte of the last token
    const char other = static_cast<char>(file.get() ^ 1);
    file.seekp(-2, std::ios::end);
    file.put(other);
  }
  process = Train(2, settings);
  EXPECT_EQ(process->Wait(120).value_or(-1), 0) << process->Log();
  EXPECT_THAT(process->Log(), HasSubstr("warning: the token files are not those that step-"));
}

// The process dies at one point of a save after the other. What it goes on from is the checkpoint that was being made
// or the one before, never a mixture: that would show in the bits.
TEST_F(Resume, AfterACrashAtEveryKindOfPointOfASave) {
  const std::vector<std::string> points{
      "fence.claim.before",      "local.temporary.after:3",        "local.reserve.after:4",  "local.write.before:4",
      "local.write.after:5",     "local.fsync.before:6",           "local.fsync.after:7",    "local.rename.before:5",
      "local.rename.after:6",    "local.fsync_directory.before:8", "commit.model.before:2",  "commit.manifest.before:3",
      "commit.manifest.after:2", "local.fsync_directory.after:15", "delete.manifest.before", "delete.manifest.after",
      "delete.file.after:2",     "local.delete.after:4",           "local.rmdir.before",     "fence.claim.after"};
  const std::vector<std::string> settings{"checkpoint.every_steps=1", "checkpoint.keep_last=1"};
  for (const std::string& point : points) {
    const auto process = Train(1, settings, point);
    ASSERT_EQ(process->Wait(60).value_or(-1), 128 + SIGKILL) << point << "\n" << process->Log();
  }
  EXPECT_LT(Lines(), 120);
  const auto process = Train(2, settings);
  EXPECT_EQ(process->Wait(120).value_or(-1), 0) << process->Log();
  EXPECT_EQ(Lines(), 120);
  EXPECT_TRUE(EqualBits());
}

TEST_F(Resume, StateThatNobodyHoldsComesFromTheNewestCheckpoint) {
  const auto process =
      Train(3, {"checkpoint.every_steps=5", "parallel.mirrors=0", "elastic.lost_state_timeout_ms=300"});
  ASSERT_TRUE(WaitForStep(20)) << process->Log();
  const RunView view = Look(Run());
  ASSERT_EQ(view.workers.size(), 3u);
  kill(view.workers[1].pid, SIGKILL);
  EXPECT_EQ(process->Wait(120).value_or(-1), 0) << process->Log();
  EXPECT_EQ(Events(Run(), "rewind").size(), 1u) << process->Log();
  EXPECT_EQ(Lines(), 120);
  EXPECT_TRUE(EqualBits());
}

TEST_F(Resume, ADamagedCheckpointIsNamedAndTheOneBeforeIsUsed) {
  auto process = Train(2, {"checkpoint.every_steps=5", "checkpoint.keep_last=3"});
  ASSERT_TRUE(WaitForStep(30)) << process->Log();
  KillAll(*process);
  std::string newest;
  for (const auto& entry : fs::directory_iterator(Run() + "/checkpoints")) {
    const bool whole = fs::exists(entry.path() / "manifest.json");
    if (whole) newest = std::max(newest, entry.path().filename().string());
  }
  const std::string shard = Run() + "/checkpoints/" + newest + "/shard-0-of-2.h5";
  std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(fs::file_size(shard) / 2));
  const char byte = static_cast<char>(file.peek() ^ 1);
  file.seekp(static_cast<std::streamoff>(fs::file_size(shard) / 2));
  file.put(byte);
  file.close();
  process = Train(3, {"checkpoint.every_steps=5"});
  EXPECT_EQ(process->Wait(120).value_or(-1), 0) << process->Log();
  ASSERT_EQ(Events(Run(), "checkpoint_rejected").size(), 1u) << process->Log();
  EXPECT_EQ(Events(Run(), "checkpoint_rejected")[0]["name"], newest);
  EXPECT_TRUE(EqualBits());
}

// The process dies right after its first checkpoint on the new branch, while those it has given up are still there.
TEST_F(Resume, AtAnEarlierStepGivesUpWhatWasDoneAfterIt) {
  const std::vector<std::string> settings{"checkpoint.every_steps=5", "checkpoint.keep_last=10"};
  auto process = Train(1, settings, "commit.manifest.after:6");
  ASSERT_EQ(process->Wait(60).value_or(-1), 128 + SIGKILL) << process->Log();
  EXPECT_GE(Lines(), 30);
  process = Train(1, settings, "commit.manifest.after:1", {"--resume", "10"});
  ASSERT_EQ(process->Wait(60).value_or(-1), 128 + SIGKILL) << process->Log();
  EXPECT_THAT(process->Log(), HasSubstr("checkpoint  step-0000000010"));
  EXPECT_LT(Lines(), 30);
  process = Train(2, {"checkpoint.every_steps=5", "checkpoint.keep_last=1"});
  EXPECT_EQ(process->Wait(120).value_or(-1), 0) << process->Log();
  EXPECT_THAT(process->Log(), HasSubstr("checkpoint  step-0000000015"));
  EXPECT_THAT(process->Log(), HasSubstr("step-0000000030-g1000001: given up"));
  EXPECT_EQ(Lines(), 120);
  EXPECT_TRUE(EqualBits());
  int left = 0;
  for (const auto& entry : fs::directory_iterator(Run() + "/checkpoints")) left += entry.is_directory() ? 1 : 0;
  EXPECT_EQ(left, 1) << "what was given up goes";
}

TEST_F(Resume, OverwritingSaysWhatBecomesOfCheckpointsElsewhere) {
  const std::vector<std::string> settings{"checkpoint.every_steps=50", "checkpoint.directory=" + Run() + ".ck"};
  auto process = Train(1, settings);
  ASSERT_EQ(process->Wait(120).value_or(-1), 0) << process->Log();
  process = Train(1, settings, "", {"--overwrite"});
  EXPECT_EQ(process->Wait(60).value_or(-1), 1);
  EXPECT_THAT(process->Log(), HasSubstr("--resume never to give them up"));
  EXPECT_EQ(Lines(), 120) << "nothing is changed";
  process = Train(2, settings, "", {"--overwrite", "--resume", "never"});
  EXPECT_EQ(process->Wait(120).value_or(-1), 0) << process->Log();
  EXPECT_EQ(Events(Run(), "checkpoint_failed").size(), 0u) << process->Log();
  EXPECT_EQ(Lines(), 120);
  EXPECT_TRUE(EqualBits());
  EXPECT_EQ(RunBinary({"ckpt", "verify", Run() + ".ck", "--all"}, Run() + ".verify"), 0);
  for (const auto& entry : fs::directory_iterator(Run() + ".ck")) {
    EXPECT_THAT(entry.path().filename().string(), testing::Not(HasSubstr("-g1000001"))) << "of the run overwritten";
  }
}

/// From now on the files of a process are as on a disk that is full, or has room again.
void LimitFiles(int pid, rlim_t bytes) {
  rlimit limit{};
  ASSERT_EQ(prlimit(pid, RLIMIT_FSIZE, nullptr, &limit), 0);
  limit.rlim_cur = std::min(bytes, limit.rlim_max);
  ASSERT_EQ(prlimit(pid, RLIMIT_FSIZE, &limit, nullptr), 0);
}

TEST_F(Resume, AFullDiskPausesTheRunUntilThereIsRoom) {
  const auto process = Train(2, {"checkpoint.every=never"});
  ASSERT_TRUE(WaitForStep(10)) << process->Log();
  LimitFiles(process->pid(), 1000);
  Sleep(1000);
  const int lines = Lines();
  Sleep(1000);
  EXPECT_EQ(Lines(), lines) << "it is not paused";
  EXPECT_TRUE(process->Running());
  LimitFiles(process->pid(), RLIM_INFINITY);
  EXPECT_EQ(process->Wait(120).value_or(-1), 0) << process->Log();
  EXPECT_EQ(Lines(), 120);
  EXPECT_TRUE(EqualBits());
}

TEST_F(Resume, ASigtermEndsARunThatAFullDiskHasPaused) {
  for (const int workers : {1, 2}) {
    const auto process = Train(workers, {"checkpoint.every=never"}, "", {"--overwrite"});
    ASSERT_TRUE(WaitForStep(5)) << process->Log();
    LimitFiles(process->pid(), 1000);
    Sleep(1000);
    process->Signal(SIGTERM);
    EXPECT_EQ(process->Wait(30).value_or(-1), 1) << process->Log();
    EXPECT_TRUE(ProcessesWith(Run()).empty());
  }
}

// The worker that saves the model cannot write: another one does.
TEST_F(Resume, AFullDiskOfOneHostDoesNotEndTheRun) {
  const auto process = Train(3, {"checkpoint.every_steps=100"});
  ASSERT_TRUE(WaitForStep(10)) << process->Log();
  const RunView view = Look(Run());
  ASSERT_EQ(view.workers.size(), 3u);
  ASSERT_EQ(view.workers[0].rank, 0);
  LimitFiles(view.workers[0].pid, 1000);
  EXPECT_EQ(process->Wait(120).value_or(-1), 0) << process->Log();
  EXPECT_TRUE(fs::exists(Run() + "/model/model.safetensors"));
  EXPECT_TRUE(EqualBits());
}

TEST_F(Resume, ACoordinatorOfARunThatIsDoneTellsThoseWhoHaveNotHeardOfIt) {
  const std::string log = Run() + ".coordinator";
  EXPECT_EQ(RunBinary({"coordinator", stage_->config(), "--run-dir", stage_->undisturbed(), "--listen", "127.0.0.1:0"},
                      log, 60),
            0);
  std::ifstream file(log);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(text, HasSubstr("all 120 steps are done"));
}

TEST_F(Resume, ASecondRunInTheSameDirectoryIsRefused) {
  const auto process = Train(1, {"checkpoint.every_steps=50"});
  ASSERT_TRUE(WaitForStep(1));
  EXPECT_EQ(RunBinary({"train", stage_->config(), "--run-dir", Run()}, Run() + ".second"), 1);
  std::ifstream log(Run() + ".second");
  const std::string text{std::istreambuf_iterator<char>(log), {}};
  EXPECT_THAT(text, HasSubstr("is in use by process"));
  EXPECT_EQ(process->Wait(120).value_or(-1), 0);
  EXPECT_TRUE(EqualBits());
}

TEST_F(Resume, WithoutACheckpointItSaysSoAndChangesNothing) {
  auto process = Train(2, {"checkpoint.every=never"});
  ASSERT_TRUE(WaitForStep(5)) << process->Log();
  KillAll(*process);
  const int lines = Lines();
  process = Train(2, {"checkpoint.every=never"});
  EXPECT_EQ(process->Wait(60).value_or(-1), 1);
  EXPECT_THAT(process->Log(), HasSubstr("has no checkpoint to go on from"));
  EXPECT_EQ(Lines(), lines);
}

}  // namespace
}  // namespace holdfast::chaos
