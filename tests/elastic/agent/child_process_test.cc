// Proves that the end of a process is seen even if the kernel reaps it, as it does for a parent that ignores SIGCHLD;
// and its last words, whatever became of its log.

#include "elastic/agent/child_process.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "tests/framework/base/temporary_directory.h"

namespace holdfast {
namespace {

TEST(ChildProcess, ItsEndIsSeenWhereSomebodyElseReapsIt) {
  const TemporaryDirectory directory;
  void (*const before)(int) = std::signal(SIGCHLD, SIG_IGN);
  {
    auto child = ChildProcess::Start(
        {.name = "one", .argv = {"/bin/true"}, .environment = {}, .log_path = directory / "log", .input = false});
    ASSERT_TRUE(child.ok()) << child.status();
    std::optional<int> ended;
    for (int i = 0; i < 3000 && !ended.has_value(); ++i) {
      ended = child->TryWait();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ASSERT_TRUE(ended.has_value());
    EXPECT_NE(*ended, 0) << "how it ended is not known";
    EXPECT_LT(child->pid(), 0);
  }
  std::signal(SIGCHLD, before);
}

// A run that replaces another one empties its logs.
TEST(ChildProcess, ItsLastLineIsFoundInALogThatWasEmptied) {
  const TemporaryDirectory directory;
  std::ofstream(directory / "log") << std::string(1000, 'x') << "\n";
  const std::string script = "while [ -s " + (directory / "log") + " ]; do sleep 0.01; done; echo the disk is full";
  auto child = ChildProcess::Start({.name = "one",
                                    .argv = {"/bin/sh", "-c", script},
                                    .environment = {},
                                    .log_path = directory / "log",
                                    .input = false});
  ASSERT_TRUE(child.ok()) << child.status();
  std::filesystem::resize_file(directory / "log", 0);
  while (!child->TryWait().has_value()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(child->LastLogLine(), "the disk is full");
}

}  // namespace
}  // namespace holdfast
