// Proves that a metric that no trial can have is refused before one begins, as far as the config and the headers of its
// token files say; and that one which a step says only where it differs is read of any step.

#include "elastic/sweep/trial_setup.h"

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elastic/sweep/trial_reading.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/models/runtime/tiny_run.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class TrialSetupTest : public TinyRun {
 protected:
  void WriteMarked(const std::string& name) {
    LocalFileAccess files;
    auto writer = TokenFileWriter::Create(files, root_ / name, {.bytes_per_token = 4, .has_marks = true});
    ASSERT_TRUE(writer.ok()) << writer.status();
    std::vector<uint32_t> tokens(200, 5);
    tokens[40] |= kNotLearned;
    ASSERT_TRUE((*writer)->AppendMarked(tokens).ok());
    ASSERT_TRUE((*writer)->Finish().ok());
  }
  std::string Marked() { return absl::StrCat("data.train=[", root_ / "train.bin", ",", root_ / "marked.bin", "]"); }
  absl::Status Check(const std::string& metric, const std::vector<std::string>& base = {},
                     std::vector<search::Dimension> dimensions = {
                         {.name = "optimizer.lr", .low = 1e-3, .high = 1e-2, .condition = {}}}) {
    const auto space = search::SearchSpace::Create(std::move(dimensions));
    if (!space.ok()) return space.status();
    return CheckEveryTrial(SweepFor(metric), LoadOf(base), *space);
  }
  static SweepConfig SweepFor(const std::string& metric) {
    SweepConfig sweep;
    sweep.metric = metric;
    return sweep;
  }
  LoadTrialFn LoadOf(const std::vector<std::string>& base) {
    return [this, base](const std::vector<std::string>& overrides) {
      std::vector<std::string> all = base;
      all.insert(all.end(), overrides.begin(), overrides.end());
      return absl::StatusOr<Config>(ConfigOf(all));
    };
  }
};

// It was noticed when the first trial had been trained.
TEST_F(TrialSetupTest, LearnedTokensAreNoMetricWhereEveryTokenIsLearned) {
  const absl::Status plain = Check("learned_tokens");
  EXPECT_TRUE(absl::IsInvalidArgument(plain)) << plain;
  EXPECT_THAT(std::string(plain.message()),
              AllOf(HasSubstr("every token of data.train is learned"), HasSubstr("a trial's run has training_loss")));
  const auto trial = SetUpTrial(SweepFor("learned_tokens"), LoadOf({}), {}, 0);
  EXPECT_TRUE(absl::IsInvalidArgument(trial.status())) << trial.status();

  WriteMarked("marked.bin");
  EXPECT_TRUE(Check("learned_tokens", {Marked()}).ok());
  const absl::Status masked = Check("learned_tokens", {"data.document_mask=true"});
  EXPECT_TRUE(masked.ok()) << masked;
  // One trial has it: the others fail by themselves.
  const absl::Status some = Check(
      "learned_tokens", {},
      {{.name = "data.document_mask", .scale = search::Scale::kChoice, .choices = {"false", "true"}, .condition = {}}});
  EXPECT_TRUE(some.ok()) << some;
}

// Else a worker of a trial of a lower rung would find that its steps are not its epochs.
TEST_F(TrialSetupTest, ATrialHasTheStepsOfItsEpochsAlone) {
  SweepConfig sweep = SweepFor("training_loss");
  sweep.strategy.rungs = 3;
  sweep.strategy.reduction = 2;
  const auto trial = SetUpTrial(sweep, LoadOf({"train.epochs=2"}), {}, 0);
  ASSERT_TRUE(trial.ok()) << trial.status();
  EXPECT_EQ(trial->config.train.steps, 3);
  EXPECT_EQ(trial->config.train.epochs, 0);
}

TEST_F(TrialSetupTest, AMetricThatThereIsNotIsRefusedWithThoseThatThereAre) {
  const absl::Status plain = Check("nothing");
  EXPECT_TRUE(absl::IsInvalidArgument(plain)) << plain;
  EXPECT_THAT(std::string(plain.message()), AllOf(HasSubstr("training_loss"), Not(HasSubstr("learned_tokens"))));
  WriteMarked("marked.bin");
  EXPECT_THAT(std::string(Check("nothing", {Marked()}).message()), HasSubstr("training_loss, learned_tokens"));
  EXPECT_FALSE(Check("router_entropy").ok()) << "of a model without experts";
  EXPECT_TRUE(Check("training_loss").ok());
}

TEST_F(TrialSetupTest, AStepOfWhichEveryTokenIsLearnedHasLearnedTokens) {
  const RunDirectory run(root_ / "run");
  ASSERT_TRUE(run.Create(/*overwrite=*/false).ok() && run.WriteConfig("").ok());
  TrialSetup trial;
  trial.config.train.steps = 2;
  const auto value_of = [&](int64_t learned) {
    std::ofstream file(run.metrics());
    for (int64_t step = 1; step <= 2; ++step) {
      StepMetrics line;
      line.step = step;
      line.tokens = step * 64;
      if (learned < 64) line.figures = {{.name = "learned_tokens", .values = {static_cast<double>(learned)}}};
      file << line.ToJson() << "\n";
    }
    file.close();
    const auto reading = ReadTrial(run, trial, 0, "learned_tokens");
    EXPECT_TRUE(reading.ok() && reading->result.has_value()) << reading.status();
    return reading.ok() && reading->result.has_value() ? reading->result->value : -1;
  };
  EXPECT_EQ(value_of(40), 40);
  EXPECT_EQ(value_of(64), 64);
}

// The first train.validation_microbatches microbatches are more sequences the larger they are.
TEST_F(TrialSetupTest, TrialsThatAreValidatedOnOtherSequencesAreToldApart) {
  WriteTokens("valid.bin", 97);  // 249 sequences of 16
  const auto differs = [&](const std::string& metric, const std::vector<std::string>& base, const std::string& key,
                           const std::vector<std::string>& choices) {
    std::vector<std::string> all{absl::StrCat("data.validation=[", root_ / "valid.bin", "]")};
    all.insert(all.end(), base.begin(), base.end());
    const auto space = search::SearchSpace::Create(
        {{.name = key, .scale = search::Scale::kChoice, .choices = choices, .condition = {}}});
    EXPECT_TRUE(space.ok()) << space.status();
    return ValidationDifference(SweepFor(metric), LoadOf(all), *space);
  };
  const std::string size = "batch.microbatch_size";
  EXPECT_THAT(differs("validation_loss", {}, size, {"2", "4"}),
              HasSubstr("on 16 and on 32 sequences of data.validation"));
  EXPECT_EQ(differs("validation_loss", {}, "batch.microbatches", {"2", "4"}), "");
  EXPECT_EQ(differs("validation_loss", {"train.validation_microbatches=0"}, size, {"2", "4"}), "");
  EXPECT_EQ(differs("validation_loss", {"train.validation_microbatches=125"}, size, {"2", "4"}), "") << "all of it";
  EXPECT_EQ(differs("training_loss", {}, size, {"2", "4"}), "");
  EXPECT_THAT(differs("validation_loss", {}, "batch.sequence_length", {"8", "16"}),
              HasSubstr("trials differ in batch.sequence_length"));
}

}  // namespace
}  // namespace holdfast
