// Proves of tests/bench/train_vs_pytorch.py what needs no PyTorch: every measurement is written down, also a failed
// one, which the exit code tells; results of several calls make one table, if they are of the same kind.

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/integration/command.h"
#include "tests/paths.h"

namespace holdfast::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TrainVsPyTorch : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Command({"-c", ""}, "/usr/bin/python3").Wait().exit_code != 0) GTEST_SKIP() << "there is no /usr/bin/python3";
    std::string pattern = ::testing::TempDir() + "/train_vs_pytorch_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  static CommandResult Script(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), SourceDir() + "/tests/bench/train_vs_pytorch.py");
    return Command(std::move(arguments), "/usr/bin/python3").Wait();
  }
  CommandResult Measure(const std::string& out, const std::string& binary, const std::string& recompute) const {
    return Script(
        {"--model",     "tiny_llama", "--shapes", "2x64",     "--threads",           "1",    "--steps",  "2",
         "--warmup",    "1",          "--only",   "holdfast", "--holdfast-variants", "bf16", "--binary", binary,
         "--recompute", recompute,    "--out",    Path(out)});
  }
  std::string Path(const std::string& name) const { return (root_ / name).string(); }
  nlohmann::json Results(const std::string& name) const { return nlohmann::json::parse(ReadAll(root_ / name)); }

  std::filesystem::path root_;
};

TEST_F(TrainVsPyTorch, MeasurementsAreWrittenDownAndMakeATable) {
  for (const char* recompute : {"none", "block"}) {
    const CommandResult result = Measure(recompute, TestedBinary(), recompute);
    ASSERT_EQ(result.exit_code, 0) << result.output;
    const nlohmann::json results = Results(recompute);
    EXPECT_EQ(results["recompute"], recompute);
    ASSERT_EQ(results["measurements"].size(), 1u);
    const nlohmann::json& measured = results["measurements"][0];
    EXPECT_EQ(measured["side"], "Holdfast");
    EXPECT_EQ(measured["seconds"].size(), 2u);
    EXPECT_EQ(measured["losses"].size(), 3u);
  }
  const CommandResult table = Script({"--table", Path("none"), Path("none")});
  EXPECT_EQ(table.exit_code, 0) << table.output;
  EXPECT_THAT(table.output,
              AllOf(HasSubstr("| (2, 64) | "), HasSubstr("recomputation: none"), HasSubstr("Holdfast bf16")));
  const CommandResult mixed = Script({"--table", Path("none"), Path("block")});
  EXPECT_EQ(mixed.exit_code, 1);
  EXPECT_THAT(mixed.output, HasSubstr("has recompute block"));
}

TEST_F(TrainVsPyTorch, WhatFailsIsWrittenDownAndTold) {
  const CommandResult result = Measure("failed", Path("nothing"), "none");
  EXPECT_EQ(result.exit_code, 1) << result.output;
  EXPECT_THAT(Results("failed")["measurements"][0]["error"].get<std::string>(), HasSubstr("nothing"));
}

}  // namespace
}  // namespace holdfast::integration
