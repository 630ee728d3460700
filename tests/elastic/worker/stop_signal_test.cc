// A signal requests the stop once, in whichever thread it arrives; others are the same request, but for a later SIGINT,
// which ends the process. Where a sender is named only its signals count. What is ignored stays so.

#include "elastic/worker/stop_signal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <thread>

namespace holdfast {
namespace {

void AwaitStop(const StopSignal& signal) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any().wait(lock, signal.token(), [] { return false; });
}

/// Until each signal that was sent has been taken.
void AwaitNonePending() {
  sigset_t pending;
  do {
    std::this_thread::yield();
    sigpending(&pending);
  } while (sigismember(&pending, SIGINT) || sigismember(&pending, SIGTERM));
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
  AwaitNonePending();
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

// As a scheduler does at its time limit, after it has warned: what is being saved is saved.
TEST(StopSignalDeathTest, ALaterOneOfASchedulerIsTheSameRequest) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const StopSignal signal;
        kill(getpid(), SIGUSR1);
        AwaitStop(signal);
        const auto start = std::chrono::steady_clock::now();
        do {
          usleep(10'000);
          kill(getpid(), SIGTERM);
          AwaitNonePending();
        } while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(1500));
        _exit(signal.received());
      },
      testing::ExitedWithCode(SIGUSR1), "");
}

TEST(StopSignal, OnlyOfTheSenderThatIsNamed) {
  {
    const StopSignal of_another(getppid());
    kill(getpid(), SIGTERM);
    AwaitNonePending();
    usleep(100'000);  // time to be wrong in
    EXPECT_EQ(of_another.received(), 0);
  }
  const StopSignal of_this(getpid());
  kill(getpid(), SIGTERM);
  AwaitStop(of_this);
  EXPECT_EQ(of_this.received(), SIGTERM);
}

// As in the background of a script, whose terminal is not for what it has started there; nohup ignores SIGHUP.
TEST(StopSignal, WhatIsIgnoredOfATerminalIsNoRequest) {
  for (const int number : {SIGINT, SIGHUP}) {
    void (*const before)(int) = std::signal(number, SIG_IGN);
    const StopSignal signal;
    kill(getpid(), number);
    usleep(100'000);  // time to be wrong in
    EXPECT_EQ(signal.received(), 0);
    kill(getpid(), SIGTERM);
    AwaitStop(signal);
    EXPECT_EQ(signal.received(), SIGTERM) << "a scheduler's are never ignored";
    std::signal(number, before);
  }
}

TEST(StopSignal, LeavesSignalsAsTheyWere) {
  { const StopSignal signal; }
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  EXPECT_FALSE(sigismember(&blocked, SIGTERM));
}

}  // namespace
}  // namespace holdfast
