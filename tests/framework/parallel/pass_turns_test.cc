// Proves that of two passes one runs at a time, that who runs when follows from their pauses alone, and that an error
// of either ends the other at its next pause, with the first error as the result, wherever it comes.

#include "framework/parallel/pass_turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <tuple>

#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr int kPauses = 5;

class PassTurnsTest : public testing::Test {
 protected:
  /// A pass that writes down its lane between pauses, of which there are `pauses`; before pause number `fails` it
  /// fails.
  absl::Status Pass(int lane, int pauses, int fails = -1) {
    for (int i = 0; i <= pauses; ++i) {
      EXPECT_FALSE(running_.exchange(true)) << "both run";
      order_ += static_cast<char>('a' + lane);
      std::this_thread::yield();
      running_ = false;
      if (i == fails) return absl::DataLossError(std::string(1, static_cast<char>('a' + lane)));
      if (i < pauses) RETURN_IF_ERROR(turns_.Pause(lane));
    }
    return absl::OkStatus();
  }

  PassTurns turns_;
  std::string order_;  // of whoever's turn it is
  std::atomic<bool> running_ = false;
};

TEST_F(PassTurnsTest, OneGoesOnWhereTheOtherPauses) {
  for (const auto& [first, second, expected] :
       {std::tuple(2, 2, "ababab"), std::tuple(0, 0, "ab"), std::tuple(3, 1, "ababaa"), std::tuple(1, 3, "ababbb"),
        std::tuple(0, 2, "abbb")}) {
    order_.clear();
    EXPECT_TRUE(turns_.Run([&] { return Pass(0, first); }, [&] { return Pass(1, second); }).ok());
    EXPECT_EQ(order_, expected);
  }
}

TEST_F(PassTurnsTest, AnErrorEndsTheOtherAtItsPause) {
  for (int fails = 0; fails <= kPauses; ++fails) {
    order_.clear();
    const absl::Status first = turns_.Run([&] { return Pass(0, kPauses, fails); }, [&] { return Pass(1, kPauses); });
    EXPECT_EQ(first, absl::DataLossError("a"));
    EXPECT_EQ(std::count(order_.begin(), order_.end(), 'b'), fails) << "it goes no further";
    order_.clear();
    const absl::Status second = turns_.Run([&] { return Pass(0, kPauses); }, [&] { return Pass(1, kPauses, fails); });
    EXPECT_EQ(second, absl::DataLossError("b"));
    EXPECT_EQ(std::count(order_.begin(), order_.end(), 'a'), fails + 1);
  }
  EXPECT_TRUE(turns_.Run([&] { return Pass(0, kPauses); }, [&] { return Pass(1, kPauses); }).ok()) << "and is of use";
}

}  // namespace
}  // namespace holdfast
