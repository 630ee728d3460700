// Proves that a signal is named as a person knows it.

#include "framework/base/signal_text.h"

#include <gtest/gtest.h>

#include <csignal>

namespace holdfast {
namespace {

TEST(SignalText, NamesASignalAndTheKeysThatSendIt) {
  EXPECT_EQ(SignalText(SIGINT), "SIGINT (Ctrl-C)");
  EXPECT_EQ(SignalText(SIGTERM), "SIGTERM");
  EXPECT_EQ(SignalText(SIGUSR1), "SIGUSR1");
  EXPECT_EQ(SignalText(SIGHUP), "SIGHUP");
}

// Other processes say what they got.
TEST(SignalText, GivesTheNumberOfOneThatHasNoName) {
  EXPECT_EQ(SignalText(0), "signal 0");
  EXPECT_EQ(SignalText(99), "signal 99");
  EXPECT_EQ(SignalText(-1), "signal -1");
}

}  // namespace
}  // namespace holdfast
