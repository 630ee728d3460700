// Proves that the commands of SWEEPS.md work as they stand there, one block after the other, on a few lines instead of
// the quickstart's corpus.

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/command.h"
#include "tests/integration/tiny_runs.h"
#include "tests/paths.h"

namespace holdfast::integration {
namespace {

using ::testing::HasSubstr;

TEST_F(TinyRuns, TheCommandsOfTheSweepsPageWork) {
  namespace fs = std::filesystem;
  fs::create_directory(directory_ / "corpus");
  fs::create_directory(directory_ / "runs");
  fs::rename(Path("train.bin"), Path("corpus/kjv_train.bin"));
  fs::rename(Path("valid.bin"), Path("corpus/kjv_validation.bin"));
  const std::vector<std::string> blocks = CommandsOf(ReadAll(absl::StrCat(SourceDir(), "/SWEEPS.md")));
  ASSERT_EQ(blocks.size(), 2u);
  std::string said;
  for (const std::string& block : blocks) {
    const CommandResult result = RunCommands(block);
    ASSERT_EQ(result.exit_code, 0) << block << "\n" << result.output;
    said += result.output;
  }
  EXPECT_THAT(said, HasSubstr("20 trials done"));
  EXPECT_THAT(said, HasSubstr("best: trial"));
  for (const char* file : {"results.csv", "results.json", "report.html"}) {
    EXPECT_TRUE(fs::exists(directory_ / "sweeps/rates" / file)) << file;
  }
}

}  // namespace
}  // namespace holdfast::integration
