// Lines below the level are dropped, and not even put together; the others are one line each, with time and level.

#include "framework/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

namespace holdfast {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

/// Counts how often it was made text.
struct Part {
  operator absl::AlphaNum() const {  // NOLINT(google-explicit-constructor): as StrCat takes it
    ++*made;
    return absl::AlphaNum("part");
  }
  int* made;
};

template <class Write>
std::string LogOf(const Write& write) {
  testing::internal::CaptureStderr();
  write();
  return testing::internal::GetCapturedStderr();
}

class LogTest : public testing::Test {
 protected:
  ~LogTest() override { EXPECT_TRUE(SetLogLevel("info").ok()); }
};

TEST_F(LogTest, ALineHasTimeLevelAndMessage) {
  EXPECT_THAT(LogOf([] { LogWarning("rank ", 3, ": no answer"); }),
              MatchesRegex("20..-..-.. ..:..:..\\.... warning: rank 3: no answer\n"));
  EXPECT_THAT(LogOf([] { LogError("two\nlines {} %s"); }), HasSubstr(" error: two lines {} %s\n"));
  EXPECT_THAT(LogOf([] { LogError("one\rover the other"); }), HasSubstr(" error: one over the other\n"));
}

TEST_F(LogTest, LinesBelowTheLevelAreDropped) {
  const auto all = [] {
    LogDebug("a");
    LogInfo("b");
    LogWarning("c");
    LogError("d");
  };
  const auto count = [&](const char* level) {
    EXPECT_TRUE(SetLogLevel(level).ok());
    const std::string log = LogOf(all);
    return std::count(log.begin(), log.end(), '\n');
  };
  const std::string at_first = LogOf(all);
  EXPECT_EQ(std::count(at_first.begin(), at_first.end(), '\n'), 3) << "from info on";
  EXPECT_EQ(count("debug"), 4);
  EXPECT_EQ(count("warning"), 2);
  EXPECT_EQ(count("error"), 1);
  EXPECT_EQ(count("off"), 0);
  EXPECT_FALSE(IsLogged(LogLevel::kError));
}

TEST_F(LogTest, ADroppedLineIsNotPutTogether) {
  int made = 0;
  EXPECT_EQ(LogOf([&] { LogDebug(Part{&made}); }), "");
  EXPECT_EQ(made, 0);
  EXPECT_THAT(LogOf([&] { LogInfo(Part{&made}); }), HasSubstr(" info: part\n"));
  EXPECT_EQ(made, 1);
}

TEST_F(LogTest, AnUnknownLevelIsNamedAndChangesNothing) {
  const absl::Status status = SetLogLevel("loud");
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("'loud': expected one of debug, info, warning, error, off"));
  EXPECT_TRUE(IsLogged(LogLevel::kInfo));
  EXPECT_FALSE(IsLogged(LogLevel::kDebug));
}

TEST_F(LogTest, ThreadsDoNotMixLines) {
  const std::string log = LogOf([] {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([] {
        for (int i = 0; i < 200; ++i) LogInfo("one whole line");
      });
    }
  });
  int lines = 0;
  for (size_t at = 0; (at = log.find("info: one whole line\n", at)) != std::string::npos; ++at) ++lines;
  EXPECT_EQ(lines, 800);
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 800);
}

}  // namespace
}  // namespace holdfast
