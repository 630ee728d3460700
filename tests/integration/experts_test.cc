// Proves what a user sees of a mixture of experts, with the real binary: equal bits in any world and after kills, with
// losses and with biases that balance it; that it is saved, exported, loaded and made of a dense model.

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/command.h"
#include "tests/integration/tiny_runs.h"

namespace holdfast::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

using ExpertsTest = TinyRuns;

TEST_F(ExpertsTest, AMixtureOfExpertsHasEqualBitsInAnyWorldAndAfterAKill) {
  const CommandResult one = Train("1", WithExperts());
  ASSERT_EQ(one.exit_code, 0) << one.output;
  const auto expect_equal = [&](const std::string& run) {
    const CommandResult compared = RunHoldfast({"compare", Path("1"), Path(run)});
    EXPECT_EQ(compared.exit_code, 0) << run << ": " << compared.output;
  };
  for (const char* workers : {"2", "3", "4"}) {
    const CommandResult several = Train(
        workers, WithExperts({"--workers", workers, "--set", "train.recompute=block", "--set", "train.threads=1"}));
    ASSERT_EQ(several.exit_code, 0) << several.output;
    expect_equal(workers);
  }
  TrainUntilACheckpoint("killed", WithExperts({"--set", "checkpoint.every_steps=2"}));
  const CommandResult resumed = Train("killed", WithExperts({"--workers", "3"}));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_THAT(resumed.output, HasSubstr("the newest that can be used"));
  expect_equal("killed");
}

TEST_F(ExpertsTest, AMixtureOfExpertsIsSavedExportedAndLoaded) {
  ASSERT_EQ(Train("a", WithExperts()).exit_code, 0);
  EXPECT_EQ(RunHoldfast({"eval", Path("a"), Path("valid.bin"), "--sequence-length", "32"}).exit_code, 0);
  const CommandResult exported = RunHoldfast({"ckpt", "export", Path("a"), Path("out"), "--dtype", "bf16"});
  ASSERT_EQ(exported.exit_code, 0) << exported.output;
  EXPECT_THAT(ReadAll(directory_ / "out/config.json"), HasSubstr("Qwen2MoeForCausalLM"));
  WriteAll(directory_ / "more.yaml", "data: {train: [" + Path("train.bin") +
                                         "]}\nbatch: {sequence_length: 32, microbatch_size: 2}\n"
                                         "train: {steps: 2, init_from: " +
                                         Path("out") + "}\nlog: {sample_bytes: 0}\n");
  const CommandResult more = RunHoldfast({"train", Path("more.yaml"), "--run-dir", Path("b"), "--workers", "2"});
  EXPECT_EQ(more.exit_code, 0) << more.output;
  const CommandResult dense =
      RunHoldfast({"train", Path("more.yaml"), "--run-dir", Path("c"), "--set", "model.num_experts=4"});
  EXPECT_EQ(dense.exit_code, 2);
  EXPECT_THAT(dense.output, HasSubstr("model.num_experts"));
}

TEST_F(ExpertsTest, SinksAndBiasesOfExpertsHaveEqualBitsInAnyWorldAndAfterAKill) {
  const auto with_biases = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments;
    for (const char* key : {"attention_sinks=true", "expert_bias=true", "swiglu_limit=0.5"}) {
      arguments.insert(arguments.end(), {"--set", absl::StrCat("model.", key)});
    }
    arguments.insert(arguments.end(), more.begin(), more.end());
    return WithExperts(arguments);
  };
  ASSERT_EQ(Train("1", with_biases({})).exit_code, 0);
  for (const char* experts : {"gather", "move"}) {
    const CommandResult several =
        Train(experts, with_biases({"--workers", "3", "--set", absl::StrCat("parallel.experts=", experts)}));
    ASSERT_EQ(several.exit_code, 0) << several.output;
    EXPECT_EQ(RunHoldfast({"compare", Path("1"), Path(experts)}).exit_code, 0) << experts;
  }
  TrainUntilACheckpoint("killed", with_biases({"--set", "checkpoint.every_steps=2"}));
  const CommandResult resumed = Train("killed", with_biases({"--workers", "2"}));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(RunHoldfast({"compare", Path("1"), Path("killed")}).exit_code, 0);
  EXPECT_THAT(ReadAll(directory_ / "1/model/config.json"), HasSubstr("\"swiglu_limit\": 0.5"));
  EXPECT_EQ(RunHoldfast({"eval", Path("1"), Path("valid.bin"), "--sequence-length", "32"}).exit_code, 0);
}

TEST_F(ExpertsTest, ABiasBalancesExpertsWithEqualBitsInAnyWorldAndAfterAKill) {
  const auto with_bias = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments;
    for (const char* key : {"router_bias=true", "router_bias_rate=0.01", "router_score=sigmoid", "router_scale=2.5"}) {
      arguments.insert(arguments.end(), {"--set", absl::StrCat("model.", key)});
    }
    arguments.insert(arguments.end(), more.begin(), more.end());
    return WithExperts(arguments);
  };
  const CommandResult one = Train("1", with_bias({}));
  ASSERT_EQ(one.exit_code, 0) << one.output;
  EXPECT_TRUE(fs::exists(directory_ / "1/expert_load.svg"));
  ASSERT_EQ(Train("3", with_bias({"--workers", "3"})).exit_code, 0);
  EXPECT_EQ(RunHoldfast({"compare", Path("1"), Path("3")}).exit_code, 0);
  ASSERT_EQ(Train("still", with_bias({"--set", "model.router_bias_rate=0"})).exit_code, 0);
  EXPECT_EQ(RunHoldfast({"compare", Path("1"), Path("still")}).exit_code, 1) << "the bias changes nothing";
  TrainUntilACheckpoint("killed", with_bias({"--set", "checkpoint.every_steps=2"}));
  const CommandResult resumed = Train("killed", with_bias({"--workers", "2"}));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(RunHoldfast({"compare", Path("1"), Path("killed")}).exit_code, 0);
  // Saved in our own form, with the bias.
  EXPECT_THAT(ReadAll(directory_ / "1/model/config.json"), HasSubstr("\"router_bias\": true"));
  EXPECT_EQ(RunHoldfast({"eval", Path("1"), Path("valid.bin"), "--sequence-length", "32"}).exit_code, 0);
}

// Killed twice, each time resumed by another number of workers, with tokens that travel and with experts that do.
TEST_F(ExpertsTest, AMixtureResumesAtAnotherDegreeOfExpertParallelism) {
  const auto with = [&](const std::string& workers, const std::string& experts) {
    return WithExperts({"--set", "model.expert_capacity=1", "--set", "model.router_jitter=0.1", "--set",
                        "checkpoint.every_steps=2", "--workers", workers, "--set", "parallel.experts=" + experts});
  };
  const CommandResult one = Train("1", with("1", "gather"));
  ASSERT_EQ(one.exit_code, 0) << one.output;
  EXPECT_THAT(ReadAll(directory_ / "1/metrics.jsonl"), HasSubstr("\"dropped_choices\""));
  TrainUntilACheckpoint("killed", with("2", "move"));
  TrainUntilACheckpoint("killed", with("3", "gather"));
  const CommandResult resumed = Train("killed", with("4", "move"));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_THAT(resumed.output, HasSubstr("the newest that can be used"));
  const CommandResult compared = RunHoldfast({"compare", Path("1"), Path("killed")});
  EXPECT_EQ(compared.exit_code, 0) << compared.output;
  ASSERT_EQ(Train("dropless", WithExperts({"--set", "model.router_jitter=0.1"})).exit_code, 0);
  EXPECT_EQ(RunHoldfast({"compare", Path("1"), Path("dropless")}).exit_code, 1) << "nothing was dropped";
}

TEST_F(ExpertsTest, AMissingExpertIsNamedAndNothingIsLeftBehind) {
  ASSERT_EQ(Train("a", WithExperts()).exit_code, 0);
  const fs::path weights = directory_ / "a/model/model.safetensors";
  std::string bytes = ReadAll(weights);
  const std::string expert = "model.layers.1.mlp.experts.4.up_proj.weight";
  const size_t at = bytes.find(expert);
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, expert.size(), "model.layers.1.mlp.experts.9.up_proj.weight");
  WriteAll(weights, bytes);
  const CommandResult trained = Train("b", WithExperts({"--set", "train.init_from=" + Path("a/model")}));
  EXPECT_EQ(trained.exit_code, 2);
  EXPECT_THAT(trained.output, HasSubstr(expert));
  EXPECT_FALSE(fs::exists(directory_ / "b/metrics.jsonl"));
  std::vector<std::string> arguments{"ckpt", "import", Path("a/model"), Path("c"), "--config", Path("config.yaml")};
  for (const std::string& argument : WithExperts()) arguments.push_back(argument);
  const CommandResult imported = RunHoldfast(arguments);
  EXPECT_EQ(imported.exit_code, 2);
  EXPECT_THAT(imported.output, HasSubstr(expert));
  EXPECT_TRUE(!fs::exists(directory_ / "c") || fs::is_empty(directory_ / "c"));
}

TEST_F(ExpertsTest, BiasesOfRoutersBeginAtZeroInARunFromAModelWithout) {
  ASSERT_EQ(Train("a", WithExperts()).exit_code, 0);
  WriteAll(directory_ / "more.yaml", "data: {train: [" + Path("train.bin") +
                                         "]}\nbatch: {sequence_length: 32, microbatch_size: 2}\n"
                                         "train: {steps: 2, init_from: " +
                                         Path("a/model") + "}\nlog: {sample_bytes: 0}\n");
  const auto more = [&](const std::string& name, std::vector<std::string> settings) {
    std::vector<std::string> arguments{"train", Path("more.yaml"), "--run-dir", Path(name)};
    for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    return RunHoldfast(arguments);
  };
  const CommandResult without = more("without", {});
  EXPECT_EQ(without.exit_code, 0) << without.output;
  EXPECT_THAT(without.output, Not(HasSubstr("biases of 0")));
  // A rate of 0 leaves biases as they are.
  const CommandResult with = more("with", {"model.router_bias=true", "model.router_bias_rate=0"});
  ASSERT_EQ(with.exit_code, 0) << with.output;
  EXPECT_THAT(with.output,
              HasSubstr("a/model/config.json has none; a run that starts from it begins with biases of 0"));
  const auto losses = [&](const std::string& name) {
    std::vector<std::string> bits;
    const std::string lines = ReadAll(directory_ / name / "metrics.jsonl");
    for (size_t at = lines.find("\"loss_bits\""); at != std::string::npos; at = lines.find("\"loss_bits\"", at + 1)) {
      bits.push_back(lines.substr(at, 24));
    }
    return bits;
  };
  EXPECT_EQ(losses("with").size(), 2u);
  EXPECT_EQ(losses("with"), losses("without"));
  // A model that has them gives them on, and does not lose them.
  WriteAll(directory_ / "more.yaml", "data: {train: [" + Path("train.bin") +
                                         "]}\nbatch: {sequence_length: 32, microbatch_size: 2}\n"
                                         "train: {steps: 2, init_from: " +
                                         Path("with/model") + "}\nlog: {sample_bytes: 0}\n");
  EXPECT_EQ(more("on", {}).exit_code, 0);
  EXPECT_THAT(ReadAll(directory_ / "on/model/config.json"), HasSubstr("\"router_bias\": true"));
  const CommandResult lost = more("lost", {"model.router_bias=false"});
  EXPECT_EQ(lost.exit_code, 2);
  EXPECT_THAT(lost.output, HasSubstr("model.router_bias"));
  EXPECT_FALSE(fs::exists(directory_ / "lost"));
}

TEST_F(ExpertsTest, ADenseModelIsUpcycledAndTrainedOn) {
  ASSERT_EQ(Train("a", {"--set", "model.family=llama"}).exit_code, 0);
  const CommandResult made = RunHoldfast({"model", "upcycle", Path("a/model"), Path("moe"), "--experts", "4"});
  ASSERT_EQ(made.exit_code, 0) << made.output;
  EXPECT_THAT(made.output, HasSubstr("mixtral with 4 experts, 2 for a token"));
  const CommandResult of_one =
      RunHoldfast({"model", "upcycle", Path("a/model"), Path("of_one"), "--experts", "1", "--experts-per-token", "1"});
  EXPECT_THAT(of_one.output, HasSubstr("mixtral with 1 expert, 1 for a token"));
  EXPECT_THAT(ReadAll(directory_ / "moe/config.json"), HasSubstr("MixtralForCausalLM"));
  WriteAll(directory_ / "more.yaml", "data: {train: [" + Path("train.bin") +
                                         "]}\nbatch: {sequence_length: 32, microbatch_size: 2}\n"
                                         "train: {steps: 2, init_from: " +
                                         Path("moe") + "}\nlog: {sample_bytes: 0}\n");
  const CommandResult more = RunHoldfast({"train", Path("more.yaml"), "--run-dir", Path("b"), "--workers", "2"});
  EXPECT_EQ(more.exit_code, 0) << more.output;
  const CommandResult again = RunHoldfast({"model", "upcycle", Path("a/model"), Path("moe")});
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.output, HasSubstr("there is something already"));
}

}  // namespace
}  // namespace holdfast::integration
