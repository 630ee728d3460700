#pragma once
// Runs of a tiny model on a few lines of text, each test in a directory of its own.

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/integration/command.h"

namespace holdfast::integration {

class TinyRuns : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::path(::testing::TempDir()) /
                 (std::string("tiny_runs_") + ::testing::UnitTest::GetInstance()->current_test_info()->name() + "_" +
                  std::to_string(getpid()));
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
    std::string text;
    for (int i = 0; text.size() < 20000; ++i) text += "line " + std::to_string(i * i % 97) + " of the story\n";
    WriteAll(directory_ / "text.txt", text);
    const CommandResult packed = RunHoldfast({"data", "pack", Path("text.txt"), "--out", Path("train.bin"),
                                              "--validation-fraction", "0.1", "--validation-out", Path("valid.bin")});
    ASSERT_EQ(packed.exit_code, 0) << packed.output;
    WriteConfig("config.yaml", 12);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void WriteConfig(const std::string& name, int steps, const std::string& more = "") {
    WriteAll(directory_ / name,
             "model: {family: llama, vocab_size: 256, num_layers: 2, hidden_size: 32, num_heads: 4,\n"
             "        num_kv_heads: 2, intermediate_size: 64, max_sequence_length: 32}\n"
             "data: {train: [" +
                 Path("train.bin") + "], validation: [" + Path("valid.bin") +
                 "]}\n"
                 "batch: {sequence_length: 32, microbatch_size: 2, microbatches: 2}\n"
                 "train: {steps: " +
                 std::to_string(steps) +
                 ", validate_every_steps: 5}\n"
                 "log: {digest_every_steps: 4, sample_bytes: 20}\n" +
                 more);
  }
  std::string Path(const std::string& name) const { return (directory_ / name).string(); }
  CommandResult Train(const std::string& run, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"train", Path("config.yaml"), "--run-dir", Path(run)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunHoldfast(arguments);
  }

  /// Commands of a page, in the directory, with the tested binary as `holdfast`; ends at the first that fails.
  CommandResult RunCommands(const std::string& commands) {
    const std::string binaries = std::filesystem::path(TestedBinary()).parent_path().string();
    WriteAll(directory_ / "commands.sh", absl::StrCat("set -euo pipefail\ncd '", directory_.string(), "'\nPATH='",
                                                      binaries, "':$PATH\n", commands));
    return Command({Path("commands.sh")}, "/bin/bash").Wait();
  }

  /// Trains slowly, and is killed when a checkpoint is written: any, as on a busy machine some are skipped. Of twelve
  /// steps, with a checkpoint after every second one, those to go then take eight seconds or more, also in a second run
  /// that resumes where the first one was killed some seconds late.
  void TrainUntilACheckpoint(const std::string& run, const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"train", Path("config.yaml"), "--run-dir", Path(run)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    setenv("HOLDFAST_TEST_SLOWDOWN_MS", "2000", 1);
    Command process(arguments);
    unsetenv("HOLDFAST_TEST_SLOWDOWN_MS");
    EXPECT_TRUE(process.WaitForOutput("\ncheckpoint of step "));
    process.Signal(SIGKILL);
    process.Wait();
  }

  std::filesystem::path directory_;
};

/// Settings that make the test's model one of five experts a layer and a shared one.
inline std::vector<std::string> WithExperts(std::vector<std::string> more = {}) {
  std::vector<std::string> arguments;
  for (const char* key : {"family=qwen2_moe", "num_experts=5", "experts_per_token=2", "expert_intermediate_size=24",
                          "shared_expert_intermediate_size=16"}) {
    arguments.insert(arguments.end(), {"--set", absl::StrCat("model.", key)});
  }
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

}  // namespace holdfast::integration
