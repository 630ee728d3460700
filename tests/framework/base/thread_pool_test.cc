// Every task runs once, on a thread the pool has; scratch memory is private; pools start, idle and end cleanly. Meant
// to be run under the thread sanitizer too.

#include "framework/base/thread_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <numeric>

namespace holdfast {
namespace {

class ThreadPoolTest : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, RunsEveryTaskOnceOnItsOwnThreads) {
  ThreadPool pool(GetParam());
  ASSERT_EQ(pool.num_threads(), GetParam());
  for (const int64_t tasks : {0, 1, 2, 3, 7, 1000}) {
    std::vector<int> runs(static_cast<size_t>(tasks));  // not atomic: a task that ran twice at a time would be a race
    std::atomic<int> strangers{0};
    kernels::ParallelFor(pool, tasks, [&](int64_t task, int thread) {
      ++runs[static_cast<size_t>(task)];
      strangers += thread < 0 || thread >= pool.num_threads();
    });
    EXPECT_EQ(runs, std::vector<int>(static_cast<size_t>(tasks), 1));
    EXPECT_EQ(strangers, 0);
  }
}

TEST_P(ThreadPoolTest, RunSeesWhatTheRunBeforeWrote) {
  ThreadPool pool(GetParam());
  std::vector<int64_t> a(64, 0), b(64, 0);
  for (int round = 0; round < 3000; ++round) {
    kernels::ParallelFor(pool, 64,
                         [&](int64_t i, int) { b[static_cast<size_t>(i)] = a[static_cast<size_t>(63 - i)] + 1; });
    a.swap(b);
  }
  EXPECT_EQ(std::accumulate(a.begin(), a.end(), int64_t{0}), 64 * 3000);
}

// Each round needs two threads at a time: the first task waits for the second.
TEST_P(ThreadPoolTest, WorkersTakePart) {
  ThreadPool pool(GetParam());
  if (pool.num_threads() == 1) return;
  for (int round = 0; round < 20; ++round) {
    std::atomic<bool> second_ran{false};
    bool met = false;
    kernels::ParallelFor(pool, 2, [&](int64_t task, int) {
      if (task == 1) second_ran = true;
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
      while (task == 0 && !met && std::chrono::steady_clock::now() < deadline) {
        met = second_ran;
        std::this_thread::yield();
      }
    });
    ASSERT_TRUE(met);
  }
}

TEST_P(ThreadPoolTest, RunsAfterItsThreadsFellAsleep) {
  ThreadPool pool(GetParam());
  std::atomic<int> ran{0};
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    kernels::ParallelFor(pool, 16, [&](int64_t, int) { ++ran; });
  }
  EXPECT_EQ(ran, 80);
}

TEST_P(ThreadPoolTest, ScratchIsAlignedPrivateAndKept) {
  ThreadPool pool(GetParam());
  std::atomic<int> wrong{0};
  kernels::ParallelFor(pool, 200, [&](int64_t task, int thread) {
    const size_t bytes = 100 + static_cast<size_t>(task);
    auto* data = static_cast<unsigned char*>(pool.Scratch(thread, bytes));
    wrong += reinterpret_cast<uintptr_t>(data) % 64 != 0;
    std::memset(data, static_cast<int>(task), bytes);
    std::this_thread::yield();
    wrong += data[0] != task || data[bytes - 1] != task;
  });
  EXPECT_EQ(wrong, 0);
  void* shared = pool.Scratch(kernels::Executor::kShared, 1000);
  EXPECT_EQ(pool.Scratch(kernels::Executor::kShared, 10), shared);
  EXPECT_GE(pool.scratch_bytes(), 1000u);
}

TEST_P(ThreadPoolTest, CanEndAtOnce) {
  for (int round = 0; round < 200; ++round) ThreadPool pool(GetParam());
  for (int round = 0; round < 200; ++round) {
    ThreadPool pool(GetParam());
    std::atomic<int> ran{0};
    kernels::ParallelFor(pool, 3, [&](int64_t, int) { ++ran; });
    ASSERT_EQ(ran, 3);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 3, 8));

TEST(ThreadPoolSingleTest, NonsenseCountsMeanOne) {
  EXPECT_EQ(ThreadPool(0).num_threads(), 1);
  EXPECT_EQ(ThreadPool(-3).num_threads(), 1);
}

// Two pools at a time, each used from its own thread: nothing is shared behind the scenes.
TEST(ThreadPoolSingleTest, PoolsAreIndependent) {
  std::atomic<int> ran{0};
  auto use = [&] {
    ThreadPool pool(2);
    for (int i = 0; i < 500; ++i) kernels::ParallelFor(pool, 5, [&](int64_t, int) { ++ran; });
  };
  std::thread other(use);
  use();
  other.join();
  EXPECT_EQ(ran, 5000);
}

}  // namespace
}  // namespace holdfast
