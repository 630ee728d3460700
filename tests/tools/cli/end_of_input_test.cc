// Proves that the end of an input is seen, and a request to stop, and that neither is asked for again and again.

#include "tools/cli/end_of_input.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <future>
#include <limits>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "framework/base/file_descriptor.h"

namespace holdfast {
namespace {

using std::chrono::milliseconds;

class EndOfInputTest : public testing::Test {
 protected:
  struct Waited {
    bool has_ended = false;
    int64_t sleeps = 0;  // of the thread that waited
  };

  EndOfInputTest() { MakePipe(); }
  void MakePipe() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(pipe(ends), 0);
    reads_ = FileDescriptor(ends[0]);
    writes_ = FileDescriptor(ends[1]);
  }
  std::future<Waited> Wait() {
    return std::async(std::launch::async, [this] {
      const int64_t before = Sleeps();
      const bool has_ended = WaitForEndOfInput(reads_.get(), stop_.get_token());
      return Waited{has_ended, Sleeps() - before};
    });
  }
  /// A wait that does not end is stopped, so that the test fails and ends.
  Waited EndOf(std::future<Waited> waited) {
    if (waited.wait_for(std::chrono::minutes(2)) == std::future_status::timeout) {
      ADD_FAILURE() << "it waits on";
      stop_.request_stop();
    }
    return waited.get();
  }
  /// Without those for code that had to be read from a disk.
  static int64_t Sleeps() {
    rusage usage{};
    EXPECT_EQ(getrusage(RUSAGE_THREAD, &usage), 0);
    return usage.ru_nvcsw - usage.ru_majflt;
  }

  FileDescriptor reads_, writes_;
  std::stop_source stop_;
};

// A thread also sleeps while its process is frozen: then again.
TEST_F(EndOfInputTest, IsSeenInOneWait) {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < 5 && least >= 4; ++i) {
    MakePipe();
    std::future<Waited> waited = Wait();
    EXPECT_EQ(waited.wait_for(milliseconds(950)), std::future_status::timeout);
    writes_ = FileDescriptor();
    const Waited result = EndOf(std::move(waited));
    EXPECT_TRUE(result.has_ended);
    least = std::min(least, result.sleeps);
  }
  EXPECT_LT(least, 4) << "it looks again and again";
}

TEST_F(EndOfInputTest, WhatIsWrittenIsPassedOver) {
  std::future<Waited> waited = Wait();
  EXPECT_TRUE(WriteAll(writes_.get(), std::string(1000, 'x'), "a pipe").ok());
  int left = 1;
  for (const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
       left > 0 && std::chrono::steady_clock::now() < until; std::this_thread::sleep_for(milliseconds(1))) {
    EXPECT_EQ(ioctl(reads_.get(), FIONREAD, &left), 0);
  }
  EXPECT_EQ(left, 0);
  EXPECT_EQ(waited.wait_for(milliseconds(20)), std::future_status::timeout);
  writes_ = FileDescriptor();
  EXPECT_TRUE(EndOf(std::move(waited)).has_ended);
}

TEST_F(EndOfInputTest, ARequestToStopEndsTheWait) {
  std::future<Waited> waited = Wait();
  EXPECT_EQ(waited.wait_for(milliseconds(20)), std::future_status::timeout);
  stop_.request_stop();
  EXPECT_FALSE(waited.get().has_ended);
  EXPECT_FALSE(Wait().get().has_ended) << "a request that was there before";
}

TEST_F(EndOfInputTest, WhatCannotBeReadHasEnded) {
  const FileDescriptor directory = OpenFile("/", O_RDONLY | O_DIRECTORY);
  ASSERT_TRUE(directory.ok());
  EXPECT_TRUE(WaitForEndOfInput(directory.get(), stop_.get_token()));
}

}  // namespace
}  // namespace holdfast
