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
  WriteConfig("config.yaml", 24, "elastic: {heartbeat_timeout_ms: 1000}\n");
  WriteAll(directory_ / "commands.sh", absl::StrCat("export HOLDFAST='", TestedBinary(), "' CONFIG='",
                                                    Path("config.yaml"), "' STEPS=24 HOLDFAST_TEST_SLOWDOWN_MS=500\n'",
                                                    Path("tools/failure_demo.sh"), "' '", Path("demo"), "'"));
  const CommandResult result = Command({Path("commands.sh")}, "/bin/bash").Wait();
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr(": kill -9 of a worker"), HasSubstr(": kill -9 of everything"),
                                   HasSubstr("equal: 24 steps")));
  EXPECT_THAT(ReadAll(Path("demo/disturbed/loss.svg")), HasSubstr(">workers</text>"));
}

}  // namespace
}  // namespace holdfast::integration
