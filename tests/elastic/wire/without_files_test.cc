// Proves that who may open no file ends when nobody counts on it any more, and not before.

#include "elastic/wire/without_files.h"

#include <gtest/gtest.h>

namespace holdfast {
namespace {

using std::chrono::seconds;

TEST(WithoutFiles, WhoWasNeverConnectedEndsSoon) {
  WithoutFiles process(seconds(100), seconds(60));
  EXPECT_FALSE(process.ConnectFailed(seconds(109), EMFILE));
  EXPECT_TRUE(process.ConnectFailed(seconds(110), EMFILE));
}

TEST(WithoutFiles, WhoWasConnectedStaysForAsLongAsItIsCountedOn) {
  WithoutFiles process(seconds(100), seconds(60));
  process.Disconnected(seconds(200));
  EXPECT_FALSE(process.ConnectFailed(seconds(259), EMFILE));
  EXPECT_TRUE(process.ConnectFailed(seconds(260), EMFILE));
}

TEST(WithoutFiles, NobodyEndsAtOnce) {
  WithoutFiles process(seconds(0), seconds(1));
  process.Disconnected(seconds(200));
  EXPECT_FALSE(process.ConnectFailed(seconds(209), EMFILE));
  EXPECT_TRUE(process.ConnectFailed(seconds(210), EMFILE));
}

TEST(WithoutFiles, AFileThatCanBeOpenedIsAnotherReason) {
  WithoutFiles process(seconds(0), seconds(0));
  EXPECT_FALSE(process.ConnectFailed(seconds(100), ENFILE)) << "of the machine: a new process would have it, too";
  EXPECT_FALSE(process.ConnectFailed(seconds(200), 0));
  EXPECT_FALSE(process.ConnectFailed(seconds(209), EMFILE));
  EXPECT_TRUE(process.ConnectFailed(seconds(210), EMFILE));
}

}  // namespace
}  // namespace holdfast
