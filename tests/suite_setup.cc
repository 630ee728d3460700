// A failure outside of tests, as when a suite is set up, ends the program: the suite's tests would be skipped, which
// ctest does not count as failed.

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "gtest/gtest.h"

namespace holdfast {
namespace {

class EndsAtFailedSetup final : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo&) override { is_in_test_ = true; }
  void OnTestEnd(const ::testing::TestInfo&) override { is_in_test_ = false; }
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed() || is_in_test_) return;
    std::fflush(nullptr);
    std::_Exit(1);
  }
  std::atomic<bool> is_in_test_ = false;
};

[[maybe_unused]] const bool kIsListening = [] {
  ::testing::UnitTest::GetInstance()->listeners().Append(new EndsAtFailedSetup);
  return true;
}();

}  // namespace
}  // namespace holdfast
