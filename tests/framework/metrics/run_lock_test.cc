// Proves that of two processes with one run directory the second is refused while the first holds the lock, and that
// once it has lapsed or is taken away the first one finds out, and what it still writes reaches nobody. While the
// directory is missing, it cannot be told whose the lock is.

#include "framework/metrics/run_lock.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/files.h"
#include "framework/metrics/run_directory.h"
#include "framework/storage/atomic_file.h"
#include "tests/framework/base/temporary_directory.h"
#include "tests/framework/storage/syscalls.h"

namespace holdfast {
namespace {

class RunLockTest : public testing::Test {
 protected:
  static std::string Line(int64_t step) {
    StepMetrics line;
    line.step = step;
    return line.ToJson();
  }
  RunLock MustTake() const {
    auto lock = RunLock::Take(directory_);
    EXPECT_TRUE(lock.ok()) << lock.status();
    return *std::move(lock);
  }
  /// The directory is elsewhere, and `lock` cannot tell whose it is.
  void MoveAwayFrom(const RunLock& lock) const {
    std::filesystem::rename(directory_.root(), elsewhere_);
    EXPECT_EQ(lock.Check().code(), absl::StatusCode::kUnavailable) << lock.Check();
  }
  size_t Steps() const {
    const auto steps = directory_.ReadMetrics();
    return steps.ok() ? steps->size() : 999;
  }
  const TemporaryDirectory root_;
  const RunDirectory directory_{root_ / "run"};
  const std::string elsewhere_ = root_ / "elsewhere";
};

// Checkpoints are durable below a directory that must be durable itself.
TEST_F(RunLockTest, ANewRunDirectorySurvivesALossOfPower) {
  const std::string root = std::filesystem::canonical(root_.path());
  const SyscallWatch watch;
  ASSERT_TRUE(RunLock::Take(RunDirectory(root + "/runs/a")).ok());
  ASSERT_TRUE(RunDirectory(root + "/others/b").Create(/*overwrite=*/false).ok());
  EXPECT_THAT(watch.Calls(), testing::IsSupersetOf({"fsync " + root, "fsync " + root + "/runs", "fsync " + root,
                                                    "fsync " + root + "/others"}));
}

TEST_F(RunLockTest, TheSecondIsRefusedAndToldWhoHasIt) {
  const RunLock first = MustTake();
  EXPECT_TRUE(first.Check().ok());
  const auto second = RunLock::Take(directory_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAborted);
  EXPECT_NE(second.status().message().find(absl::StrCat("in use by process ", getpid(), " on ")), std::string::npos)
      << second.status();
  EXPECT_TRUE(first.Check().ok());
}

// As when the host of the first is cut off from a shared file system for so long that the lock is given to others.
TEST_F(RunLockTest, WhoseLockHasLapsedFindsOut) {
  const RunLock first = MustTake();
  std::filesystem::copy(directory_.lock(), directory_.lock() + ".copy");
  std::filesystem::rename(directory_.lock() + ".copy", directory_.lock());
  EXPECT_TRUE(first.Check().ok()) << first.Check();  // nobody else has taken it yet
  const RunLock second = MustTake();
  EXPECT_EQ(first.Check().code(), absl::StatusCode::kFailedPrecondition) << first.Check();
  EXPECT_TRUE(second.Check().ok()) << second.Check();
}

// Somebody may have taken it since, and lost it in the same way.
TEST_F(RunLockTest, WhoseFileIsRemovedHasItNoLonger) {
  const RunLock first = MustTake();
  std::filesystem::remove(directory_.lock());
  EXPECT_EQ(first.Check().code(), absl::StatusCode::kFailedPrecondition) << first.Check();
}

// As by mv, or by an automounter: nobody has taken anything.
TEST_F(RunLockTest, WhileItsDirectoryIsMissingNobodyCanTellAndThenItIsHeldAgain) {
  const RunLock lock = MustTake();
  for (int i = 0; i < 2; ++i) {
    MoveAwayFrom(lock);
    EXPECT_EQ(RunLock::Take(RunDirectory(elsewhere_)).status().code(), absl::StatusCode::kAborted);
    EXPECT_FALSE(std::filesystem::exists(directory_.root()));
    std::filesystem::rename(elsewhere_, directory_.root());
    EXPECT_TRUE(lock.Check().ok()) << lock.Check();
  }
}

TEST_F(RunLockTest, WhoseDirectoryIsRemovedHasItNoLonger) {
  const RunLock lock = MustTake();
  std::filesystem::remove_all(directory_.root());
  EXPECT_EQ(lock.Check().code(), absl::StatusCode::kFailedPrecondition) << lock.Check();
}

// Made by a worker that starts, say: nobody has taken anything.
TEST_F(RunLockTest, ADirectoryWithoutTheLockInThePlaceOfItsOwnIsSaidWithWhatToDo) {
  const RunLock lock = MustTake();
  MoveAwayFrom(lock);
  std::filesystem::create_directory(directory_.root());
  const absl::Status status = lock.Check();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_NE(status.message().find("remove that one and put the run's back"), absl::string_view::npos) << status;
  std::filesystem::remove(directory_.root());
  std::filesystem::rename(elsewhere_, directory_.root());
  EXPECT_TRUE(lock.Check().ok()) << lock.Check();
}

TEST_F(RunLockTest, WhoHasSeenItIsToldWhetherItIsMissingOrRemoved) {
  ASSERT_TRUE(RunLock::Take(directory_).ok());
  const FileDescriptor seen = OpenFile(directory_.lock(), O_RDONLY);
  std::filesystem::rename(directory_.root(), elsewhere_);
  EXPECT_TRUE(absl::IsUnavailable(RunLock::WhyNotThere(directory_, seen)));
  EXPECT_TRUE(absl::IsUnavailable(RunLock::WhyNotThere(directory_, FileDescriptor())));
  std::filesystem::create_directory(directory_.root());
  EXPECT_TRUE(absl::IsUnavailable(RunLock::WhyNotThere(directory_, seen)));
  EXPECT_TRUE(absl::IsFailedPrecondition(RunLock::WhyNotThere(directory_, FileDescriptor())));
  std::filesystem::remove_all(elsewhere_);
  EXPECT_TRUE(absl::IsFailedPrecondition(RunLock::WhyNotThere(directory_, seen)));
}

TEST_F(RunLockTest, WhatIsTakenWhileItsDirectoryIsMissingIsAnothers) {
  const RunLock lock = MustTake();
  MoveAwayFrom(lock);
  const RunDirectory moved(elsewhere_);
  const auto other = RunLock::TakeFrom(moved, *RunLock::Read(moved));
  ASSERT_TRUE(other.ok()) << other.status();
  std::filesystem::rename(elsewhere_, directory_.root());
  EXPECT_EQ(lock.Check().code(), absl::StatusCode::kFailedPrecondition) << lock.Check();
}

// What its owner still appends goes into files of the directory that was moved away, which nobody reads.
TEST_F(RunLockTest, ACopyOfItsDirectoryIsNotTheOneThatWasMovedAway) {
  const RunLock lock = MustTake();
  MoveAwayFrom(lock);
  std::filesystem::copy(elsewhere_, directory_.root(), std::filesystem::copy_options::recursive);
  EXPECT_EQ(lock.Check().code(), absl::StatusCode::kFailedPrecondition) << lock.Check();
}

TEST_F(RunLockTest, OthersReadWhatItsOwnerSaysLast) {
  EXPECT_EQ(RunLock::Read(directory_).status().code(), absl::StatusCode::kNotFound);
  const RunLock lock = MustTake();
  EXPECT_EQ(lock.previous(), LockText());
  const auto fresh = RunLock::Read(directory_);
  ASSERT_TRUE(fresh.ok()) << fresh.status();
  EXPECT_EQ(fresh->words, "");
  ASSERT_TRUE(lock.Say("a long sentence\n").ok());
  ASSERT_TRUE(lock.Say("short\n").ok());
  const auto text = RunLock::Read(directory_);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->owner, fresh->owner);
  EXPECT_EQ(text->words, "short\n");
  EXPECT_EQ(text->Name().find(absl::StrCat("process ", getpid(), " on ")), 0u) << text->Name();
  EXPECT_TRUE(lock.Check().ok()) << lock.Check();
}

TEST_F(RunLockTest, WhoComesNextReadsWhatTheLastOneSaid) {
  LockText said;
  {
    const RunLock lock = MustTake();
    ASSERT_TRUE(lock.Say("the end\n").ok());
    said = *RunLock::Read(directory_);
  }
  const RunLock next = MustTake();
  EXPECT_EQ(next.previous(), said);
  EXPECT_NE(RunLock::Read(directory_)->owner, said.owner) << "the same process, but not the same taking";
}

// As from a process that is frozen and still has the lock of the file.
TEST_F(RunLockTest, ItIsTakenFromAnOwnerThatIsSilent) {
  const RunLock silent = MustTake();
  ASSERT_TRUE(silent.Say("1\n").ok());
  const LockText seen = *RunLock::Read(directory_);
  const auto next = RunLock::TakeFrom(directory_, seen);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_TRUE(next->Check().ok()) << next->Check();
  EXPECT_EQ(next->previous(), seen);
  EXPECT_EQ(silent.Check().code(), absl::StatusCode::kFailedPrecondition) << silent.Check();
  EXPECT_EQ(RunLock::Take(directory_).status().code(), absl::StatusCode::kAborted);
  // What it says when it goes on is not what the run's owner says.
  ASSERT_TRUE(silent.Say("2\n").ok());
  EXPECT_EQ(RunLock::Read(directory_)->words, "");
  EXPECT_TRUE(next->Check().ok()) << next->Check();
}

TEST_F(RunLockTest, ItIsNotTakenFromAnOwnerThatSpeaks) {
  const RunLock first = MustTake();
  ASSERT_TRUE(first.Say("1\n").ok());
  const LockText seen = *RunLock::Read(directory_);
  ASSERT_TRUE(first.Say("2\n").ok());
  EXPECT_EQ(RunLock::TakeFrom(directory_, seen).status().code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(first.Check().ok()) << first.Check();
}

TEST_F(RunLockTest, OfTwoThatTakeItFromASilentOwnerOneHasIt) {
  const RunLock silent = MustTake();
  const LockText seen = *RunLock::Read(directory_);
  const auto one = RunLock::TakeFrom(directory_, seen);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(RunLock::TakeFrom(directory_, seen).status().code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(one->Check().ok()) << one->Check();
}

// Nothing but the lock is left in the directory, whoever took it from whom.
TEST_F(RunLockTest, LeavesNoOtherFiles) {
  { MustTake(); }
  const RunLock lock = MustTake();
  ASSERT_TRUE(RunLock::TakeFrom(directory_, *RunLock::Read(directory_)).ok());
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory_.root())) names.push_back(entry.path());
  EXPECT_EQ(names, std::vector<std::string>{directory_.lock()});
}

// As the lock of a package manager, in a directory that was named by mistake.
TEST_F(RunLockTest, TheLockOfAnotherProgramIsNotReplaced) {
  std::filesystem::create_directory(directory_.root());
  ASSERT_TRUE(WriteFileAtomically(directory_.lock(), "4711\n").ok());
  const absl::Status taken = RunLock::Take(directory_).status();
  EXPECT_EQ(taken.code(), absl::StatusCode::kAlreadyExists) << taken;
  EXPECT_EQ(*ReadFile(directory_.lock(), 100), "4711\n");
}

TEST_F(RunLockTest, WhatItTookToTakeItIsUndone) {
  const RunDirectory deep(root_ / "runs/a/");
  RunLock::Take(deep)->UndoTake();
  EXPECT_FALSE(std::filesystem::exists(root_ / "runs"));
  {
    const RunLock lock = *RunLock::Take(deep);
    ASSERT_TRUE(WriteFileAtomically(deep.root() + "/file", "").ok());
    lock.UndoTake();
    EXPECT_FALSE(std::filesystem::exists(deep.lock()));
    EXPECT_TRUE(std::filesystem::exists(deep.root() + "/file"));
  }
  { MustTake(); }
  MustTake().UndoTake();
  EXPECT_TRUE(std::filesystem::exists(directory_.lock())) << "it was there before";
}

// Others that start in the same place at once may be refused, and remove the directories that they have made.
TEST_F(RunLockTest, WhatAnotherOneUndoesIsMadeAnew) {
  const SyscallWatch watch({{.name = "fsync", .first = [this] { std::filesystem::remove(directory_.root()); }}});
  const auto lock = RunLock::Take(directory_);
  ASSERT_TRUE(lock.ok()) << lock.status();
  EXPECT_EQ(SyscallWatch::Disturbed(), 1);
  EXPECT_TRUE(lock->Check().ok()) << lock->Check();
}

TEST_F(RunLockTest, WhatAnotherOneHasTakenStays) {
  const RunLock first = MustTake();
  const auto next = RunLock::TakeFrom(directory_, *RunLock::Read(directory_));
  ASSERT_TRUE(next.ok()) << next.status();
  first.UndoTake();
  EXPECT_TRUE(next->Check().ok()) << next->Check();
}

// A process that was killed right before its file became the lock has left it. One that does that now has another.
TEST_F(RunLockTest, WhatKilledProcessesHaveLeftGoesAfterADay) {
  { MustTake(); }
  const std::string old = directory_.lock() + ".0123456789abcdef", young = directory_.lock() + ".fedcba9876543210";
  const std::string anothers = directory_.lock() + ".copy";
  for (const std::string& path : {old, young, anothers}) std::filesystem::copy(directory_.lock(), path);
  const auto two_days_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(48);
  for (const std::string& path : {old, anothers}) std::filesystem::last_write_time(path, two_days_ago);
  const RunLock lock = MustTake();
  EXPECT_FALSE(std::filesystem::exists(old));
  EXPECT_TRUE(std::filesystem::exists(young));
  EXPECT_TRUE(std::filesystem::exists(anothers));
  EXPECT_TRUE(lock.Check().ok()) << lock.Check();
}

TEST_F(RunLockTest, WhatIsWrittenAfterTheTakeOverIsInVain) {
  std::filesystem::create_directory(directory_.root());
  auto old = JsonLinesWriter::Open(directory_.metrics());
  ASSERT_TRUE(old.ok());
  ASSERT_TRUE(old->WriteDurably(Line(1)).ok());
  ASSERT_TRUE(directory_.TakeOver().ok());
  EXPECT_EQ(Steps(), 1u);
  ASSERT_TRUE(old->WriteDurably(Line(2)).ok());
  EXPECT_EQ(Steps(), 1u);
  ASSERT_TRUE(old->CutTo(0).ok());
  EXPECT_EQ(Steps(), 1u);
  auto next = JsonLinesWriter::Open(directory_.metrics());
  ASSERT_TRUE(next.ok());
  ASSERT_TRUE(next->WriteDurably(Line(2)).ok());
  EXPECT_EQ(Steps(), 2u);
}

}  // namespace
}  // namespace holdfast
