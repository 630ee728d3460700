// Proves that a fork of a run has all that the run has, on file systems with links and without, and that neither
// changes the other. This program's own link is used in place of the C library's.

#include "elastic/sweep/fork_run.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

#include "framework/base/files.h"
#include "framework/metrics/run_directory.h"
#include "gtest/gtest.h"
#include "tests/framework/base/temporary_directory.h"

namespace {
bool has_links = true;
}  // namespace

extern "C" int link(const char* from, const char* to) noexcept {
  if (has_links) return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
  errno = EPERM;
  return -1;
}

namespace holdfast {
namespace {

constexpr char kShard[] = "/step-0000000007-g1/shard-0-of-1.h5";

class ForkRunTest : public ::testing::TestWithParam<bool> {
 protected:
  ForkRunTest() {
    has_links = GetParam();
    std::filesystem::create_directories(run_.checkpoints() + "/step-0000000007-g1");
    for (const std::string& file : {run_.config(), run_.metrics(), run_.events(), run_.coordinator_state(),
                                    run_.checkpoints() + kShard, run_.checkpoints() + "/fence-0000000001.json"}) {
      std::ofstream(file) << file;
    }
  }
  ~ForkRunTest() override { has_links = true; }

  const TemporaryDirectory root_;
  const RunDirectory run_{root_ / "run"}, fork_{root_ / "fork"};
};

TEST_P(ForkRunTest, HasAllThatTheRunHas) {
  std::filesystem::create_directory(fork_.root() + ".fork");  // of one that was killed
  std::ofstream(fork_.root() + ".fork/half") << "";
  const absl::Status forked = ForkRun(run_.root(), fork_.root());
  ASSERT_TRUE(forked.ok()) << forked;
  EXPECT_EQ(root_.List(), (std::vector<std::string>{"fork", "run"}));
  size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run_.root())) {
    if (!entry.is_regular_file()) continue;
    ++files;
    const std::string path = entry.path(), copy = fork_.root() + path.substr(run_.root().size());
    EXPECT_EQ(ReadFile(copy, 1000).value_or("none"), path);
  }
  EXPECT_EQ(files, 6U);
  EXPECT_EQ(std::filesystem::hard_link_count(run_.checkpoints() + kShard), GetParam() ? 2U : 1U);
  EXPECT_FALSE(std::filesystem::exists(fork_.root() + "/half"));
}

TEST_P(ForkRunTest, WhatIsAppendedToIsNotShared) {
  ASSERT_TRUE(ForkRun(run_.root(), fork_.root()).ok());
  std::ofstream(fork_.metrics(), std::ios::app) << "more";
  std::filesystem::remove_all(fork_.checkpoints());
  EXPECT_EQ(ReadFile(run_.metrics(), 1000).value_or("none"), run_.metrics());
  EXPECT_EQ(ReadFile(run_.checkpoints() + kShard, 1000).value_or("none"), run_.checkpoints() + kShard);
}

INSTANTIATE_TEST_SUITE_P(FileSystem, ForkRunTest, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "WithLinks" : "WithoutLinks"; });

}  // namespace
}  // namespace holdfast
