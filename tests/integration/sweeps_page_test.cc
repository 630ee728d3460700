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
  EXPECT_THAT(said, HasSubstr("30 trials done"));
  const auto between = [&said](const std::string& begin, const std::string& end) {
    const size_t found = said.find(begin), from = found + begin.size();
    return found == std::string::npos ? "" : said.substr(from, said.find(end, from) - from);
  };
  const std::string best = between("best: trial ", ","), run = between("\nrun     ", ", of the best trial\n");
  EXPECT_TRUE(fs::exists(directory_ / run / "metrics.jsonl")) << run;
  const std::string table = ReadAll(Path("sweeps/rates/results.csv"));
  const size_t row = table.find(absl::StrCat("\n", best, ","));
  ASSERT_NE(row, std::string::npos) << best;
  EXPECT_THAT(table.substr(row, table.find('\n', row + 1) - row), HasSubstr(fs::path(run).filename().string()));
  for (const char* file : {"results.csv", "results.json", "report.html"}) {
    EXPECT_TRUE(fs::exists(directory_ / "sweeps/rates" / file)) << file;
  }
}

}  // namespace
}  // namespace holdfast::integration
