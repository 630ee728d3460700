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

namespace fs = std::filesystem;

class FailureDemo : public TinyRuns {
 protected:
  /// Of 48 steps, by a program that is this bash script.
  CommandResult Demo(const std::string& holdfast) {
    fs::create_directory(directory_ / "tools");
    fs::copy_file(fs::path(SourceDir()) / "tools/failure_demo.sh", directory_ / "tools/failure_demo.sh");
    WriteAll(directory_ / "holdfast", "#!/bin/bash\n" + holdfast);
    fs::permissions(directory_ / "holdfast", fs::perms::owner_all);
    WriteAll(directory_ / "commands.sh",
             absl::StrCat("export HOLDFAST='", Path("holdfast"), "' CONFIG='", Path("config.yaml"), "' STEPS=48\n'",
                          Path("tools/failure_demo.sh"), "' '", Path("demo"), "'"));
    return Command({Path("commands.sh")}, "/bin/bash").Wait();
  }
};

TEST_F(FailureDemo, Runs) {
  WriteConfig("config.yaml", 48, "elastic: {heartbeat_timeout_ms: 1000}\n");
  // The disturbed run alone is slow. While a worker is frozen it takes 16 steps, from the twelfth on; the script, which
  // then kills everything, may come ten seconds late before the other 20 are done.
  const CommandResult result =
      Demo(absl::StrCat("if [[ $* == *--workers* ]]; then export HOLDFAST_TEST_SLOWDOWN_MS=500; fi\nexec '",
                        TestedBinary(), "' \"$@\"\n"));
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr(": kill -9 of a worker"), HasSubstr(": kill -9 of everything"),
                                   HasSubstr("equal: 48 steps")));
  EXPECT_THAT(ReadAll(Path("demo/disturbed/loss.svg")), HasSubstr(">workers</text>"));
}

// On a slow disk the first one may come later than half of the steps.
TEST_F(FailureDemo, KillsEverythingWhenThereIsACheckpoint) {
  const CommandResult result = Demo(R"(saved=${0%/*}/demo/disturbed/checkpoints/step-0000000006-g1
case $* in
  status*) echo '"committed_step": 48' ;;
  *"--workers 4"*) sleep 3; mkdir -p "$saved"; touch "$saved/manifest.json"; exec sleep 1000 ;;
  *"--workers 2"*) [[ -e $saved/manifest.json ]] ;;
esac
)");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr(": kill -9 of everything"));
}

}  // namespace
}  // namespace holdfast::integration
