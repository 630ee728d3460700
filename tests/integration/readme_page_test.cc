// Proves that the commands of README.md that need no installation, GPU or second machine work as they stand there, in
// order, on a few lines instead of the quickstart's corpus and with its model made smaller.

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/command.h"
#include "tests/integration/tiny_runs.h"
#include "tests/paths.h"

namespace holdfast::integration {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

std::string ShortestConfig(const std::string& page) {
  const std::string begin = "```yaml\n", end = "```";
  const size_t at = page.find(begin) + begin.size();
  return absl::StrReplaceAll(page.substr(at, page.find(end, at) - at),
                             {{"steps: 500", "steps: 1"}, {"hidden_size: 256", "hidden_size: 32"}});
}

TEST_F(TinyRuns, TheCommandsOfTheReadmeWork) {
  const std::string page = ReadAll(absl::StrCat(SourceDir(), "/README.md"));
  WriteConfig("configs/quickstart.yaml", 12);
  fs::create_directory(directory_ / "corpus");
  fs::copy(Path("valid.bin"), Path("corpus/kjv_validation.bin"));
  fs::create_directory(directory_ / "my_model");
  fs::copy(SourceDir() + "/tests/framework/data/golden/tokenizer_gpt2_style.json", Path("my_model/tokenizer.json"));
  std::string text;  // whose hundredth part is a sample of validation
  for (int i = 0; text.size() < 300'000; ++i) absl::StrAppend(&text, "line ", i * i % 97, " of the story\n");
  WriteAll(directory_ / "text.txt", text);
  WriteAll(directory_ / "more.jsonl", "{\"text\": \"another one\"}\n");
  WriteAll(directory_ / "my.yaml", ShortestConfig(page));
  fs::create_directory(directory_ / "runs");
  fs::create_directory_symlink("first", directory_ / "runs/quickstart");
  int blocks = 0;
  std::string said;
  for (const std::string& block : CommandsOf(page)) {
    const bool here = absl::StrContains(block, "holdfast compare") || absl::StrContains(block, "holdfast data show") ||
                      absl::StrContains(block, "holdfast model upcycle") || absl::StrContains(block, "holdfast ckpt");
    if (!here) continue;
    ++blocks;
    const CommandResult result = RunCommands(block);
    ASSERT_EQ(result.exit_code, 0) << block << "\n" << result.output;
    said += result.output;
  }
  EXPECT_EQ(blocks, 4);
  EXPECT_THAT(said, HasSubstr("equal: 12 steps"));
  EXPECT_THAT(said, HasSubstr("all of their state, to the last bit"));
}

}  // namespace
}  // namespace holdfast::integration
