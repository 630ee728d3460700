// Proves that results are taken in order whichever task ends first, that no more tasks are begun than may be, nor run
// than there are threads, and that after an error nothing is begun.

#include "framework/base/in_order.h"

#include <atomic>
#include <chrono>
#include <future>
#include <new>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace holdfast {
namespace {

TEST(InOrder, ResultsComeInTheOrderOfTheirTasks) {
  for (const int threads : {1, 2, 5, 100}) {
    std::vector<int> taken;
    InOrder<int> tasks(threads, [&](int result) {
      taken.push_back(result);
      return absl::OkStatus();
    });
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(tasks.Begin([i] { return i; }).ok());
    EXPECT_GE(taken.size(), 50 > 2 * threads ? 50 - 2 * threads : 0);
    ASSERT_TRUE(tasks.Finish().ok());
    ASSERT_EQ(taken.size(), 50);
    for (int i = 0; i < 50; ++i) EXPECT_EQ(taken[static_cast<size_t>(i)], i);
  }
}

TEST(InOrder, TasksRunAtTheSameTime) {
  std::promise<void> second_has_begun;
  std::vector<int> taken;
  InOrder<int> tasks(2, [&](int result) {
    taken.push_back(result);
    return absl::OkStatus();
  });
  ASSERT_TRUE(tasks
                  .Begin([begun = second_has_begun.get_future().share()] {
                    begun.wait();
                    return 1;
                  })
                  .ok());
  ASSERT_TRUE(tasks
                  .Begin([&] {
                    second_has_begun.set_value();
                    return 2;
                  })
                  .ok());
  ASSERT_TRUE(tasks.Finish().ok());
  EXPECT_EQ(taken, (std::vector<int>{1, 2}));
}

// Each takes long enough for all that may to run beside it. One that throws ends as others do.
TEST(InOrder, NoMoreTasksRunThanThereAreThreads) {
  std::atomic<int> running = 0, most = 0;
  InOrder<int> tasks(2, [&](int) { return absl::OkStatus(); });
  const auto run = [&](int i) {
    for (int now = ++running, seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    --running;
    if (i == 40) throw std::bad_alloc();
    return i;
  };
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(tasks.Begin([&run, i] { return run(i); }).ok());
  EXPECT_LE(most, 2);
  ASSERT_TRUE(tasks.Begin([&run] { return run(40); }).ok());
  EXPECT_THROW(tasks.Finish().IgnoreError(), std::bad_alloc);
  ASSERT_TRUE(tasks.Begin([&run] { return run(41); }).ok());
  EXPECT_TRUE(tasks.Finish().ok());
}

TEST(InOrder, AfterAnErrorNothingIsBegunOrTaken) {
  std::atomic<int> begun = 0;
  int taken = 0;
  InOrder<int> tasks(3, [&](int result) {
    ++taken;
    return result == 4 ? absl::DataLossError("four") : absl::OkStatus();
  });
  const auto begin = [&](int result) {
    return tasks.Begin([&begun, result] {
      ++begun;
      return result;
    });
  };
  int i = 0;
  while (begin(i).ok()) ASSERT_LT(++i, 100);
  EXPECT_EQ(i, 10);  // 4 is taken to make room for it
  EXPECT_EQ(taken, 5);
  EXPECT_EQ(tasks.Finish().message(), "four");
  EXPECT_FALSE(begin(8).ok());
  EXPECT_EQ(taken, 5);
  EXPECT_LE(begun, 10);
}

}  // namespace
}  // namespace holdfast
