// Proves that the commands of FINE_TUNING.md work as they stand there, one block after the other, on a model of the
// quickstart's config with one layer that was trained for a moment on a few lines instead of its corpus.

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
namespace fs = std::filesystem;

TEST_F(TinyRuns, TheCommandsOfThePageWork) {
  fs::create_directory(directory_ / "corpus");
  fs::rename(Path("train.bin"), Path("corpus/kjv_train.bin"));
  fs::rename(Path("valid.bin"), Path("corpus/kjv_validation.bin"));
  const std::string source = SourceDir();
  const CommandResult base = RunCommands(absl::StrCat(
      "holdfast train '", source,
      "/configs/quickstart.yaml' --set train.steps=3 --set schedule.warmup_steps=1 --set log.sample_bytes=0 "
      "--set model.num_layers=1 --set data.train=corpus/kjv_train.bin "
      "--set data.validation=corpus/kjv_validation.bin"));
  ASSERT_EQ(base.exit_code, 0) << base.output;
  const std::vector<std::string> blocks = CommandsOf(ReadAll(source + "/FINE_TUNING.md"));
  ASSERT_EQ(blocks.size(), 4u);
  std::string said;
  for (const std::string& block : blocks) {
    const CommandResult result = RunCommands(block);
    ASSERT_EQ(result.exit_code, 0) << block << "\n" << result.output;
    said += result.output;
  }
  EXPECT_THAT(said, HasSubstr("90 conversations in "));
  EXPECT_THAT(said, HasSubstr("\n<assistant> ⟦And "));
  EXPECT_THAT(said, HasSubstr("trained  "));
  EXPECT_THAT(said, HasSubstr("all 240 steps are done"));
  for (const char* file : {"tuned/model/adapter_model.safetensors", "tuned_merged/model.safetensors"}) {
    EXPECT_TRUE(fs::exists(directory_ / "runs" / file)) << file;
  }
}

}  // namespace
}  // namespace holdfast::integration
