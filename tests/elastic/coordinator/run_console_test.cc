// Proves that the console tells a cause for which checkpoint after checkpoint fails once, and anew when it is another
// one or when one was saved between.

#include "elastic/coordinator/run_console.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace holdfast {
namespace {

std::string Said(RunConsole& console, const RunEvent& event) {
  testing::internal::CaptureStdout();
  console.OnEvent(event);
  return testing::internal::GetCapturedStdout();
}

TEST(RunConsoleTest, ACauseForWhichCheckpointsFailIsToldOnce) {
  RunConsole console(100, 10, /*show_memory=*/false);
  const auto fails = [](int64_t step, const std::string& cause) { return event::CheckpointFailed{step, cause}; };
  const auto full = [&](int64_t step, const std::string& free) {
    return fails(step, absl::StrCat("w/0 on n: /c/step-", step, "/shard.h5: no space left: 1.9 MiB wanted, ", free));
  };
  EXPECT_THAT(Said(console, full(5, "10.5 KiB free")), testing::StartsWith("no checkpoint of step 5: w/0 on n"));
  EXPECT_EQ(Said(console, full(10, "9 KiB free")), "");
  EXPECT_EQ(Said(console, full(15, "8.5 KiB free")), "");
  EXPECT_THAT(Said(console, fails(20, "w/0 was lost while writing it")),
              testing::StartsWith("no checkpoint of step 20"));
  EXPECT_THAT(Said(console, full(25, "8 KiB free")), testing::StartsWith("no checkpoint of step 25"));
  EXPECT_THAT(Said(console, event::CheckpointSaved{30, "thirty"}), testing::StartsWith("checkpoint of step 30"));
  EXPECT_THAT(Said(console, full(35, "8 KiB free")), testing::StartsWith("no checkpoint of step 35"));
}

}  // namespace
}  // namespace holdfast
