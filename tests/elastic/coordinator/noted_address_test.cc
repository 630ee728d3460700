// Proves that the address of a coordinator is there for as long as it leads, also if somebody removes it, and that it
// never stands in the place of another one's.

#include "elastic/coordinator/noted_address.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "framework/base/files.h"
#include "tests/framework/base/temporary_directory.h"

namespace holdfast {
namespace {

class NotedAddressTest : public testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<NotedAddress>> Write() {
    return NotedAddress::Write(path_, "here:1", [this] { return ours_; });
  }
  std::string Noted() const { return ReadFile(path_, 100).value_or("none"); }

  TemporaryDirectory root_;
  const std::string path_ = root_ / "coordinator.address";
  absl::Status ours_;
};

TEST_F(NotedAddressTest, IsThereAsLongAsItsCoordinator) {
  std::ofstream(path_) << "killed:1\n";
  const auto noted = Write();
  ASSERT_TRUE(noted.ok()) << noted.status();
  EXPECT_EQ(Noted(), "here:1\n");
  std::filesystem::remove(path_);
  (*noted)->KeepInPlace();
  EXPECT_EQ(Noted(), "here:1\n") << "agents would not find it, and `status` would call the run ended";
}

TEST_F(NotedAddressTest, GoesWithItsCoordinator) {
  { ASSERT_TRUE(Write().ok()); }
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(NotedAddressTest, OfAnotherStays) {
  {
    const auto noted = Write();
    ASSERT_TRUE(noted.ok()) << noted.status();
    std::ofstream(path_) << "other:1\n";
    ours_ = absl::FailedPreconditionError("process 12 has the run");
    (*noted)->KeepInPlace();
    EXPECT_EQ(Noted(), "other:1\n");
  }
  EXPECT_EQ(Noted(), "other:1\n");
}

// It was frozen when it had seen that it led, and before it wrote. Killed then, it would have left its address for
// good.
TEST_F(NotedAddressTest, OfOneThatNoLongerLeadsIsReplaced) {
  const auto noted = Write();
  ASSERT_TRUE(noted.ok()) << noted.status();
  std::ofstream(path_) << "frozen:1\n";
  (*noted)->KeepInPlace();
  EXPECT_EQ(Noted(), "here:1\n");
}

TEST_F(NotedAddressTest, OfOneThatLostTheRunIsNotWritten) {
  const auto noted = Write();
  ASSERT_TRUE(noted.ok()) << noted.status();
  std::filesystem::remove(path_);
  ours_ = absl::FailedPreconditionError("process 12 has the run");
  (*noted)->KeepInPlace();
  EXPECT_EQ(Noted(), "none");
  EXPECT_TRUE(absl::IsAborted(Write().status())) << "it was frozen while it started";
  EXPECT_EQ(Noted(), "none");
}

TEST_F(NotedAddressTest, WaitsForItsDirectory) {
  const std::string path = root_ / "run/coordinator.address";
  std::filesystem::create_directory(root_ / "run");
  const auto noted = NotedAddress::Write(path, "here:1", [] { return absl::OkStatus(); });
  ASSERT_TRUE(noted.ok()) << noted.status();
  std::filesystem::remove_all(root_ / "run");
  (*noted)->KeepInPlace();
  EXPECT_FALSE(std::filesystem::exists(root_ / "run"));
  std::filesystem::create_directory(root_ / "run");
  (*noted)->KeepInPlace();
  EXPECT_EQ(ReadFile(path, 100).value_or("none"), "here:1\n");
}

}  // namespace
}  // namespace holdfast
