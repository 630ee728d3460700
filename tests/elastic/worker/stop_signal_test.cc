// A signal requests the stop once, in whichever thread it arrives; copies of it within a second are the same one, and a
// later one ends the process.

#include "elastic/worker/stop_signal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <thread>

namespace holdfast {
namespace {

void AwaitStop(const StopSignal& signal) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any().wait(lock, signal.token(), [] { return false; });
}

class StopSignalTest : public testing::TestWithParam<int> {};

TEST_P(StopSignalTest, RequestsAStopAndIsNamed) {
  const StopSignal signal;
  EXPECT_EQ(signal.received(), 0);
  kill(getpid(), GetParam());
  AwaitStop(signal);
  EXPECT_EQ(signal.received(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Signals, StopSignalTest, testing::Values(SIGTERM, SIGINT, SIGUSR1));

// A scheduler signals a script and what it has started, and the script passes it on.
TEST(StopSignal, TwoAtOnceAreOne) {
  sigset_t both;
  sigemptyset(&both);
  for (const int number : {SIGINT, SIGTERM}) sigaddset(&both, number);
  pthread_sigmask(SIG_BLOCK, &both, nullptr);
  for (const int number : {SIGINT, SIGTERM}) kill(getpid(), number);
  const StopSignal signal;
  AwaitStop(signal);
  for (sigset_t pending = both; sigismember(&pending, SIGINT) || sigismember(&pending, SIGTERM);) {
    sigpending(&pending);
    std::this_thread::yield();
  }
  EXPECT_EQ(signal.received(), SIGINT) << "the lower one is taken first";
}

TEST(StopSignalDeathTest, ALaterOneEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const StopSignal signal;
        while (true) {
          kill(getpid(), SIGINT);
          usleep(10'000);
        }
      },
      testing::ExitedWithCode(128 + SIGINT), "");
}

TEST(StopSignal, LeavesSignalsAsTheyWere) {
  { const StopSignal signal; }
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  EXPECT_FALSE(sigismember(&blocked, SIGTERM));
}

}  // namespace
}  // namespace holdfast
