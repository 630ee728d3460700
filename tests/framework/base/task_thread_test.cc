// Proves that tasks run one at a time, in order, that Drain waits for all of them, and that destruction loses none.

#include "framework/base/task_thread.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

namespace holdfast {
namespace {

TEST(TaskThread, RunsEverythingInOrder) {
  std::vector<int> done;
  {
    TaskThread thread;
    for (int i = 0; i < 1000; ++i) {
      thread.Post([&done, i] { done.push_back(i); });
      if (i == 500) {
        thread.Drain();
        EXPECT_EQ(done.size(), 501u);
      }
    }
    thread.Post([] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
    thread.Post([&done] { done.push_back(1000); });
  }
  ASSERT_EQ(done.size(), 1001u);
  for (int i = 0; i <= 1000; ++i) ASSERT_EQ(done[static_cast<size_t>(i)], i);
}

}  // namespace
}  // namespace holdfast
