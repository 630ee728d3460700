// Proves that tools/scaling_example.sh runs from beginning to end, on a few lines of text, and goes on with what is
// there.

#include <csignal>
#include <cstdlib>
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
using ::testing::Not;

TEST_F(TinyRuns, TheScalingExampleRuns) {
  namespace fs = std::filesystem;
  for (const char* folder : {"corpus", "configs", "tools"}) fs::create_directory(directory_ / folder);
  fs::rename(Path("train.bin"), Path("corpus/kjv_train.bin"));
  fs::rename(Path("valid.bin"), Path("corpus/kjv_validation.bin"));
  for (const char* file : {"configs/scaling_example.yaml", "tools/scaling_example.sh"}) {
    fs::copy_file(fs::path(SourceDir()) / file, directory_ / file);
  }
  WriteAll(directory_ / "commands.sh",
           absl::StrCat("export HOLDFAST='", TestedBinary(),
                        "' WIDTHS='16 32 48' SEVENTH=64 RATES='low: 4e-3, high: 8e-3, scale: log, points: 2' "
                        "STEPS='20, 22, 24' LARGE_STEPS=26\n'",
                        Path("tools/scaling_example.sh"), "' ", Path("example")));
  const CommandResult result = Command({Path("commands.sh")}, "/bin/bash").Wait();
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const std::string summary = ReadAll(Path("example/summary.md"));
  EXPECT_THAT(summary, AllOf(HasSubstr("| 48 | 0.00"), HasSubstr("Width 64 in mup"), HasSubstr("predicted  ")));
  const CommandResult again = Command({Path("commands.sh")}, "/bin/bash").Wait();
  EXPECT_EQ(again.exit_code, 0) << again.output;
  EXPECT_THAT(again.output, Not(HasSubstr("steps 1 to"))) << "everything is there";
  EXPECT_EQ(ReadAll(Path("example/summary.md")), summary);

  const std::string seventh = Path("example/seventh_mup");
  fs::copy_file(seventh + "/config.yaml", Path("seventh.yaml"));
  fs::remove_all(seventh);
  Command run({"-c", "export HOLDFAST_TEST_SLOWDOWN_MS=1000; cd \"$0\" && exec \"$@\"", directory_, TestedBinary(),
               "train", Path("seventh.yaml"), "--run-dir", seventh, "--set", "log.every_steps=1"},
              "/bin/sh");
  ASSERT_TRUE(run.WaitForOutput("/26  loss"));
  run.Signal(SIGTERM);
  ASSERT_EQ(run.Wait().exit_code, 128 + SIGTERM);
  ASSERT_TRUE(fs::exists(seventh + "/model"));
  const CommandResult resumed = Command({Path("commands.sh")}, "/bin/bash").Wait();
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(ReadAll(Path("example/summary.md")), summary) << "what was stopped is finished";
}

}  // namespace
}  // namespace holdfast::integration
