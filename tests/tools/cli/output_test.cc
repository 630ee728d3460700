// What commands write takes the place of nothing that is not theirs, and they say so before they work. (`scaling`:
// scaling_test.cc, `data pack`: framework/data, `eval`: integration.)

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "framework/base/files.h"
#include "framework/storage/atomic_file.h"
#include "tests/framework/base/temporary_directory.h"
#include "tests/framework/data/token_test_files.h"
#include "tools/cli/data_command.h"
#include "tools/cli/output_arguments.h"
#include "tools/cli/sweep_command.h"
#include "tools/cli/tune_command.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

TEST(CheckReplaces, TakesWhatIsAbsentEmptyOrOfItsKind) {
  const TemporaryDirectory directory;
  const std::string path = directory / "a";
  const auto check = [&](bool is_one) {
    return CheckReplaces("--out", path, "table", [&](const std::string&) { return is_one; });
  };
  EXPECT_TRUE(check(false).ok()) << "absent";
  ASSERT_TRUE(WriteFileAtomically(path, "").ok());
  EXPECT_TRUE(check(false).ok()) << "empty";
  ASSERT_TRUE(WriteFileAtomically(path, "text").ok());
  EXPECT_TRUE(check(true).ok()) << "one of its kind";
  EXPECT_TRUE(absl::IsAlreadyExists(check(false)));
}

TEST(TuneCommand, ReplacesOnlyATable) {
  const TemporaryDirectory directory;
  TuneCommand tune;
  tune.config.path = tune.out = directory / "config.yaml";
  const std::string config = "model: {vocab_size: 256}\ndata: {train: [a.bin]}\ntrain: {steps: 200, device: cuda}\n";
  ASSERT_TRUE(WriteFileAtomically(tune.out, config).ok());
  EXPECT_THAT(std::string(tune.Run().status().message()), HasSubstr("config.yaml: there is something already"));
  EXPECT_EQ(*ReadFile(tune.out, 1 << 10), config);
  tune.out = directory / "gemm";
  ASSERT_TRUE(WriteFileAtomically(tune.out, "holdfast-gemm 1 cublasLt 1\n").ok());
  EXPECT_THAT(std::string(tune.Run().status().message()), testing::Not(HasSubstr("there is something already")));
}

TEST(DataIndexCommand, ReplacesOnlyAnIndex) {
  const TemporaryDirectory directory;
  DataIndexCommand command;
  command.paths = {directory / "a.bin"};
  WriteTokens(directory / "a.bin", {1, 2, 3});
  WriteText(directory / "a.bin.index", "mine");
  const absl::Status refused = command.Run().status();
  EXPECT_TRUE(absl::IsAlreadyExists(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("a.bin.index: not the index of a token file"));
  EXPECT_EQ(ReadText(directory / "a.bin.index"), "mine");
  std::filesystem::remove(directory / "a.bin.index");
  EXPECT_EQ(*command.Run(), 0);
  EXPECT_EQ(*command.Run(), 0) << "over its own";
}

TEST(SweepCommand, TakesNoDirectoryWithResultsOfSomethingElse) {
  const TemporaryDirectory directory;
  SweepCommand sweep;
  sweep.path = directory / "rates.yaml";
  sweep.directory = directory.path();
  ASSERT_TRUE(WriteFileAtomically(sweep.path,
                                  "sweep: {config: none.yaml, strategy: grid}\n"
                                  "space: {optimizer.lr: {choices: [1, 2]}}\n")
                  .ok());
  EXPECT_THAT(std::string(sweep.Run().status().message()), HasSubstr("none.yaml"));
  for (const char* name :
       {"results.jsonl", "results.csv", "results.json", "report.html", "scaling.csv", "sweep.yaml"}) {
    ASSERT_TRUE(WriteFileAtomically(directory / name, "mine").ok());
    const absl::Status refused = sweep.Run().status();
    EXPECT_TRUE(IsUsageError(refused)) << refused;
    EXPECT_EQ(refused.message(), absl::StrCat("error: ", directory / name, " exists and does not belong to a sweep; ",
                                              "choose another --sweep-dir"));
    std::filesystem::remove(directory / name);
  }
}

}  // namespace
}  // namespace holdfast
