// Proves what a user sees of `holdfast train` and its neighbours, with the real binary on tiny models: equal bits from
// process to process, clean stops, saved models that load, and bad input refused with a clear error and nothing left.

#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "framework/base/processors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/framework/net/test_ports.h"
#include "tests/integration/command.h"
#include "tests/integration/tiny_runs.h"
#include "tests/paths.h"

namespace holdfast::integration {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

bool IsSaidOnce(const std::string& text, const std::string& output) {
  const size_t at = output.find(text);
  return at != std::string::npos && at == output.rfind(text);
}

class TrainTest : public TinyRuns {
 protected:
  void DoubleTheData() const {
    const std::string text = ReadAll(Path("text.txt"));
    WriteAll(Path("text.txt"), text + text);
    const CommandResult packed =
        RunHoldfast({"data", "pack", Path("text.txt"), "--out", Path("train.bin"), "--validation-fraction", "0.1",
                     "--validation-out", Path("valid.bin"), "--overwrite"});
    ASSERT_EQ(packed.exit_code, 0) << packed.output;
  }
};

TEST_F(TrainTest, EqualBitsFromProcessToProcessAndForAnyNumberOfThreads) {
  const CommandResult a = Train("a");
  ASSERT_EQ(a.exit_code, 0) << a.output;
  EXPECT_THAT(a.output, HasSubstr("validation loss"));
  ASSERT_EQ(Train("b", {"--set", "train.threads=3", "--set", "data.loader_threads=3"}).exit_code, 0);
  ASSERT_EQ(Train("c", {"--set", "train.threads=1", "--set", "train.recompute=block"}).exit_code, 0);
  for (const char* other : {"b", "c"}) {
    const CommandResult compared = RunHoldfast({"compare", Path("a"), Path(other)});
    EXPECT_EQ(compared.exit_code, 0) << compared.output;
  }
  ASSERT_EQ(Train("v", {"--set", "train.validate_every_steps=0"}).exit_code, 0);
  EXPECT_EQ(RunHoldfast({"compare", Path("a"), Path("v")}).exit_code, 0) << "validation disturbed the run";
  ASSERT_EQ(Train("d", {"--set", "run.seed=2"}).exit_code, 0);
  const CommandResult differs = RunHoldfast({"compare", Path("a"), Path("d")});
  EXPECT_EQ(differs.exit_code, 1);
  EXPECT_THAT(differs.output, HasSubstr("step 1"));
  EXPECT_TRUE(fs::exists(directory_ / "a" / "loss.svg"));
  EXPECT_THAT(ReadAll(directory_ / "a" / "events.jsonl"), HasSubstr("run_finished"));
}

/// Limits the kernels of processes that are started meanwhile.
class WithInstructionSet {
 public:
  explicit WithInstructionSet(const char* name) { setenv(kVariable, name, 1); }
  ~WithInstructionSet() { unsetenv(kVariable); }
  WithInstructionSet(const WithInstructionSet&) = delete;
  WithInstructionSet& operator=(const WithInstructionSet&) = delete;

 private:
  static constexpr const char* kVariable = "HOLDFAST_INSTRUCTION_SET";
};

// Conversations by a tokenizer's own template, several to a row, of which only the answers are learned.
TEST_F(TrainTest, ConversationsTrainWithEqualBitsInAnyWorld) {
  const std::string golden = SourceDir() + "/tests/framework/data/golden/";
  fs::create_directory(directory_ / "tokenizer");
  fs::copy_file(golden + "tokenizer_llama3_style.json", directory_ / "tokenizer/tokenizer.json");
  WriteAll(
      directory_ / "tokenizer/tokenizer_config.json",
      R"({"chat_template": "{{ strftime_now('%Y') }}{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}"})");
  std::string talks;
  for (int i = 0; i < 60; ++i) {
    const std::string number = std::to_string(i * i % 37);
    talks += R"({"messages": [{"role": "user", "content": "line )" + number +
             R"("}, {"role": "assistant", "content": "of the story)" + std::string(i % 7, '!') + "\"}]}\n";
  }
  WriteAll(directory_ / "talks.jsonl", talks);
  const CommandResult packed =
      RunHoldfast({"data", "pack", "--chat", Path("talks.jsonl"), "--tokenizer", Path("tokenizer"), "--out",
                   Path("train.bin"), "--sequence-length", "64", "--validation-fraction", "0.1", "--validation-out",
                   Path("valid.bin"), "--date", "2026-01-01", "--overwrite"});
  ASSERT_EQ(packed.exit_code, 0) << packed.output;
  EXPECT_THAT(packed.output, HasSubstr("54 conversations"));
  const std::vector<std::string> settings{
      "--set", "batch.sequence_length=64", "--set", "model.max_sequence_length=64",
      "--set", "model.vocab_size=1105",    "--set", "data.tokenizer=" + Path("tokenizer/tokenizer.json")};
  const auto train = [&](const std::string& run, std::vector<std::string> more) {
    more.insert(more.begin(), settings.begin(), settings.end());
    return Train(run, more);
  };
  const CommandResult one = train("one", {});
  ASSERT_EQ(one.exit_code, 0) << one.output;
  const CommandResult three = train("three", {"--workers", "3", "--set", "train.recompute=block"});
  ASSERT_EQ(three.exit_code, 0) << three.output;
  const CommandResult compared = RunHoldfast({"compare", Path("one"), Path("three")});
  EXPECT_EQ(compared.exit_code, 0) << compared.output;
  const CommandResult answer =
      RunHoldfast({"sample", Path("one"), "--chat", "--prompt", "line 3", "--tokens", "20", "--stop", "zzz"});
  EXPECT_EQ(answer.exit_code, 0) << answer.output;
  EXPECT_THAT(answer.output, Not(HasSubstr("line 3"))) << "the answer alone";
  const CommandResult undated = RunHoldfast({"sample", Path("one"), "--chat", "--date", "today", "--prompt", "line 3"});
  EXPECT_EQ(undated.exit_code, 2);
  EXPECT_THAT(undated.output, HasSubstr("YYYY-MM-DD"));
  const CommandResult other = train("other", {"--set", "batch.sequence_length=32"});
  EXPECT_NE(other.exit_code, 0);
  EXPECT_THAT(other.output, HasSubstr("packed into rows of 64 tokens; set batch.sequence_length to 64"));
}

// All is saved by then.
TEST_F(TrainTest, ASampleThatCannotBeginIsNoFailureOfARun) {
  nlohmann::json tokenizer =
      nlohmann::json::parse(ReadAll(SourceDir() + "/tests/framework/data/golden/tokenizer_gpt2_style.json"));
  tokenizer["added_tokens"].push_back({{"id", 1005}, {"content", "\n"}, {"special", true}});  // with which it begins
  WriteAll(directory_ / "tokenizer.json", tokenizer.dump());
  const CommandResult result =
      Train("a", {"--set", "model.vocab_size=1000", "--set", "data.tokenizer=" + Path("tokenizer.json")});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("no sample of the model: the text has token 1005, \"\\n\", for which"),
                                   HasSubstr("\nmodel       " + Path("a/model"))));
  EXPECT_THAT(ReadAll(Path("a/model/generation_config.json")), HasSubstr("\"eos_token_id\": null")) << "which is 1000";
}

TEST_F(TrainTest, PortableArithmeticHasEqualBitsOnEveryInstructionSet) {
  for (const char* dtype : {"bf16", "f32"}) {
    const std::vector<std::string> settings{"--set", "train.arithmetic=portable", "--set",
                                            std::string("train.compute_dtype=") + dtype};
    const std::string best = std::string("best_") + dtype, least = std::string("avx2_") + dtype;
    const CommandResult widest = Train(best, settings);
    ASSERT_EQ(widest.exit_code, 0) << widest.output;
    const WithInstructionSet limited("AVX2");
    const CommandResult narrow = Train(least, settings);
    ASSERT_EQ(narrow.exit_code, 0) << narrow.output;
    EXPECT_THAT(narrow.output, HasSubstr("cpu (AVX2, portable arithmetic"));
    const CommandResult compared = RunHoldfast({"compare", Path(best), Path(least)});
    EXPECT_EQ(compared.exit_code, 0) << compared.output;
  }
  const WithInstructionSet unknown("AVX9");
  EXPECT_THAT(Train("unknown").output, HasSubstr("HOLDFAST_INSTRUCTION_SET: this processor has"));
}

// Whoever started it does so again then.
TEST_F(TrainTest, AnAgentWhoseCoordinatorDoesNotComeEndsWithTheCodeForLater) {
  const CommandResult agent =
      RunHoldfast({"agent", Path("config.yaml"), "--run-dir", Path("run"), "--coordinator", "127.0.0.1:1",
                   "--token-file", Path("run/coordinator.token"), "--set", "elastic.coordinator_timeout_ms=300"});
  EXPECT_EQ(agent.exit_code, 75);
  EXPECT_THAT(agent.output, HasSubstr("is a coordinator running?"));
}

// As where pods are started together, and the coordinator's has no name yet.
TEST_F(TrainTest, AnAgentThatDoesNotKnowItsCoordinatorsNameEndsWithTheCodeForLater) {
  const CommandResult agent =
      RunHoldfast({"agent", Path("config.yaml"), "--run-dir", Path("run"), "--coordinator", "no such host:1"});
  EXPECT_EQ(agent.exit_code, 75);
  EXPECT_THAT(agent.output, HasSubstr("error: the way to the coordinator is not known: no address found for host 'no "
                                      "such host'"));
}

// Its workers would join, and no world with them could be made.
TEST_F(TrainTest, AnAgentWhoseWorkersCouldNotBeReachedIsRefused) {
  const CommandResult agent =
      RunHoldfast({"agent", Path("config.yaml"), "--run-dir", Path("run"), "--coordinator", "127.0.0.1:1", "--host",
                   "no such host", "--set", "elastic.coordinator_timeout_ms=300"});
  EXPECT_EQ(agent.exit_code, 2);
  EXPECT_THAT(agent.output, HasSubstr("error: --host: no address found for host 'no such host'"));
}

TEST_F(TrainTest, TheStatusOfARunWithTlsSaysThatItNeedsCertificates) {
  const std::string certs = SourceDir() + "/tests/elastic/wire/certs/";
  Command coordinator({"coordinator", Path("config.yaml"), "--run-dir", Path("a"), "--listen", "127.0.0.1:0",
                       "--tls-certificate", certs + "node.pem", "--tls-key", certs + "node.key", "--tls-authority",
                       certs + "authority.pem"});
  ASSERT_TRUE(coordinator.WaitForOutput("listening at"));
  const std::string says = "asks for TLS (--tls-certificate, --tls-key, --tls-authority)";
  CommandResult status;
  for (int i = 0; i < 20 && !absl::StrContains(status.output, says); ++i) {  // a connection may be reset, too
    status = RunHoldfast({"status", Path("a")});
    EXPECT_EQ(status.exit_code, 75);
  }
  EXPECT_THAT(status.output, HasSubstr(says));
  coordinator.Signal(SIGTERM);
  coordinator.Wait();
}

// Its lock would lie between the files of somebody else.
TEST_F(TrainTest, ACoordinatorThatBeginsNoRunLeavesNothing) {
  const std::vector<std::vector<std::string>> causes{{"--token-file", Path("missing")},
                                                     {"--set", "data.train=[" + Path("missing") + "]"}};
  for (const std::vector<std::string>& cause : causes) {
    for (const bool stands_by : {false, true}) {
      std::vector<std::string> arguments{"coordinator", Path("config.yaml"), "--run-dir",
                                         Path("a"),     "--listen",          "127.0.0.1:0"};
      arguments.insert(arguments.end(), cause.begin(), cause.end());
      if (stands_by) arguments.emplace_back("--standby");
      for (const bool is_there : {false, true}) {
        if (is_there) fs::create_directory(Path("a"));
        const CommandResult result = RunHoldfast(arguments);
        EXPECT_NE(result.exit_code, 0);
        EXPECT_THAT(result.output, HasSubstr("missing"));
        EXPECT_EQ(fs::exists(Path("a")), is_there) << cause[0] << stands_by;
        EXPECT_TRUE(!is_there || fs::is_empty(Path("a"))) << cause[0] << stands_by;
        fs::remove_all(Path("a"));
      }
    }
  }
}

// A coordinator that was killed leaves its address, and its port may be another run's by now.
TEST_F(TrainTest, TheStatusOfARunThatWasKilledIsNotAskedOfAnotherRun) {
  ASSERT_EQ(Train("a").exit_code, 0);
  Command other({"coordinator", Path("config.yaml"), "--run-dir", Path("b"), "--listen", "127.0.0.1:0"});
  ASSERT_TRUE(other.WaitForOutput("listening at"));
  WriteAll(Path("a/coordinator.address"), ReadAll(Path("b/coordinator.address")));
  WriteAll(Path("a/coordinator.token"), std::string(64, 'a') + "\n");
  fs::permissions(Path("a/coordinator.token"), fs::perms::owner_read | fs::perms::owner_write);
  const CommandResult status = RunHoldfast({"status", Path("a")});
  EXPECT_EQ(status.exit_code, 0);
  EXPECT_THAT(status.output, AllOf(HasSubstr("ended: all 12 steps are done"), Not(HasSubstr("token file"))));
  other.Signal(SIGTERM);
  other.Wait();
}

TEST_F(TrainTest, ARunKeepsItsArithmetic) {
  ASSERT_EQ(Train("a", {"--set", "train.arithmetic=portable"}).exit_code, 0);
  const CommandResult more = Train("a", {"--set", "train.steps=14"});
  EXPECT_EQ(more.exit_code, 0) << more.output;
  EXPECT_THAT(more.output, HasSubstr("portable arithmetic"));
  EXPECT_THAT(more.output, Not(HasSubstr("train.arithmetic:")));

  const CommandResult native = Train("a", {"--set", "train.steps=16", "--set", "train.arithmetic=native"});
  if (native.exit_code == 0) {
    EXPECT_THAT(native.output, HasSubstr("\n  train.arithmetic: portable -> "));
  } else {
    EXPECT_THAT(native.output, HasSubstr("train.arithmetic: native needs bf16 instructions"));
  }
  const WithInstructionSet limited("AVX2");  // which has none
  const CommandResult without = Train("b", {"--set", "train.arithmetic=avx512_bf16"});
  EXPECT_EQ(without.exit_code, 1);
  EXPECT_THAT(without.output, HasSubstr("train.arithmetic: avx512_bf16 needs instructions that this processor lacks"));
}

// 562 sequences, four of them in a step; 1125 once the text is there twice.
TEST_F(TrainTest, EpochsBecomeTheStepsOfTheRun) {
  const std::vector<std::string> epochs = {"--set", "train.steps=0", "--set", "train.epochs=0.05"};
  const CommandResult a = Train("a", epochs);
  ASSERT_EQ(a.exit_code, 0) << a.output;
  EXPECT_THAT(a.output, HasSubstr("training    8 steps of 128 tokens\nepochs      0.0569\n"));
  EXPECT_THAT(ReadAll(Path("a/config.yaml")), HasSubstr("  steps: 8\n  epochs: 0.05\n"));
  const CommandResult b = RunHoldfast({"train", Path("a/config.yaml"), "--run-dir", Path("b"), "--workers", "2"});
  ASSERT_EQ(b.exit_code, 0) << b.output;
  ASSERT_EQ(Train("c", {"--set", "train.steps=8"}).exit_code, 0);
  for (const char* other : {"b", "c"}) {
    const CommandResult compared = RunHoldfast({"compare", Path("a"), Path(other)});
    EXPECT_EQ(compared.exit_code, 0) << compared.output;
  }
  for (const char* run : {"a", "b"}) {
    EXPECT_THAT(ReadAll(Path(run) + "/events.jsonl"),
                HasSubstr("\"total_steps\":8,\"data_tokens\":17984,\"data_digest\":\""));
  }
  const CommandResult longer = Train("b", {"--set", "train.steps=0", "--set", "train.epochs=0.1"});
  EXPECT_EQ(longer.exit_code, 0) << longer.output;
  EXPECT_THAT(longer.output, HasSubstr("training    15 steps of"));
  const CommandResult validated =
      RunHoldfast({"validate", Path("config.yaml"), "--set", "train.steps=0", "--set", "train.epochs=0.1"});
  EXPECT_EQ(validated.exit_code, 0) << validated.output;
  EXPECT_THAT(validated.output, HasSubstr("  steps: 15\n"));
  const CommandResult both = Train("d", {"--set", "train.epochs=0.05"});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_THAT(both.output, HasSubstr("error: train.steps is 12, but train.epochs 0.05 of 562 samples is 8 steps of 4: "
                                     "leave one of both out"));
  EXPECT_FALSE(fs::exists(directory_ / "d"));

  ASSERT_NO_FATAL_FAILURE(DoubleTheData());
  const CommandResult done = Train("a", epochs);
  EXPECT_EQ(done.exit_code, 1) << "its 8 steps are done: " << done.output;
  EXPECT_THAT(done.output, HasSubstr("raise train.epochs to resume it"));
  std::vector<std::string> anew = epochs;
  anew.emplace_back("--overwrite");
  const CommandResult again = Train("a", anew);
  EXPECT_EQ(again.exit_code, 0) << again.output;
  EXPECT_THAT(again.output, HasSubstr("training    15 steps of"));
}

// Its agent, and the agent's worker, are there before it, and must not take the steps of the run that it replaces.
TEST_F(TrainTest, ACoordinatorThatOverwritesCountsEpochsAnew) {
  const auto with = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin() + 1, {Path("config.yaml"), "--run-dir", Path("a"), "--set", "train.steps=0",
                                             "--set", "train.epochs=0.02"});
    return arguments;
  };
  const std::string address = absl::StrCat("127.0.0.1:", PortForLater());
  Command first(with({"coordinator", "--listen", address}));
  ASSERT_TRUE(first.WaitForOutput("listening at"));
  const CommandResult followed = RunHoldfast(with({"agent", "--coordinator", address}));
  ASSERT_EQ(followed.exit_code, 0) << followed.output;
  const CommandResult led = first.Wait();
  ASSERT_EQ(led.exit_code, 0) << led.output;
  EXPECT_TRUE(IsSaidOnce("all 3 steps are done\n", led.output)) << led.output;
  ASSERT_THAT(ReadAll(Path("a/config.yaml")), HasSubstr("  steps: 3\n  epochs: 0.02\n"));

  ASSERT_NO_FATAL_FAILURE(DoubleTheData());
  Command agent(with({"agent", "--coordinator", address}));
  ASSERT_TRUE(agent.WaitForOutput("node "));
  Command again(with({"coordinator", "--listen", address, "--overwrite"}));
  const CommandResult ended = agent.Wait();
  ASSERT_EQ(ended.exit_code, 0) << ended.output;
  EXPECT_EQ(again.Wait().exit_code, 0);
  EXPECT_THAT(ReadAll(Path("a/config.yaml")), HasSubstr("  steps: 6\n  epochs: 0.02\n"));
}

TEST_F(TrainTest, TheResolvedConfigRepeatsTheRun) {
  ASSERT_EQ(Train("a").exit_code, 0);
  const CommandResult again = RunHoldfast({"train", Path("a/config.yaml"), "--run-dir", Path("b")});
  ASSERT_EQ(again.exit_code, 0) << again.output;
  EXPECT_EQ(RunHoldfast({"compare", Path("a"), Path("b")}).exit_code, 0);
}

TEST_F(TrainTest, TheLogLevelIsThatOfItsWorkersToo) {
  const auto logs_at = [&](const std::string& level) {
    const CommandResult trained = Train(level, {"--workers", "2", "--log-level", level});
    EXPECT_EQ(trained.exit_code, 0) << trained.output;
    std::string logs;
    for (const auto& file : fs::directory_iterator(Path(level + "/logs"))) logs += ReadAll(file.path());
    return logs;
  };
  EXPECT_THAT(logs_at("debug"), HasSubstr(" debug: connected to the coordinator at "));
  EXPECT_THAT(logs_at("info"), Not(HasSubstr(" debug: ")));
  const CommandResult refused = Train("loud", {"--log-level", "loud"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.output, HasSubstr("--log-level"));
  setenv("HOLDFAST_LOG_LEVEL", "foo", 1);
  const CommandResult variable = RunHoldfast({"--version"});
  unsetenv("HOLDFAST_LOG_LEVEL");
  EXPECT_EQ(variable.exit_code, 2);
  EXPECT_THAT(variable.output, HasSubstr("HOLDFAST_LOG_LEVEL: 'foo' is none of "));
}

// As of a daemon. Else what is printed would go into the files that are opened first.
TEST_F(TrainTest, WithoutStandardStreamsNoFileHasTheirNumbers) {
  WriteConfig("config.yaml", 1'000'000);
  const std::string script =
      "echo $$ > \"$1/pid\"; exec \"$0\" train \"$1/config.yaml\" --run-dir \"$1/a\" <&- >&- 2>&-";
  Command run({"-c", script, TestedBinary(), directory_.string()}, "/bin/sh");
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(kTestTimeoutSeconds);
  while (ReadAll(directory_ / "a/metrics.jsonl").empty() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  int64_t pid = 0;
  ASSERT_TRUE(absl::SimpleAtoi(ReadAll(directory_ / "pid"), &pid));
  for (const char* stream : {"0", "1", "2"}) {
    std::error_code error;
    const fs::path file = fs::read_symlink(absl::StrCat("/proc/", pid, "/fd/", stream), error);
    // gRPC makes an eventfd before main.
    EXPECT_THAT(file.string(), testing::AnyOf("/dev/null", "anon_inode:[eventfd]")) << stream;
  }
  run.Signal(SIGTERM);
  EXPECT_EQ(run.Wait().exit_code, 143);
}

TEST_F(TrainTest, ARunIsDoneAlsoIfItsCurveCannotBeDrawn) {
  ASSERT_EQ(Train("run").exit_code, 0);
  const std::filesystem::path curve = Path("run/loss.svg");
  ASSERT_TRUE(std::filesystem::remove(curve));
  std::filesystem::create_directory(curve);
  const CommandResult result = Train("run", {"--set", "train.steps=14"});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("warning: no loss curve: "));
  EXPECT_THAT(result.output, HasSubstr("metrics     ")) << "the rest is told";
  EXPECT_THAT(result.output, Not(HasSubstr("loss curve  ")));
}

// Somebody may make room, so whoever starts runs is to try again.
TEST_F(TrainTest, AStartWithoutRoomMayBeTriedAgain) {
  WriteConfig("config.yaml", 12);
  const CommandResult result = Command({"-c", "ulimit -f 0 && exec \"$0\" \"$@\"", TestedBinary(), "train",
                                        Path("config.yaml"), "--run-dir", Path("run")},
                                       "/bin/sh")
                                   .Wait();
  EXPECT_EQ(result.exit_code, 75) << result.output;
  EXPECT_THAT(result.output, HasSubstr("this process may write files of 0 bytes"));
}

TEST_F(TrainTest, SigtermSavesTheModelAndExits143) {
  WriteConfig("config.yaml", 1'000'000);
  Command run({"train", Path("config.yaml"), "--run-dir", Path("a")});
  ASSERT_TRUE(run.WaitForOutput("step      20/"));
  run.Signal(SIGTERM);
  const CommandResult result = run.Wait();
  EXPECT_EQ(result.exit_code, 143) << result.output;
  EXPECT_TRUE(IsSaidOnce("stopped by SIGTERM at step ", result.output)) << result.output;
  EXPECT_TRUE(fs::exists(directory_ / "a/model/model.safetensors"));
  EXPECT_THAT(ReadAll(directory_ / "a/events.jsonl"), HasSubstr("run_stopped"));
  EXPECT_EQ(RunHoldfast({"eval", Path("a"), Path("valid.bin"), "--sequence-length", "32"}).exit_code, 0);
}

TEST_F(TrainTest, APipeInTheRunDirectoryIsRefusedAtOnce) {
  ASSERT_EQ(Train("a").exit_code, 0);
  WriteConfig("config.yaml", 20);
  for (const char* file : {"events.jsonl", "metrics.jsonl", "config.yaml"}) {
    const fs::path path = directory_ / "a" / file;
    fs::rename(path, Path("kept"));
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    const CommandResult refused = Train("a");
    EXPECT_EQ(refused.exit_code, 2) << refused.output;
    EXPECT_THAT(refused.output, HasSubstr(path.string() + ": a pipe, not a regular file"));
    fs::remove(path);
    fs::rename(Path("kept"), path);
  }
}

// As by mv, or by an automounter.
TEST_F(TrainTest, ARunWhoseDirectoryIsMissingForAWhilePausesAndResumes) {
  WriteConfig("config.yaml", 1'000'000);
  for (const std::string workers : {"1", "3"}) {
    const std::string run_directory = "a" + workers;
    Command run({"train", Path("config.yaml"), "--run-dir", Path(run_directory), "--workers", workers});
    ASSERT_TRUE(run.WaitForOutput("step      20/"));
    fs::rename(Path(run_directory), Path("moved"));
    ASSERT_TRUE(run.WaitForOutput("paused, retrying: ")) << run.Wait().output;
    fs::rename(Path("moved"), Path(run_directory));
    ASSERT_TRUE(run.WaitForOutput("resuming after a pause")) << run.Wait().output;
    run.Signal(SIGTERM);
    const CommandResult result = run.Wait();
    EXPECT_EQ(result.exit_code, 143) << result.output;
    EXPECT_TRUE(fs::exists(directory_ / run_directory / "model/model.safetensors")) << result.output;
    const std::string events = ReadAll(directory_ / run_directory / "events.jsonl");
    EXPECT_THAT(events, AllOf(HasSubstr("paused"), HasSubstr("run_stopped"), Not(HasSubstr("killed by signal"))));
  }
}

TEST_F(TrainTest, ARunWhoseCheckpointsAreRemovedWritesOthers) {
  WriteConfig("config.yaml", 1'000'000, "checkpoint: {every_steps: 5}\n");
  Command run({"train", Path("config.yaml"), "--run-dir", Path("a")});
  ASSERT_TRUE(run.WaitForOutput("checkpoint of step 5:")) << run.Wait().output;
  fs::remove(Path("a/checkpoints/fence-0000000001.json"));
  ASSERT_TRUE(run.WaitForOutput("it is made anew")) << run.Wait().output;
  fs::rename(Path("a/checkpoints"), Path("removed"));
  ASSERT_TRUE(run.WaitForOutput("which the run has not deleted")) << run.Wait().output;
  run.Signal(SIGTERM);
  const CommandResult result = run.Wait();
  EXPECT_EQ(result.exit_code, 143) << result.output;
  const CommandResult verified = RunHoldfast({"ckpt", "verify", Path("a")});
  EXPECT_EQ(verified.exit_code, 0) << verified.output;
}

TEST_F(TrainTest, ATerminalThatIsClosedSavesTheModel) {
  WriteConfig("config.yaml", 1'000'000);
  // The tests themselves may run where the signal is ignored.
  Command run({"--default-signal=HUP", TestedBinary(), "train", Path("config.yaml"), "--run-dir", Path("a")},
              "/usr/bin/env");
  ASSERT_TRUE(run.WaitForOutput("step      20/"));
  run.Signal(SIGHUP);
  const CommandResult result = run.Wait();
  EXPECT_EQ(result.exit_code, 128 + SIGHUP) << result.output;
  EXPECT_TRUE(fs::exists(directory_ / "a/model/model.safetensors"));
}

TEST_F(TrainTest, AReaderThatEndsDoesNotEndTheRun) {
  WriteConfig("config.yaml", 300);
  const std::string train = absl::StrCat(TestedBinary(), " train ", Path("config.yaml"), " --run-dir ", Path("a"));
  const CommandResult result =
      Command({"-c", train + " | head -n 1 > /dev/null; exit ${PIPESTATUS[0]}"}, "/bin/bash").Wait();
  EXPECT_EQ(result.exit_code, 0) << result.output;
  const std::string lines = ReadAll(directory_ / "a/metrics.jsonl");
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 300);
}

// A validation that would take minutes: 250,000 sequences, each through layers that are not as small as elsewhere.
TEST_F(TrainTest, SigtermDuringValidationEndsItToo) {
  WriteConfig("config.yaml", 2);
  WriteAll(directory_ / "long.txt", std::string(8'000'000, 'a'));
  ASSERT_EQ(RunHoldfast({"data", "pack", Path("long.txt"), "--out", Path("long.bin")}).exit_code, 0);
  Command run({"train", Path("config.yaml"), "--run-dir", Path("a"), "--set",
               "data.validation=[" + Path("long.bin") + "]", "--set", "train.validation_microbatches=0", "--set",
               "batch.microbatch_size=1", "--set", "model.num_layers=16", "--set", "model.hidden_size=128"});
  ASSERT_TRUE(run.WaitForOutput("step 2/2"));
  run.Signal(SIGUSR1);
  const CommandResult result = run.Wait();
  EXPECT_EQ(result.exit_code, 128 + SIGUSR1) << result.output;
  EXPECT_THAT(ReadAll(directory_ / "a/events.jsonl"), Not(HasSubstr("\"validation\"")));
  EXPECT_TRUE(fs::exists(directory_ / "a/model/model.safetensors"));
}

// No validation counts as better than the first.
TEST_F(TrainTest, ARunEndsEarlyAtTheSameStepInAnyWorld) {
  const std::vector<std::string> patient = {"--set", "train.steps=40",
                                            "--set", "train.validate_every_steps=3",
                                            "--set", "train.early_stop_patience=2",
                                            "--set", "train.early_stop_min_delta=100",
                                            "--set", "checkpoint.keep_best=1",
                                            "--set", "checkpoint.keep_last=4"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), patient.begin(), patient.end());
    return more;
  };
  const CommandResult a = Train("a", patient);
  ASSERT_EQ(a.exit_code, 0) << a.output;
  EXPECT_THAT(a.output, HasSubstr("ended early, at step 9 of 40: the validation loss was lowest at step 9 ("));
  EXPECT_THAT(a.output, HasSubstr("), of which there is a checkpoint; since step 3 ("));
  const std::string saved = "checkpoint of step 9:";
  EXPECT_TRUE(IsSaidOnce(saved, a.output)) << "it is written once: " << a.output;
  EXPECT_EQ(RunHoldfast({"ckpt", "export", Path("a"), Path("best"), "--step", "9"}).exit_code, 0);
  EXPECT_TRUE(fs::exists(directory_ / "a/model/model.safetensors"));
  EXPECT_THAT(ReadAll(directory_ / "a/metrics.jsonl"), HasSubstr("\"validation\":{\"step\":6,"));
  const CommandResult done = Train("a", patient);
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_THAT(done.output, HasSubstr("or raise train.early_stop_patience to resume it"));
  ASSERT_EQ(Train("b", with({"--workers", "3"})).exit_code, 0);
  const CommandResult same = RunHoldfast({"compare", Path("a"), Path("b")});
  EXPECT_EQ(same.exit_code, 0) << same.output;
  EXPECT_THAT(same.output, HasSubstr("9 steps and 5 digests")) << "of 4 and 8, and where it might have ended";
  EXPECT_THAT(ReadAll(directory_ / "b/metrics.jsonl"), Not(HasSubstr("\"step\":10,")));
  const CommandResult more = Train("a", with({"--set", "train.early_stop_patience=3"}));
  ASSERT_EQ(more.exit_code, 0) << more.output;
  EXPECT_THAT(more.output, HasSubstr("ended early, at step 12 of 40"));
  ASSERT_EQ(Train("c", with({"--set", "train.early_stop_patience=3"})).exit_code, 0);
  EXPECT_EQ(RunHoldfast({"compare", Path("a"), Path("c")}).exit_code, 0) << "the end in between left a trace";
}

// That it waits is known once it has taken what is in the pipe.
TEST_F(TrainTest, ASignalEndsWhatWaitsForItsConfig) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const std::string config = "/dev/fd/" + std::to_string(ends[0]);
  const std::vector<std::vector<std::string>> commands = {{"train", config},
                                                          {"coordinator", config, "--listen", "127.0.0.1:0"},
                                                          {"agent", config, "--coordinator", "127.0.0.1:1"},
                                                          {"ckpt", "import", "model", "there", "--config", config}};
  for (const std::vector<std::string>& arguments : commands) {
    ASSERT_EQ(write(ends[1], "#", 1), 1);
    Command command(arguments);
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::duration<double>(integration::kTestTimeoutSeconds);
    for (int left = 1; left > 0 && std::chrono::steady_clock::now() < deadline;) {
      ASSERT_EQ(ioctl(ends[0], FIONREAD, &left), 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    command.Signal(SIGTERM);
    const CommandResult ended = command.Wait();
    EXPECT_EQ(ended.exit_code, 128 + SIGTERM) << arguments[0] << ": " << ended.output;
  }
  close(ends[0]);
  close(ends[1]);
}

// The signal comes from a process that is not its parent, as from another terminal. Port 1 refuses.
TEST_F(TrainTest, AWorkerStartedByHandThatFindsNoCoordinatorEndsByASignal) {
  const std::string worker = TestedBinary() + " worker " + Path("config.yaml") +
                             " --name a/0 --node a --host 127.0.0.1 --coordinator 127.0.0.1:1 --token-file " +
                             Path("token");
  const CommandResult ended =
      Command({"-c", "unset HOLDFAST_INCARNATION; (umask 077; echo secret > " + Path("token") + "); " + worker + " > " +
                         Path("log") + " 2>&1 & until grep -q 'no connection yet' " + Path("log") +
                         "; do sleep 0.1; done; sh -c \"kill -TERM $!; :\"; wait $!; status=$?; cat " + Path("log") +
                         "; exit $status"},
              "/bin/bash")
          .Wait();
  EXPECT_EQ(ended.exit_code, 128 + SIGTERM) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("stopped by SIGTERM: no coordinator has taken this worker in"));
}

TEST_F(TrainTest, ASecondRunInTheSameDirectoryIsRefusedUnlessToldOtherwise) {
  ASSERT_EQ(Train("a").exit_code, 0);
  const std::string before = ReadAll(directory_ / "a/metrics.jsonl");
  const CommandResult refused = Train("a");
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.output, HasSubstr("--overwrite"));
  const CommandResult nowhere = Train("a", {"--resume", "7"});
  EXPECT_EQ(nowhere.exit_code, 2);
  EXPECT_THAT(nowhere.output, HasSubstr("there is no checkpoint of step 7"));
  const CommandResult led = RunHoldfast(
      {"coordinator", Path("config.yaml"), "--run-dir", Path("a"), "--resume", "7", "--listen", "127.0.0.1:0"});
  EXPECT_EQ(led.exit_code, 2) << led.output;
  EXPECT_THAT(led.output, HasSubstr("there is no checkpoint of step 7"));
  EXPECT_EQ(ReadAll(directory_ / "a/metrics.jsonl"), before);
  EXPECT_EQ(Train("a", {"--overwrite"}).exit_code, 0);
}

struct BadInput {
  const char* name;
  std::vector<std::string> settings;  // --set values; %D is the test's directory
  int exit_code;
  std::vector<std::string> says;
};

class BadInputTest : public TrainTest, public ::testing::WithParamInterface<BadInput> {};

TEST_P(BadInputTest, IsRefusedAndNothingIsLeftBehind) {
  WriteAll(directory_ / "empty.bin", "");
  WriteAll(directory_ / "short.bin", ReadAll(directory_ / "train.bin").substr(0, 5000));
  WriteAll(directory_ / "tiny.bin", ReadAll(directory_ / "train.bin").substr(0, 1024));
  std::string other = ReadAll(directory_ / "train.bin");
  other[1025] = 1;  // the upper byte of the first token
  WriteAll(directory_ / "other.bin", other);
  WriteAll(directory_ / "large.gemm", "");
  fs::resize_file(directory_ / "large.gemm", 17 << 20);
  fs::create_directory(directory_ / "adapters");
  WriteAll(directory_ / "adapters/adapter_config.json", "{}");
  std::vector<std::string> arguments;
  for (std::string setting : GetParam().settings) {
    if (const size_t at = setting.find("%D"); at != std::string::npos) setting.replace(at, 2, directory_.string());
    arguments.insert(arguments.end(), {"--set", setting});
  }
  const CommandResult result = Train("a", arguments);
  EXPECT_EQ(result.exit_code, GetParam().exit_code) << result.output;
  for (const std::string& text : GetParam().says) EXPECT_THAT(result.output, HasSubstr(text));
  EXPECT_FALSE(fs::exists(directory_ / "a/metrics.jsonl"));
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, BadInputTest,
    ::testing::Values(
        BadInput{"MissingFile", {"data.train=[%D/none.bin]"}, 2, {"error: data.train: ", "none.bin", "No such file"}},
        BadInput{"EmptyFile", {"data.train=[%D/empty.bin]"}, 2, {"data.train", "empty.bin"}},
        BadInput{"TruncatedFile", {"data.train=[%D/short.bin]"}, 1, {"error: data.train", "short.bin", "truncated"}},
        BadInput{"NoTokenFile", {"data.train=[%D/text.txt]"}, 2, {"data.train", "text.txt"}},
        BadInput{"TokenBeyondVocabulary", {"model.vocab_size=100", "data.tokenizer=bytes"}, 2, {"vocab"}},
        BadInput{"TokenOfAnotherTokenizer",
                 {"data.train=[%D/other.bin]"},
                 2,
                 {"error: data.train: ", "other.bin: token ", "is beyond the vocabulary of 256"}},
        BadInput{"SequenceLongerThanData",
                 {"batch.sequence_length=100000", "model.max_sequence_length=100000", "batch.microbatch_size=1"},
                 2,
                 {"100000"}},
        BadInput{"MoreMemoryThanThereIs",
                 {"model.vocab_size=16000000", "model.hidden_size=65536", "model.head_dim=64"},  // 42 TiB
                 1,
                 {"needs", "available"}},
        BadInput{"NegativeSteps", {"train.steps=-1"}, 2, {"train.steps"}},
        BadInput{"NcclWithoutGpus",
                 {"train.device=cuda", "parallel.transport=nccl", "elastic.workers=8000"},
                 1,
                 {"error: "}},
        BadInput{"ExpertsThatNoGroupsDivide",
                 {"model.num_experts=6", "model.router_groups=4"},
                 2,
                 {"model.router_groups", "num_experts 6 is not a multiple of router_groups 4"}},
        BadInput{"MoreExpertsForATokenThanThereAre",
                 {"model.num_experts=4", "model.experts_per_token=5"},
                 2,
                 {"model.experts_per_token", "more than num_experts 4"}},
        BadInput{"TwoTyposAtOnce", {"train.stepz=1", "optimizer.lrr=1"}, 2, {"stepz", "steps", "lrr", "lr"}},
        BadInput{"NanLearningRate", {"optimizer.lr=.nan"}, 2, {"optimizer.lr"}},
        BadInput{"GemmTableOnACpu", {"train.gemm_table=%D/text.txt"}, 2, {"train.gemm_table", "train.device"}},
        BadInput{"MissingGemmTable",
                 {"train.device=cuda", "train.gemm_table=%D/none.gemm"},
                 2,
                 {"train.gemm_table", "none.gemm", "holdfast tune"}},
        BadInput{"TooLargeGemmTable", {"train.device=cuda", "train.gemm_table=%D/large.gemm"}, 2, {"16777216"}},
        BadInput{"AnotherGemmTable",
                 {"train.device=cuda", "train.gemm_table=%D/text.txt", "train.gemm_table_digest=0123456789abcdef"},
                 1,
                 {"text.txt", "0123456789abcdef"}},
        BadInput{"MissingSlackWebhook",
                 {"alerts.slack_webhook_file=%D/none"},
                 2,
                 {"error: alerts.slack_webhook_file: ", "none", "No such file"}},
        BadInput{"TooLargePagerDutyKey",
                 {"alerts.pagerduty_key_file=%D/text.txt"},
                 2,
                 {"error: alerts.pagerduty_key_file: ", "text.txt", "at most 4096"}},
        BadInput{"MissingInitialModel", {"train.init_from=%D/none"}, 2, {"train.init_from: ", "none does not exist"}},
        BadInput{"AdaptersAsInitialModel",
                 {"train.init_from=%D/adapters"},
                 2,
                 {"adapters holds adapters, not a model", "--merge", "lora.init_from to them"}},
        BadInput{"InitialModelWithoutConfig",
                 {"train.init_from=%D"},
                 2,
                 {"is no saved model: it has no config.json", "`holdfast ckpt export", "OUT_DIR` writes one"}}),
    [](const auto& bad) { return bad.param.name; });

/// Whether `tune` could not run, for want of a GPU or of a build for one.
bool LacksGpu(const CommandResult& tuned) {
  return tuned.exit_code != 0 && tuned.output.find("error: train.device: cuda") != std::string::npos;
}

TEST_F(TrainTest, TuneIsForGpusAndLeavesNothingWhereThereIsNone) {
  const CommandResult cpu = RunHoldfast({"tune", Path("config.yaml"), "-o", Path("a.gemm")});
  EXPECT_EQ(cpu.exit_code, 2);
  EXPECT_THAT(cpu.output, HasSubstr("train.device"));
  const CommandResult tuned =
      RunHoldfast({"tune", Path("config.yaml"), "--set", "train.device=cuda", "-o", Path("a.gemm")});
  if (!LacksGpu(tuned)) GTEST_SKIP() << "there is a GPU";
  EXPECT_FALSE(fs::exists(directory_ / "a.gemm"));
}

// Nothing is wrong with the config: on another machine, or with another build, it will do.
TEST_F(TrainTest, AMissingGpuIsAFailureOfEveryCommand) {
  for (std::vector<std::string> arguments : std::vector<std::vector<std::string>>{
           {"tune", Path("config.yaml"), "-o", Path("a.gemm")},
           {"validate", Path("config.yaml")},
           {"train", Path("config.yaml"), "--run-dir", Path("a")},
           {"train", Path("config.yaml"), "--run-dir", Path("a"), "--workers", "2"}}) {
    arguments.insert(arguments.end(), {"--set", "train.device=cuda"});
    const CommandResult result = RunHoldfast(arguments);
    if (result.exit_code == 0) GTEST_SKIP() << "there is a GPU";
    EXPECT_EQ(result.exit_code, 1) << arguments[0] << ": " << result.output;
  }
  EXPECT_FALSE(fs::exists(Path("a")));
}

TEST_F(TrainTest, ATunedTableIsTakenAndAnotherOneIsNoticed) {
  const std::vector<std::string> settings{"--set", "train.device=cuda", "--set", "train.gemm_table=" + Path("a.gemm")};
  std::vector<std::string> tune{"tune", Path("config.yaml")};
  tune.insert(tune.end(), settings.begin(), settings.end());
  const CommandResult tuned = RunHoldfast(tune);
  if (LacksGpu(tuned)) GTEST_SKIP() << tuned.output;
  ASSERT_EQ(tuned.exit_code, 0) << tuned.output;
  EXPECT_THAT(tuned.output, HasSubstr("products"));
  const CommandResult one = Train("one", settings);
  ASSERT_EQ(one.exit_code, 0) << one.output;
  EXPECT_THAT(ReadAll(directory_ / "one/config.yaml"), Not(HasSubstr("gemm_table_digest: \"\"")));
  std::vector<std::string> by_two = settings;
  by_two.insert(by_two.end(), {"--workers", "2"});
  const CommandResult two = Train("two", by_two);
  ASSERT_EQ(two.exit_code, 0) << two.output;
  EXPECT_EQ(RunHoldfast({"compare", Path("one"), Path("two")}).exit_code, 0);

  const std::string table = ReadAll(directory_ / "a.gemm");
  WriteAll(directory_ / "a.gemm", table.substr(0, table.rfind('\n', table.size() - 2) + 1));  // a product less
  const CommandResult again = RunHoldfast({"train", Path("one/config.yaml"), "--run-dir", Path("again")});
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.output, HasSubstr("train.gemm_table_digest"));
  std::vector<std::string> more = settings;
  more.insert(more.end(), {"--set", "train.steps=14"});
  EXPECT_THAT(Train("one", more).output, HasSubstr("\n  train.gemm_table_digest: "));
}

TEST_F(TrainTest, AnUnwritableRunDirectoryIsAnErrorBeforeAnythingIsDone) {
  WriteAll(directory_ / "file", "in the way");
  const CommandResult result = Train("file/run");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output, HasSubstr("file: not a directory"));
}

TEST_F(TrainTest, ValidatePrintsWhatTheConfigMeans) {
  const CommandResult result = RunHoldfast({"validate", Path("config.yaml")});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  for (const char* text : {"parameters by module", "FLOPs per token", "optimizer", "activations", "estimated step"}) {
    EXPECT_THAT(result.output, HasSubstr(text));
  }
  EXPECT_THAT(result.output, Not(HasSubstr("learning rates")));
  EXPECT_THAT(result.output, Not(HasSubstr("nothing to compute")));
  EXPECT_THAT(RunHoldfast({"validate", Path("config.yaml"), "--set", "elastic.workers=64"}).output,
              HasSubstr(" workers have nothing to compute: batch.microbatches is "));
  const CommandResult two = RunHoldfast({"validate", Path("config.yaml"), "--workers", "2"});
  EXPECT_EQ(two.exit_code, 0) << two.output;
  EXPECT_THAT(two.output, AllOf(HasSubstr("  workers: 2\n"), HasSubstr("memory of one worker of 2\n")));
  // Of a machine with less than some TiB.
  const std::string too_many = "warning: each worker of this run needs ", large = "batch.microbatch_size=65536";
  EXPECT_THAT(two.output, Not(HasSubstr(too_many)));
  EXPECT_THAT(RunHoldfast({"validate", Path("config.yaml"), "--workers", "8192", "--set", large}).output,
              HasSubstr(too_many));
  EXPECT_THAT(RunHoldfast({"validate", Path("config.yaml"), "--set", "elastic.workers=8192", "--set", large}).output,
              Not(HasSubstr(too_many)))
      << "who may be on other machines";
  EXPECT_THAT(result.output, ContainsRegex("saved as +a [a-z0-9]+ of transformers\n"));
  EXPECT_EQ(RunHoldfast({"validate", Path("none.yaml")}).exit_code, 2);
  const CommandResult own = RunHoldfast({"validate", Path("config.yaml"), "--set", "model.qk_norm=true"});
  EXPECT_THAT(own.output, ContainsRegex("saved as +a model of Holdfast's own, .*, by model\\.qk_norm\n"));
  const CommandResult refused = RunHoldfast({"validate", Path("config.yaml"), "--set", "model.hidden_size=36", "--set",
                                             "model.num_heads=8", "--set", "model.head_dim=8"});
  EXPECT_THAT(refused.output, ContainsRegex("saved as +a llama of transformers, which version 5 refuses to load: "
                                            "model\\.hidden_size is not a multiple of model\\.num_heads\n"));

  const CommandResult groups = RunHoldfast({"validate", Path("config.yaml"), "--set", "optimizer.lr=0.5", "--set",
                                            "optimizer.lr_factors=['embedding.*=0.125']"});
  EXPECT_EQ(groups.exit_code, 0) << groups.output;
  EXPECT_THAT(groups.output, HasSubstr("learning rates"));
  EXPECT_THAT(groups.output, HasSubstr("0.0625 (lr * 0.125)"));
  EXPECT_THAT(groups.output, Not(HasSubstr("parametrization mup")));
  const CommandResult mup = RunHoldfast(
      {"validate", Path("config.yaml"), "--set", "model.parametrization=mup", "--set", "model.base_hidden_size=8"});
  EXPECT_EQ(mup.exit_code, 0) << mup.output;
  EXPECT_THAT(mup.output, ContainsRegex("matrices in blocks +0.5 +0.25 +4 +0.25\n"));
  EXPECT_THAT(mup.output, ContainsRegex("head +0.25 +0.25 +4 +1\n"));
  const CommandResult unknown =
      RunHoldfast({"validate", Path("config.yaml"), "--set", "optimizer.no_decay=['embeding.tokens.weight']"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.output, HasSubstr("did you mean 'embedding.tokens.weight'?"));
}

TEST_F(TrainTest, ValidateSaysWhatDataCannotBeUsed) {
  const CommandResult result = RunHoldfast({"validate", Path("config.yaml"), "--set", "data.train=nope.bin", "--set",
                                            "data.validation=" + Path("text.txt"), "--set", "model.vocab_size=100"});
  EXPECT_EQ(result.exit_code, 2);
  for (const char* text : {"estimated run", "error: data.train: ", "nope.bin", "No such file", "; data.validation: ",
                           "not a token file", "; data.tokenizer: the tokenizer bytes has 256 tokens"}) {
    EXPECT_THAT(result.output, HasSubstr(text));
  }

  const CommandResult epochs =
      RunHoldfast({"validate", Path("config.yaml"), "--set", "data.train=nope.bin", "--set", "train.steps=0", "--set",
                   "train.epochs=2", "--set", "model.vocab_size=100"});
  EXPECT_EQ(epochs.exit_code, 2);
  for (const char* text :
       {"  steps: 0\n", "  epochs: 2\n", "estimated step", "unknown, as is how many steps train.epochs",
        "error: data.train: ", "nope.bin", "; data.tokenizer: the tokenizer bytes"}) {
    EXPECT_THAT(epochs.output, HasSubstr(text));
  }
}

TEST_F(TrainTest, MoreThreadsThanProcessorsAreWarnedOf) {
  const std::string threads = absl::StrCat(2 * AvailableProcessors());
  const CommandResult trained = Train("a", {"--set", "train.threads=" + threads, "--set", "train.steps=1"});
  const CommandResult evaluated = RunHoldfast({"eval", Path("a"), Path("valid.bin"), "--threads", threads});
  for (const CommandResult& result : {trained, evaluated}) {
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_THAT(result.output, HasSubstr("threads is " + threads + ", more than the "));
  }
}

// As data that are not there are.
TEST_F(TrainTest, AModelThatIsNotThereIsAUsageErrorOfEveryCommand) {
  const std::string none = Path("none"), setting = "train.init_from=" + none;
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"train", Path("config.yaml"), "--run-dir", Path("a"), "--set", setting},
           {"train", Path("config.yaml"), "--run-dir", Path("a"), "--workers", "2", "--set", setting},
           {"train", Path("config.yaml"), "--run-dir", Path("a"), "--set", "data.train=" + none},
           {"validate", Path("config.yaml"), "--set", setting},
           {"check-width", Path("config.yaml"), "--set", setting},
           {"ckpt", "import", none, Path("b"), "--config", Path("config.yaml")},
           {"ckpt", "export", none, Path("b")},
           {"ckpt", "diff", none, none},
           {"model", "upcycle", none, Path("b")},
           {"sample", none},
           {"eval", none, Path("valid.bin")},
           {"data", "pack", none, "--out", Path("b")},
           {"data", "show", none},
           {"scaling", "fit", none},
           {"status", none}}) {
    const CommandResult result = RunHoldfast(arguments);
    EXPECT_EQ(result.exit_code, 2) << arguments[0] << ": " << result.output;
    EXPECT_THAT(result.output, HasSubstr(none));
    EXPECT_THAT(result.output, Not(HasSubstr("error: error: ")));
  }
  EXPECT_FALSE(fs::exists(Path("a")));
  EXPECT_FALSE(fs::exists(Path("b")));
}

TEST_F(TrainTest, ValidateSaysWhichWeightsDoNotFit) {
  const CommandResult base = Train("base");
  ASSERT_EQ(base.exit_code, 0) << base.output;
  const std::string file = Path("base/model/config.json");
  WriteAll(file, absl::StrReplaceAll(ReadAll(file), {{"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1"}}));
  const CommandResult result = RunHoldfast({"validate", Path("config.yaml"), "--set",
                                            "train.init_from=" + Path("base/model"), "--set", "model.num_layers=1"});
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_THAT(result.output, HasSubstr("estimated run"));
  EXPECT_THAT(result.output, HasSubstr("tensor \"model.layers.1.mlp.down_proj.weight\" is unexpected"));
}

// One that stands by, too, before it waits: it would find out when it has taken the run from the one that led it.
TEST_F(TrainTest, SecretsOfAlertsThatCannotBeReadAreAnErrorAtOnce) {
  const std::string setting = "alerts.slack_webhook_file=" + Path("none");
  const CommandResult validated = RunHoldfast({"validate", Path("config.yaml"), "--set", setting});
  const CommandResult coordinated = RunHoldfast({"coordinator", Path("config.yaml"), "--run-dir", Path("a"),
                                                 "--standby", "--listen", "127.0.0.1:0", "--set", setting});
  for (const CommandResult& result : {validated, coordinated}) {
    EXPECT_EQ(result.exit_code, 2) << result.output;
    EXPECT_THAT(result.output, HasSubstr("error: alerts.slack_webhook_file: " + Path("none") + ": No such file"));
  }
  EXPECT_FALSE(fs::exists(directory_ / "a"));
}

// What multipliers would do is in the weights: the saved model computes what the run has validated.
TEST_F(TrainTest, AParametrizedModelIsSavedAsItComputes) {
  const auto with = [](const std::string& parametrization, std::vector<std::string> more = {}) {
    for (const char* key : {"model.tie_embeddings=true", "model.num_layers=4", "train.compute_dtype=f32",
                            "optimizer.lr=0.01", "train.validate_every_steps=0", "train.validation_microbatches=0"}) {
      more.insert(more.end(), {"--set", key});
    }
    more.insert(more.end(), {"--set", "model.parametrization=" + parametrization});
    if (parametrization == "standard") return more;
    more.insert(more.end(), {"--set", "model.base_hidden_size=8", "--set", "model.base_num_layers=2"});
    return more;
  };
  const CommandResult a = Train("a", with("completep"));
  ASSERT_EQ(a.exit_code, 0) << a.output;
  const std::string said = "validation loss  ";
  const size_t at = a.output.find(said);
  ASSERT_NE(at, std::string::npos) << a.output;
  const std::string loss = a.output.substr(at + said.size(), 6);
  const CommandResult eval =
      RunHoldfast({"eval", Path("a"), Path("valid.bin"), "--sequence-length", "32", "--dtype", "f32"});
  EXPECT_THAT(eval.output, HasSubstr("loss        " + loss)) << a.output;
  ASSERT_EQ(Train("b", with("completep", {"--workers", "3"})).exit_code, 0);
  EXPECT_EQ(RunHoldfast({"compare", Path("a"), Path("b")}).exit_code, 0);
  ASSERT_EQ(Train("c", with("standard")).exit_code, 0);
  EXPECT_EQ(RunHoldfast({"compare", Path("a"), Path("c")}).exit_code, 1);
}

TEST_F(TrainTest, CheckWidthTellsParametrizationsApart) {
  const auto check = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"check-width", Path("config.yaml")};
    for (const char* key : {"optimizer.lr=0.002", "model.tie_embeddings=true"}) {
      arguments.insert(arguments.end(), {"--set", key});
    }
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunHoldfast(arguments);
  };
  const std::vector<std::string> few = {"--widths", "64,128,256", "--seeds", "4"};
  std::vector<std::string> good = few;
  good.insert(good.end(),
              {"--set", "model.parametrization=mup", "--set", "model.base_hidden_size=64", "--out", Path("pictures")});
  const CommandResult passes = check(good);
  EXPECT_EQ(passes.exit_code, 0) << passes.output;
  EXPECT_THAT(passes.output, HasSubstr("pass: every slope is within 0.05"));
  EXPECT_THAT(ReadAll(directory_ / "pictures/widths.svg"), HasSubstr("stream, half way"));
  EXPECT_FALSE(fs::exists(directory_ / "pictures/depths.svg"));
  const CommandResult fails = check(few);
  EXPECT_EQ(fails.exit_code, 1) << fails.output;
  EXPECT_THAT(fails.output, ContainsRegex("logits .*fail\n"));
  EXPECT_THAT(fails.output, HasSubstr("fail: not every slope is within 0.05"));

  const CommandResult uneven = check({"--widths", "32,40"});
  EXPECT_EQ(uneven.exit_code, 2);
  EXPECT_THAT(uneven.output, HasSubstr("hidden_size 40: model.num_kv_heads 2 of hidden_size 32 would become 2.5; "
                                       "widths that are multiples of 16 keep it whole"));
  EXPECT_THAT(check({"--depths", "3,3"}).output, HasSubstr("error: --depths: a slope takes two sizes"));
  EXPECT_EQ(check({"--widths", "32,0"}).exit_code, 2);
}

// A worker fails with the cause, which the console says, and the run waits for one that can go on; it is not a crash.
TEST_F(TrainTest, AFileThatIsCutShortWhileTrainingIsNamedAndTheRunCanBeStopped) {
  setenv("HOLDFAST_TEST_SLOWDOWN_MS", "5", 1);
  for (const char* workers : {"1", "2"}) {
    const std::string run = std::string("cut") + workers;
    fs::copy_file(Path("train.bin"), Path("cut.bin"), fs::copy_options::overwrite_existing);
    fs::copy_file(Path("train.bin.index"), Path("cut.bin.index"), fs::copy_options::overwrite_existing);
    Command training({"train", Path("config.yaml"), "--run-dir", Path(run), "--workers", workers, "--set",
                      "train.steps=1000000", "--set", "data.train=" + Path("cut.bin")});
    ASSERT_TRUE(training.WaitForOutput("ready in"));
    fs::resize_file(Path("cut.bin"), 2000);
    EXPECT_TRUE(training.WaitForOutput(Path("cut.bin") + ": became shorter while it was read: ends at byte "));
    training.Signal(SIGTERM);
    EXPECT_EQ(training.Wait().exit_code, 128 + SIGTERM);
  }
  unsetenv("HOLDFAST_TEST_SLOWDOWN_MS");
}

TEST_F(TrainTest, DataThatAreNotThoseThatWereIndexedAreRefused) {
  const CommandResult first = Train("a");
  ASSERT_EQ(first.exit_code, 0) << first.output;
  fs::remove(Path("train.bin.index"));
  ASSERT_EQ(Train("b").exit_code, 0) << "without an index";
  EXPECT_EQ(RunHoldfast({"compare", Path("a"), Path("b")}).exit_code, 0);
  EXPECT_EQ(RunHoldfast({"data", "verify", Path("train.bin")}).exit_code, 2) << "nothing is wrong with the file";
  ASSERT_EQ(RunHoldfast({"data", "index", Path("train.bin")}).exit_code, 0);
  EXPECT_EQ(RunHoldfast({"data", "verify", Path("train.bin")}).exit_code, 0);
  std::string tokens = ReadAll(directory_ / "train.bin");
  tokens[1500] ^= 1;
  WriteAll(directory_ / "train.bin", tokens);
  const CommandResult refused = Train("c");
  EXPECT_EQ(refused.exit_code, 1) << refused.output;
  EXPECT_THAT(refused.output, HasSubstr("holdfast data index"));
  const CommandResult verified =
      RunHoldfast({"data", "verify", Path("none.bin"), Path("train.bin"), Path("none.bin"), Path("valid.bin")});
  EXPECT_EQ(verified.exit_code, 1) << "damage is said before what is not there";
  EXPECT_THAT(verified.output, HasSubstr("not what was indexed in 1 of 1 block, the first at byte 1024"));
  EXPECT_THAT(verified.output, HasSubstr("valid.bin  as it was indexed"));
  const CommandResult shown = RunHoldfast({"data", "show", Path("train.bin")});
  EXPECT_EQ(shown.exit_code, 0) << "what is in it can still be seen";
  EXPECT_THAT(shown.output, HasSubstr("is not the file that"));
}

}  // namespace
}  // namespace holdfast::integration
