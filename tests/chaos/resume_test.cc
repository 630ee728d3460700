// Proves that a run which was stopped by any means resumes from its newest checkpoint with other workers and another
// sharding strategy as if nothing had been: every line of metrics.jsonl stands there once, with the bits of the run
// that was never stopped. Also that state which nobody holds any more comes from the newest checkpoint, and that of two
// runs on one directory the second is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/chaos/chaos_run.h"

namespace holdfast::chaos {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
namespace fs = std::filesystem;

class Resume : public StageTest {
 protected:
  static std::unique_ptr<LoggedProcess> Train(int workers, const std::vector<std::string>& settings,
                                              const std::string& crash = "",
                                              const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments{"train", stage_->config(), "--workers", std::to_string(workers), "--run-dir",
                                       Run()};
    for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    arguments.insert(arguments.end(), more.begin(), more.end());
    std::vector<std::pair<std::string, std::string>> environment{{"HOLDFAST_TEST_SLOWDOWN_MS", "2"}};
    if (!crash.empty()) environment.emplace_back("HOLDFAST_CRASH_POINT", crash);
    return std::make_unique<LoggedProcess>(arguments, Run() + ".log", environment);
  }
  /// The same where files may have 12,000 bytes, as on a disk that is full by then: some forty lines of its metrics,
  /// the longest of them. It is limited from the beginning, or it might be over before.
  static std::unique_ptr<LoggedProcess> TrainWithLittleRoom(int workers, const std::vector<std::string>& settings) {
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit little{12'000, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &little);
    auto process = Train(workers, settings);
    setrlimit(RLIMIT_FSIZE, &before);
    return process;
  }
  /// The same until some steps past what was done, which is then the end of the run.
  static void ExpectToGoOn(int workers, std::vector<std::string> settings) {
    const int64_t steps = CommittedSteps(Run()) + 25;
    settings.push_back("train.steps=" + std::to_string(steps));
    EXPECT_EQ(Train(workers, settings)->ExitCode(), 0);
    EXPECT_EQ(CommittedSteps(Run()), steps);
    EXPECT_TRUE(stage_->HasUndisturbedBits(Run()));
  }
};

struct World {
  int workers;
  std::string sharding;
};

TEST_F(Resume, AfterKillingEverythingAgainAndAgainInOtherWorldsEachTime) {
  const char* replay = std::getenv("HOLDFAST_CHAOS_SEED");
  const uint64_t seed = replay != nullptr ? std::strtoull(replay, nullptr, 10) : std::random_device{}();
  std::printf("replay with HOLDFAST_CHAOS_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  const std::vector<World> worlds{{3, "full_shard"}, {1, "full_shard"}, {4, "shard_grad_op"}, {2, "no_shard"}};
  for (const World& world : worlds) {
    const auto process = Train(world.workers, {"checkpoint.every_steps=3", "parallel.sharding=" + world.sharding});
    const int64_t steps = CommittedSteps(Run()) + static_cast<int64_t>(8 + random() % 14);
    ASSERT_TRUE(WaitForStep(*process, Run(), steps));
    ASSERT_TRUE(WaitForEvents(*process, Run(), "checkpoint"));
    Sleep(static_cast<int>(random() % 60));
    ASSERT_TRUE(KillAll(*process, Run()));
  }
  ExpectToGoOn(5, {"checkpoint.every_steps=3"});
  EXPECT_EQ(RunBinary({"ckpt", "verify", Run(), "--all"}, Run() + ".verify.log"), 0);
}

TEST_F(Resume, AfterASigtermThatLeftACheckpointOfTheLastStep) {
  const auto process = Train(3, {"checkpoint.every_steps=1000000"});
  ASSERT_TRUE(WaitForStep(*process, Run(), 10));
  process->Signal(SIGTERM);
  EXPECT_EQ(process->ExitCode(), 143);
  const int64_t steps = CommittedSteps(Run());
  ExpectToGoOn(2, {"checkpoint.every_steps=1000000"});
  EXPECT_THAT(process->Log(), HasSubstr("world of 2 after step " + std::to_string(steps)));
}

TEST_F(Resume, SaysThatTheTokenFilesAreOthers) {
  const fs::path copy = Run() + ".bin";
  fs::copy_file(stage_->Path("train.bin"), copy);
  const std::vector<std::string> settings{"checkpoint.every_steps=2", "data.train=[" + copy.string() + "]"};
  const auto process = Train(1, settings);
  ASSERT_TRUE(WaitForEvents(*process, Run(), "checkpoint"));
  ASSERT_TRUE(KillAll(*process, Run()));
  {
    std::fstream file(copy, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-2, std::ios::end);  // the low byte of the last token
    const char other = static_cast<char>(file.get() ^ 1);
    file.seekp(-2, std::ios::end);
    file.put(other);
  }
  const auto resumed = Train(2, settings);
  ASSERT_TRUE(WaitForStep(*resumed, Run(), CommittedSteps(Run()) + 10));
  resumed->Signal(SIGTERM);
  EXPECT_EQ(resumed->ExitCode(), 143);
  EXPECT_THAT(resumed->Log(), HasSubstr("warning: the token files are not those that step-"));
}

// The process dies at one point of a save after the other. What it resumes from is the checkpoint that was being made
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
    ASSERT_EQ(process->ExitCode(), 128 + SIGKILL) << point;
  }
  ExpectToGoOn(2, settings);
}

TEST_F(Resume, StateThatNobodyHoldsComesFromTheNewestCheckpoint) {
  const auto process = Train(3, {"checkpoint.every_steps=5", "parallel.mirrors=0", "elastic.lost_state_timeout_ms=300",
                                 "elastic.heartbeat_timeout_ms=15000"});
  ASSERT_TRUE(WaitForEvents(*process, Run(), "checkpoint"));
  int pid = -1;
  ASSERT_TRUE(WaitUntil(*process, Run(), [&](const RunView& view) {
    if (view.world_size == 3) pid = view.workers.at(1).pid;
    return view.world_size == 3;
  }));
  kill(pid, SIGKILL);
  ASSERT_TRUE(WaitForEvents(*process, Run(), "rewind"));
  ASSERT_TRUE(WaitForStep(*process, Run(), CommittedSteps(Run()) + 20));
  process->Signal(SIGTERM);
  EXPECT_EQ(process->ExitCode(), 143);
  EXPECT_EQ(Events(Run(), "rewind").size(), 1u);
  EXPECT_TRUE(stage_->HasUndisturbedBits(Run()));
}

TEST_F(Resume, ADamagedCheckpointIsNamedAndTheOneBeforeIsUsed) {
  const auto process = Train(2, {"checkpoint.every_steps=5", "checkpoint.keep_last=3"});
  ASSERT_TRUE(WaitForEvents(*process, Run(), "checkpoint", 2));
  ASSERT_TRUE(KillAll(*process, Run()));
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
  ExpectToGoOn(3, {"checkpoint.every_steps=5"});
  ASSERT_EQ(Events(Run(), "checkpoint_rejected").size(), 1u);
  EXPECT_EQ(Events(Run(), "checkpoint_rejected")[0]["name"], newest);
}

// The process dies right after its first checkpoint on the new branch, while those it has given up are still there.
TEST_F(Resume, AtAnEarlierStepGivesUpWhatWasDoneAfterIt) {
  const std::vector<std::string> settings{"checkpoint.every_steps=5", "checkpoint.keep_last=10"};
  EXPECT_EQ(Train(1, settings, "commit.manifest.after:6")->ExitCode(), 128 + SIGKILL);
  EXPECT_GE(CommittedSteps(Run()), 30);
  std::vector<std::string> given_up;  // which of them there are depends on how long each took to save
  for (const auto& entry : fs::directory_iterator(Run() + "/checkpoints")) {
    if (fs::exists(entry.path() / "manifest.json")) given_up.push_back(entry.path().filename().string());
  }
  ASSERT_GE(given_up.size(), 3u);
  std::sort(given_up.begin(), given_up.end());
  given_up.erase(given_up.begin());
  const int resumed = std::stoi(given_up.front().substr(std::string("step-").size()));
  given_up.erase(given_up.begin());
  auto process = Train(1, settings, "commit.manifest.after:1", {"--resume", std::to_string(resumed)});
  EXPECT_EQ(process->ExitCode(), 128 + SIGKILL);
  EXPECT_THAT(process->Log(), HasSubstr(absl::StrFormat("checkpoint  step-%010d", resumed)));
  const int end = resumed + 50;
  process = Train(2, {"checkpoint.every_steps=5", "checkpoint.keep_last=1", absl::StrCat("train.steps=", end)});
  EXPECT_EQ(process->ExitCode(), 0);
  EXPECT_THAT(process->Log(), HasSubstr(absl::StrFormat("checkpoint  step-%010d", resumed + 5)));
  for (const std::string& name : given_up) EXPECT_THAT(process->Log(), HasSubstr(name + ": excluded"));
  EXPECT_EQ(CommittedSteps(Run()), end);
  EXPECT_TRUE(stage_->HasUndisturbedBits(Run()));
  int left = 0;
  for (const auto& entry : fs::directory_iterator(Run() + "/checkpoints")) left += entry.is_directory() ? 1 : 0;
  EXPECT_EQ(left, 1) << "what was given up goes";
}

TEST_F(Resume, OverwritingSaysWhatBecomesOfCheckpointsElsewhere) {
  const std::vector<std::string> settings{"checkpoint.every_steps=20", "checkpoint.directory=" + Run() + ".ck",
                                          "train.steps=50"};
  EXPECT_EQ(Train(1, settings)->ExitCode(), 0);
  auto process = Train(1, settings, "", {"--overwrite"});
  EXPECT_EQ(process->ExitCode(), 1);
  EXPECT_THAT(process->Log(), HasSubstr("--resume never to ignore them"));
  EXPECT_EQ(CommittedSteps(Run()), 50) << "nothing is changed";
  EXPECT_EQ(Train(2, settings, "", {"--overwrite", "--resume", "never"})->ExitCode(), 0);
  EXPECT_EQ(Events(Run(), "checkpoint_failed").size(), 0u);
  EXPECT_EQ(CommittedSteps(Run()), 50);
  EXPECT_TRUE(stage_->HasUndisturbedBits(Run()));
  EXPECT_EQ(RunBinary({"ckpt", "verify", Run() + ".ck", "--all"}, Run() + ".verify.log"), 0);
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

/// From now on everybody of a run has room, but for one. Workers first, who need it as soon as the run goes on.
void MakeRoom(const LoggedProcess& process, const std::string& run, int but_for = -1) {
  for (const int pid : ProcessesWith(run)) {
    if (pid != process.pid() && pid != but_for) LimitFiles(pid, RLIM_INFINITY);
  }
  LimitFiles(process.pid(), RLIM_INFINITY);
}

bool WaitUntilPaused(LoggedProcess& process) {
  return WaitFor(process, [&] { return process.Log().find("paused, retrying") != std::string::npos; });
}

TEST_F(Resume, AFullDiskPausesTheRunUntilThereIsRoom) {
  const auto process = TrainWithLittleRoom(2, {"checkpoint.every=never", "train.steps=80"});
  ASSERT_TRUE(WaitUntilPaused(*process));
  EXPECT_TRUE(process->Running());
  EXPECT_LT(CommittedSteps(Run()), 80);
  MakeRoom(*process, Run());
  EXPECT_EQ(process->ExitCode(), 0);
  EXPECT_EQ(CommittedSteps(Run()), 80);
  EXPECT_TRUE(stage_->HasUndisturbedBits(Run()));
}

TEST_F(Resume, ASigtermEndsARunThatAFullDiskHasPaused) {
  for (const int workers : {1, 2}) {
    const auto process = TrainWithLittleRoom(workers, {"checkpoint.every=never"});
    ASSERT_TRUE(WaitUntilPaused(*process));
    process->Signal(SIGTERM);
    EXPECT_EQ(process->ExitCode(), 1);
    EXPECT_THAT(process->Log(), HasSubstr("stopped by SIGTERM while the run was paused"));
    EXPECT_TRUE(ProcessesWith(Run()).empty());
    fs::remove(Run() + ".log");
    fs::remove_all(Run());  // or the next one's first lines would be taken from it
  }
}

// Before there is a world, and while agent and workers are being started.
TEST_F(Resume, ASigtermEndsARunThatIsJustStarting) {
  for (int i = 0; i < 3; ++i) {
    const auto process = Train(2, {"checkpoint.every=never"}, "", {"--overwrite"});
    ASSERT_TRUE(WaitFor(*process, [&] { return fs::exists(Run() + "/coordinator.address"); }));
    process->Signal(SIGTERM);
    EXPECT_EQ(process->ExitCode(), 143);
    EXPECT_TRUE(ProcessesWith(Run()).empty());
    fs::remove(Run() + "/coordinator.address");
  }
}

// The worker that saves the model cannot write: another one does. The run is paused while that disk is filled.
TEST_F(Resume, AFullDiskOfOneHostDoesNotEndTheRun) {
  const auto process = TrainWithLittleRoom(3, {"checkpoint.every_steps=1000", "train.steps=60", kLongHeartbeats});
  ASSERT_TRUE(WaitUntilPaused(*process));
  int saves = -1;
  ASSERT_TRUE(WaitUntil(*process, Run(), [&](const RunView& view) {
    for (const WorkerView& worker : view.workers) saves = worker.rank == 0 ? worker.pid : saves;
    return view.world_size == 3 && saves > 0;
  }));
  LimitFiles(saves, 1000);
  MakeRoom(*process, Run(), saves);
  EXPECT_EQ(process->ExitCode(), 0);
  EXPECT_GE(Events(Run(), "step_failed").size(), 1u);
  EXPECT_TRUE(fs::exists(Run() + "/model/model.safetensors"));
  EXPECT_EQ(CommittedSteps(Run()), 60);
  EXPECT_TRUE(stage_->HasUndisturbedBits(Run()));
}

TEST_F(Resume, ACoordinatorOfARunThatIsDoneTellsThoseWhoHaveNotHeardOfIt) {
  ASSERT_EQ(Train(1, {"train.steps=5"})->ExitCode(), 0);
  LoggedProcess coordinator(
      {"coordinator", stage_->config(), "--set", "train.steps=5", "--run-dir", Run(), "--listen", "127.0.0.1:0"},
      Run() + ".coordinator.log");
  EXPECT_EQ(coordinator.ExitCode(), 0);
  EXPECT_THAT(coordinator.Log(), EndsWith("\nall 5 steps are done\n"));
  EXPECT_EQ(Events(Run(), "run_finished").size(), 1u) << "of the coordinator before";
}

TEST_F(Resume, ASecondRunInTheSameDirectoryIsRefused) {
  const auto process = Train(1, {});
  ASSERT_TRUE(WaitForStep(*process, Run(), 1));
  EXPECT_EQ(RunBinary({"train", stage_->config(), "--run-dir", Run()}, Run() + ".second.log"), 75);
  std::ifstream log(Run() + ".second.log");
  const std::string text{std::istreambuf_iterator<char>(log), {}};
  EXPECT_THAT(text, HasSubstr("is in use by process"));
  ASSERT_TRUE(WaitForStep(*process, Run(), CommittedSteps(Run()) + 10));
  process->Signal(SIGTERM);
  EXPECT_EQ(process->ExitCode(), 143);
  EXPECT_TRUE(stage_->HasUndisturbedBits(Run()));
}

TEST_F(Resume, WithoutACheckpointItSaysSoAndChangesNothing) {
  const auto process = Train(2, {"checkpoint.every=never"});
  ASSERT_TRUE(WaitForStep(*process, Run(), 5));
  ASSERT_TRUE(KillAll(*process, Run()));
  const int64_t steps = CommittedSteps(Run());
  EXPECT_EQ(Train(2, {"checkpoint.every=never"})->ExitCode(), 1);
  EXPECT_THAT(process->Log(), HasSubstr("has no checkpoint to resume from"));
  EXPECT_EQ(CommittedSteps(Run()), steps);
}

}  // namespace
}  // namespace holdfast::chaos
