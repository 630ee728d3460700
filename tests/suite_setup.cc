// What holds for all tests of a program. A failure outside of tests, as when a suite is set up, ends the program: the
// suite's tests would be skipped, which ctest does not count as failed. A program all of whose tests were skipped says
// so for ctest. As many files may be open as the tests of many connections need, whatever the shell allows. SIGINT is
// heeded, here and by what tests start, also where the tests run in the background of a script, which ignores it.

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>

#include "gtest/gtest.h"

namespace holdfast {
namespace {

class TellsCtest final : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo&) override { is_in_test_ = true; }
  void OnTestEnd(const ::testing::TestInfo&) override { is_in_test_ = false; }
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed() || is_in_test_) return;
    std::fflush(nullptr);
    std::_Exit(1);
  }
  void OnTestProgramEnd(const ::testing::UnitTest& tests) override {  // "PASSED 0 tests" is said where all fail, too
    const bool all_skipped = tests.skipped_test_count() == tests.test_to_run_count();
    if (all_skipped && tests.test_to_run_count() > 0) std::printf("All tests were skipped.\n");
  }
  std::atomic<bool> is_in_test_ = false;
};

// Not as many as the machine allows, which may be a billion: mpirun closes each in every process that it starts.
void RaiseOpenFileLimitForTests() {
  constexpr rlim_t kFiles = 8192;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kFiles) return;
  limit.rlim_cur = std::min(kFiles, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
}

[[maybe_unused]] const bool kIsListening = [] {
  ::testing::UnitTest::GetInstance()->listeners().Append(new TellsCtest);
  RaiseOpenFileLimitForTests();
  std::signal(SIGINT, SIG_DFL);
  return true;
}();

}  // namespace
}  // namespace holdfast
