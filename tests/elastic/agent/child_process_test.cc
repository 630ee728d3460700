// Proves that the end of a process is seen even if the kernel reaps it, as it does for a parent that ignores SIGCHLD.

#include "elastic/agent/child_process.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <optional>
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

}  // namespace
}  // namespace holdfast
