// Proves that tools/failure_demo.sh runs from beginning to end, disturbs the run that it says it does, and finds equal
// bits.

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/command.h"
#include "tests/integration/tiny_runs.h"
#include "tests/paths.h"

namespace holdfast::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(TinyRuns, TheFailureDemoRuns) {
  namespace fs = std::filesystem;
  fs::create_directory(directory_ / "tools");
  fs::copy_file(fs::path(SourceDir()) / "tools/failure_demo.sh", directory_ / "tools/failure_demo.sh");
  WriteConfig("config.yaml", 48, "elastic: {heartbeat_timeout_ms: 1000}\n");
  // The disturbed run alone is slow. While a worker is frozen it takes 16 steps, from the twelfth on; the script, which
  // then kills everything, may come ten seconds late before the other 20 are done.
  WriteAll(
      directory_ / "holdfast",
      absl::StrCat("#!/bin/bash\nif [[ $* == *--workers* ]]; then export HOLDFAST_TEST_SLOWDOWN_MS=500; fi\nexec '",
                   TestedBinary(), "' \"$@\"\n"));
  fs::permissions(directory_ / "holdfast", fs::perms::owner_all);
  WriteAll(directory_ / "commands.sh",
           absl::StrCat("export HOLDFAST='", Path("holdfast"), "' CONFIG='", Path("config.yaml"), "' STEPS=48\n'",
                        Path("tools/failure_demo.sh"), "' '", Path("demo"), "'"));
  const CommandResult result = Command({Path("commands.sh")}, "/bin/bash").Wait();
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr(": kill -9 of a worker"), HasSubstr(": kill -9 of everything"),
                                   HasSubstr("equal: 48 steps")));
  EXPECT_THAT(ReadAll(Path("demo/disturbed/loss.svg")), HasSubstr(">workers</text>"));
}

}  // namespace
}  // namespace holdfast::integration
