// Proves that the commands of SCALING.md work as they stand there, one block after the other, on a few lines instead of
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

using ::testing::AnyOf;
using ::testing::HasSubstr;

TEST_F(TinyRuns, TheCommandsOfTheScalingPageWork) {
  namespace fs = std::filesystem;
  fs::create_directory(directory_ / "corpus");
  fs::create_directory(directory_ / "runs");
  fs::rename(Path("train.bin"), Path("corpus/kjv_train.bin"));
  fs::rename(Path("valid.bin"), Path("corpus/kjv_validation.bin"));
  const std::vector<std::string> blocks = CommandsOf(ReadAll(absl::StrCat(SourceDir(), "/SCALING.md")));
  ASSERT_EQ(blocks.size(), 4u);
  std::string said;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const CommandResult result = RunCommands(blocks[i]);
    if (i + 1 < blocks.size()) {
      ASSERT_EQ(result.exit_code, 0) << blocks[i] << "\n" << result.output;
    } else {
      ASSERT_THAT(result.exit_code, AnyOf(0, 1)) << result.output;  // how well models of this size follow a law
    }
    said += result.output;
  }
  EXPECT_THAT(said, HasSubstr("chinchilla: E + A / N^a + B / D^b, 9 runs"));
  EXPECT_THAT(said, HasSubstr("off by"));
  EXPECT_THAT(said, HasSubstr("validation after step 300"));
  for (const char* file : {"fit.json", "loss.svg", "frontier.svg", "values.csv", "runs.json"}) {
    EXPECT_TRUE(fs::exists(directory_ / "runs/law" / file)) << file;
  }
}

}  // namespace
}  // namespace holdfast::integration
