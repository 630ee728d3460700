// Proves that of two processes with one run directory the second is refused while the first holds the lock, and that
// once it has lapsed the first one finds out, and what it still writes reaches nobody.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "framework/metrics/run_directory.h"
#include "tests/framework/base/temporary_directory.h"

namespace holdfast {
namespace {

class RunLockTest : public testing::Test {
 protected:
  static std::string Line(int64_t step) {
    StepMetrics line;
    line.step = step;
    return line.ToJson();
  }
  size_t Steps() const {
    const auto steps = directory_.ReadMetrics();
    return steps.ok() ? steps->size() : 999;
  }
  const TemporaryDirectory root_;
  const RunDirectory directory_{root_.path()};
};

TEST_F(RunLockTest, TheSecondIsRefusedAndToldWhoHasIt) {
  const auto first = RunLock::Take(directory_);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(first->Check().ok());
  const auto second = RunLock::Take(directory_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(second.status().message().find(absl::StrCat("in use by process ", getpid(), " on ")), std::string::npos)
      << second.status();
  EXPECT_TRUE(first->Check().ok());
}

// As when the host of the first is cut off from a shared file system for so long that the lock is given to others.
TEST_F(RunLockTest, WhoseLockHasLapsedFindsOut) {
  const auto first = RunLock::Take(directory_);
  ASSERT_TRUE(first.ok()) << first.status();
  std::filesystem::copy(directory_.lock(), directory_.lock() + ".copy");
  std::filesystem::rename(directory_.lock() + ".copy", directory_.lock());
  EXPECT_TRUE(first->Check().ok()) << first->Check();  // nobody else has taken it yet
  const auto second = RunLock::Take(directory_);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(first->Check().code(), absl::StatusCode::kFailedPrecondition) << first->Check();
  EXPECT_TRUE(second->Check().ok()) << second->Check();
}

// Somebody may have taken it since, and lost it in the same way.
TEST_F(RunLockTest, WhoseFileIsRemovedHasItNoLonger) {
  const auto first = RunLock::Take(directory_);
  ASSERT_TRUE(first.ok()) << first.status();
  std::filesystem::remove(directory_.lock());
  EXPECT_EQ(first->Check().code(), absl::StatusCode::kFailedPrecondition) << first->Check();
}

TEST_F(RunLockTest, WhatIsWrittenAfterTheTakeOverIsInVain) {
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
