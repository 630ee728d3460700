// Proves that threads that cannot be started are told with the limit that is in the way.

#include "framework/base/thread_limits.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using testing::HasSubstr;

TEST(ThreadLimits, AHandfulCanBeStarted) { EXPECT_TRUE(CheckThreadsStart(16).ok()) << CheckThreadsStart(16); }

// In a process of its own, which may have 16 MiB more than it has: less than the stacks of a hundred threads.
TEST(ThreadLimits, ThoseThatCannotBeStartedAreToldWithTheLimit) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "which need memory of their own for a thread";
#endif
  const auto start_many = [] {
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t bytes = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (16 << 20);
    const rlimit limit = {bytes, bytes};
    if (pages == 0 || setrlimit(RLIMIT_AS, &limit) != 0) _exit(2);
    const absl::Status status = CheckThreadsStart(100);
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    _exit(absl::IsFailedPrecondition(status) ? 0 : 1);
  };
  EXPECT_EXIT(start_many(), testing::ExitedWithCode(0),
              "a thread cannot be started: look at limits .*ulimit -v, which is [0-9]+, a container's");
}

TEST(ThreadLimits, ALimitThatIsNotSetIsNotNamed) {
  rlimit memory{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &memory), 0);
  if (memory.rlim_cur != RLIM_INFINITY) GTEST_SKIP() << "one is set";
  EXPECT_THAT(NoThreadText(), testing::Not(HasSubstr("ulimit -v")));
}

}  // namespace
}  // namespace holdfast
