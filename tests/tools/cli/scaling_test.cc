// Proves the commands of `holdfast scaling`, without a process: what they write and read back, which runs are taken,
// and what is refused: runs that have not ended, runs of another config than was predicted, bad files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "elastic/coordinator/event_json.h"
#include "elastic/sweep/sweep_record.h"
#include "framework/base/files.h"
#include "framework/config/load.h"
#include "framework/scaling/fit_file.h"
#include "framework/scaling/prediction_file.h"
#include "framework/storage/atomic_file.h"
#include "tests/framework/base/temporary_directory.h"
#include "tests/framework/data/token_test_files.h"
#include "tools/cli/run_record.h"
#include "tools/cli/scaling_command.h"
#include "tools/cli/scaling_runs.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string MessageOf(const absl::StatusOr<int>& result) { return std::string(result.status().message()); }
std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

class Scaling : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string csv = "parameters,tokens,loss,learning_rate\n";
    for (const double n : {1e5, 3e5, 1e6, 3e6}) {
      for (const double d : {1e6, 4e6, 2e7, 6e7}) {
        absl::StrAppend(&csv, n, ",", d, ",", 1.5 + 60 / std::pow(n, 0.4) + 400 / std::pow(d, 0.4), ",\n");
      }
      for (const double factor : {0.5, 1.0, 2.0}) {  // a sweep of learning rates: two of three are not the best
        absl::StrAppend(&csv, n, ",1e8,",
                        1.5 + 60 / std::pow(n, 0.4) + 400 / std::pow(1e8, 0.4) + (factor == 1 ? 0 : 0.02), ",",
                        factor * 2 * std::pow(n, -0.5), "\n");
      }
    }
    Write("runs.csv", csv);
    Write("config.yaml",
          "run: {name: tiny}\n"
          "model: {family: llama, vocab_size: 256, num_layers: 2, hidden_size: 32, num_heads: 4,\n"
          "        num_kv_heads: 2, intermediate_size: 64, max_sequence_length: 32}\n"
          "data: {train: [train.bin]}\n"
          "batch: {sequence_length: 32, microbatch_size: 2, microbatches: 2}\n"
          "train: {steps: 40, threads: 1}\n");
  }

  void Write(const std::string& name, const std::string& text) const {
    ASSERT_TRUE(WriteFileAtomically(Path(name), text).ok());
  }
  std::string Path(const std::string& name) const { return directory_ / name; }
  std::string Read(const std::string& name) const { return *ReadFile(Path(name), 1 << 24); }

  ScalingNextCommand NextCommand(const std::string& fit) const {
    ScalingNextCommand command;
    command.fit = Path(fit);
    command.parameters = 1e8;
    command.tokens = 2e9;
    command.flops_max = 1e16;
    return command;
  }
  ScalingOptimumCommand OptimumCommand(const std::string& fit) const {
    ScalingOptimumCommand command;
    command.fit = Path(fit);
    command.budgets = {1e18};
    return command;
  }
  ScalingFitCommand FitCommand(const std::string& out) const {
    ScalingFitCommand fit;
    fit.runs = {Path("runs.csv")};
    fit.options.resamples = 50;
    fit.out = Path(out);
    fit.budgets = {1e15};
    return fit;
  }
  absl::StatusOr<int> Predict(const std::vector<std::string>& overrides = {}, bool overwrite = false) const {
    ScalingPredictCommand predict;
    predict.fit = Path("fit/fit.json");
    predict.config.path = Path("config.yaml");
    predict.config.overrides = overrides;
    predict.out = Path("prediction.json");
    predict.overwrite = overwrite;
    return predict.Run();
  }

  /// What a run of the config leaves behind: `steps` of it, and how it ended.
  void WriteRun(const std::string& name, int steps, const std::vector<RunEvent>& events,
                const std::vector<std::string>& overrides = {}) const {
    ConfigArguments arguments;
    arguments.path = Path("config.yaml");
    arguments.overrides = overrides;
    const auto config = arguments.Load();
    ASSERT_TRUE(config.ok()) << config.status();
    const RunDirectory run(Path(name));
    ASSERT_TRUE(run.Create(/*overwrite=*/false).ok());
    std::string metrics, lines;
    for (int step = 1; step <= steps; ++step) {
      StepMetrics line;
      line.step = step;
      line.loss = step > 30 ? 2.0F : 9.0F;
      line.tokens = step * 128;
      absl::StrAppend(&metrics, line.ToJson(), "\n");
    }
    for (const RunEvent& event : events) absl::StrAppend(&lines, EventLine(1.7e9, event), "\n");
    Write(name + "/config.yaml", PrintConfig(*config));
    Write(name + "/metrics.jsonl", metrics);
    Write(name + "/events.jsonl", lines);
  }
  static RunEvent Validated(int64_t step, double loss) {
    event::Validation validation;
    validation.step = step;
    validation.loss = loss;
    return validation;
  }
  absl::StatusOr<int> Compare(const std::string& run) const {
    ScalingCompareCommand compare;
    compare.prediction = Path("prediction.json");
    compare.run_dir = Path(run);
    return compare.Run();
  }

  const TemporaryDirectory directory_;
};

TEST_F(Scaling, FitWritesWhatItSays) {
  ASSERT_EQ(FitCommand("fit").Run().value(), kExitDone);
  const auto fit = ReadFit(Path("fit/fit.json"));
  ASSERT_TRUE(fit.ok()) << fit.status();
  EXPECT_NEAR(fit->law.exponents[0], 0.4, 0.01);
  EXPECT_NEAR(fit->law.exponents[1], 0.4, 0.01);
  EXPECT_EQ(fit->runs.size(), 20u) << "of those that differ in their learning rate alone one each";
  EXPECT_THAT(Read("fit/values.csv"), StartsWith("value,fitted,low,high,note\nE,1."));
  EXPECT_THAT(Read("fit/values.json"), HasSubstr("\"value\": \"b\""));
  EXPECT_THAT(Read("fit/runs.csv"), HasSubstr("line 2,100000,100000,1000000,"));
  EXPECT_THAT(Read("fit/optimum.csv"), HasSubstr("\n1000000000000000,"));
  EXPECT_THAT(Read("fit/learning_rate.csv"), HasSubstr("\n1000000,100000000,0.00"));
  const std::string page = Read("fit/report.html");
  for (const char* file : {"loss.svg", "frontier.svg"}) {
    const std::string picture = Read(absl::StrCat("fit/", file));
    EXPECT_THAT(picture, HasSubstr("fill-opacity"));
    EXPECT_THAT(page, HasSubstr(picture));
  }
  EXPECT_THAT(page, HasSubstr(Read("fit/learning_rate.svg")));
  EXPECT_THAT(page, HasSubstr("best sizes"));
}

// runs.csv is the name of a file of the fit, and the one that people give to what they fit.
TEST_F(Scaling, WhatIsWrittenReplacesOnlyItsLike) {
  const std::string runs = Read("runs.csv"), config = Read("config.yaml");
  EXPECT_THAT(MessageOf(FitCommand(".").Run()), HasSubstr("there is something already that is no fit"));
  EXPECT_EQ(Read("runs.csv"), runs);
  std::filesystem::create_directory(Path("fit"));
  ASSERT_TRUE(FitCommand("fit").Run().ok()) << "an empty directory";
  ASSERT_TRUE(FitCommand("fit").Run().ok()) << "over its own";
  ScalingPredictCommand predict;
  predict.fit = Path("fit/fit.json");
  predict.config.path = predict.out = Path("config.yaml");
  for (const bool overwrite : {false, true}) {
    predict.overwrite = overwrite;
    EXPECT_THAT(MessageOf(predict.Run()), HasSubstr("config.yaml: there is something already that is no prediction"));
    EXPECT_EQ(Read("config.yaml"), config);
  }
}

// One that is made when the loss is known, in the place of the one that was made before, predicts nothing.
TEST_F(Scaling, APredictionIsReplacedByWordOnly) {
  ASSERT_TRUE(FitCommand("fit").Run().ok());
  Write("prediction.json", "");
  ASSERT_TRUE(Predict().ok()) << "an empty file, as mktemp makes it";
  const std::string first = Read("prediction.json");
  const auto again = Predict({"train.steps=80"});
  EXPECT_TRUE(absl::IsAlreadyExists(again.status())) << again.status();
  EXPECT_THAT(MessageOf(again), HasSubstr("prediction.json: there is a prediction already, for run 'tiny', made at 2"));
  EXPECT_THAT(MessageOf(again), HasSubstr("give another name, or pass --overwrite"));
  EXPECT_EQ(Read("prediction.json"), first);
  ASSERT_TRUE(Predict({"train.steps=80"}, /*overwrite=*/true).ok());
  EXPECT_EQ(ReadPrediction(Path("prediction.json"))->size.tokens, 80 * 128);
}

TEST_F(Scaling, FitTakesSweeps) {
  std::filesystem::create_directory(Path("sweep"));
  std::filesystem::rename(Path("runs.csv"), Path("sweep/scaling.csv"));
  ScalingFitCommand command = FitCommand("fit");
  command.runs = {Path("sweep")};
  ASSERT_EQ(command.Run().value(), kExitDone);
  EXPECT_EQ(ReadFit(Path("fit/fit.json"))->runs.size(), 20u);
}

TEST_F(Scaling, OfASweepTrialsThatCameToTheirEndCount) {
  SweepConfig sweep;
  sweep.parallel = 7;
  sweep.budget.trials = 7;
  sweep.space = {{.name = "x", .scale = search::Scale::kChoice, .choices = {"a", "b", "c", "d", "e", "f", "g"}}};
  const auto space = search::SearchSpace::Create(sweep.space);
  const auto strategy = search::MakeStrategy(*space, {.name = "grid"});
  SweepPlan plan(sweep, **strategy, [this](const search::Point& point, int64_t) -> absl::StatusOr<TrialSetup> {
    const char x = std::get<std::string>(point.at("x"))[0];
    ConfigArguments arguments;
    arguments.path = Path("config.yaml");
    TrialSetup setup;
    setup.config = *arguments.Load();
    setup.config.data.train = {Path(x == 'a' ? "train.bin" : "none.bin")};
    setup.config.optimizer.lr = x == 'a' ? 0.5 : 0.25;
    if (x == 'b') setup.config.schedule.total_steps = 120;  // a rung: its rate has not come to its end
    if (x == 'c') setup.config.schedule.name = ScheduleKind::kConstant, setup.config.schedule.total_steps = 120;
    if (x == 'd') setup.config.train.only = {"lm_head"};   // a part of the model
    if (x == 'f') setup.config.schedule.decay_steps = 41;  // a cosine that is longer than the run
    if (x == 'g') setup.config.train.init_from = "a_model";
    return setup;
  });
  while (!plan.done()) {
    for (const PlannedTrial& trial : plan.trials()) {
      if (trial.result.has_value()) continue;
      const bool measured = trial.number != 4;
      plan.Tell(trial.number, {.measured = measured, .value = 2.0 + trial.number, .steps = 40, .reason = "no"});
      break;
    }
  }
  const std::vector<int32_t> tokens(1000, 1);
  WriteTokens(Path("train.bin"), tokens);
  PassTokens passes;
  const std::vector<Observation> seen = TrialObservations(sweep, plan, passes);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].name, "trial 0");
  EXPECT_EQ(seen[0].loss, 2.0);
  EXPECT_EQ(seen[0].learning_rate, 0.5);
  EXPECT_EQ(seen[0].size.tokens, 40 * 128);
  EXPECT_EQ(seen[0].size.parameters, RunSizeOf(plan.trials()[0].setup->config).parameters);
  EXPECT_EQ(seen[0].data_tokens, 31 * 32);
  EXPECT_EQ(seen[1].name, "trial 2");
  EXPECT_EQ(seen[1].data_tokens, std::nullopt);
  sweep.metric = "router_entropy";
  EXPECT_TRUE(TrialObservations(sweep, plan, passes).empty());
}

TEST_F(Scaling, EveryTimeTheSameBytes) {
  ScalingFitCommand once = FitCommand("once"), again = FitCommand("again");
  once.threads = 1;
  again.threads = 5;
  ASSERT_TRUE(once.Run().ok());
  ASSERT_TRUE(again.Run().ok());
  for (const auto& file : std::filesystem::directory_iterator(Path("once"))) {
    const std::string name = file.path().filename().string();
    EXPECT_EQ(Read("once/" + name), Read("again/" + name)) << name;
  }
}

TEST_F(Scaling, FitRefusesBadFilesAndRuns) {
  ScalingFitCommand fit = FitCommand("fit");
  Write("bad.csv", "parameters,tokens,loss\n1e6,1e9,low\n");
  fit.runs = {Path("bad.csv")};
  EXPECT_THAT(MessageOf(fit.Run()), HasSubstr("bad.csv:2: loss 'low' is no number"));
  fit.runs = {Path("none.csv")};
  EXPECT_THAT(MessageOf(fit.Run()), HasSubstr("none.csv"));
  std::filesystem::create_directory(Path("empty"));
  fit.runs = {Path("empty")};
  EXPECT_THAT(MessageOf(fit.Run()), HasSubstr("empty is not the directory of a run"));
  Write("empty/sweep.yaml", "sweep: {}\n");
  EXPECT_THAT(MessageOf(fit.Run()), HasSubstr("empty has no trial yet that can be fitted"));
  Write("one.csv", "parameters,tokens,loss\n1e6,1e9,3\n");
  Write("rates.csv", "parameters,tokens,loss,learning_rate\n1e6,1e9,3,0.1\n1e6,1e9,4,0.2\n");
  fit.runs = {Path("rates.csv")};
  EXPECT_THAT(MessageOf(fit.Run()),
              HasSubstr("of 2 runs those with the best learning rate and batch of their size: 1 run; a fit of"));
  fit.runs = {Path("one.csv"), Path("./one.csv")};
  EXPECT_THAT(MessageOf(fit.Run()), HasSubstr("./one.csv is named twice"));
  EXPECT_FALSE(std::filesystem::exists(Path("fit")));
}

TEST_F(Scaling, ARunSaysItsSizeAndWhereItEnded) {
  WriteRun("validated", 40,
           {event::RunStarted{.data_tokens = 99}, event::RunStarted{.data_tokens = 1024}, Validated(20, 3.0),
            Validated(40, 2.5), event::RunFinished{}});
  const auto run = ReadFinishedRun(Path("validated"));
  ASSERT_TRUE(run.ok()) << run.status();
  // Embedding and head of 256 x 32; in a layer q, o of 32 x 32, k, v of 16 x 32, three of 64 x 32, two norms of 32.
  EXPECT_EQ(run->observation.size.parameters, 2 * 8192 + 2 * (2 * 1024 + 2 * 512 + 3 * 2048 + 64) + 32);
  EXPECT_EQ(run->observation.size.active, run->observation.size.parameters);
  EXPECT_EQ(run->observation.size.tokens, 40 * 128);
  EXPECT_EQ(run->observation.batch_tokens, 128);
  EXPECT_EQ(run->observation.data_tokens, 1024);
  EXPECT_GT(run->observation.flops, 6 * 9000.0 * 40 * 128);
  EXPECT_EQ(run->observation.loss, 2.5);
  EXPECT_EQ(run->loss_from, "validation after step 40");

  WriteRun("not_validated", 40, {event::RunFinished{}});
  const auto other = ReadFinishedRun(Path("not_validated"));
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->observation.loss, 2.0);
  EXPECT_EQ(other->observation.data_tokens, std::nullopt);
  EXPECT_EQ(other->loss_from, "mean of training steps 31 to 40");

  // Of a run of 20 steps that was resumed without data.validation.
  WriteRun("validated_before", 40,
           {Validated(20, 3.0), event::RunFinished{}, event::RunStarted{}, event::RunFinished{}});
  const auto longer = ReadFinishedRun(Path("validated_before"));
  ASSERT_TRUE(longer.ok()) << longer.status();
  EXPECT_EQ(longer->observation.loss, 2.0) << "not that of half of its tokens";
}

TEST_F(Scaling, RunsThatWereValidatedOnOtherTextAreToldApart) {
  const std::vector<RunEvent> events = {Validated(40, 2.5), event::RunFinished{}};
  WriteRun("small", 40, events);
  WriteRun("alike", 40, events, {"model.hidden_size=64"});
  WriteRun("large", 40, events, {"batch.microbatch_size=4", "batch.microbatches=1"});
  WriteRun("whole", 40, events, {"train.validation_microbatches=0"});
  EXPECT_EQ(ReadFinishedRun(Path("large"))->validated_on, "the first 32 sequences of 32 tokens of data.validation");
  EXPECT_EQ(ReadFinishedRun(Path("whole"))->validated_on, "all sequences of 32 tokens of data.validation");
  const auto said = [&](const std::vector<std::string>& runs) {
    ScalingFitCommand fit;
    for (const std::string& run : runs) fit.runs.push_back(Path(run));
    testing::internal::CaptureStderr();
    EXPECT_FALSE(fit.Run().ok()) << "too few";
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said({"small", "alike"}), testing::Not(HasSubstr("of the same text")));
  EXPECT_THAT(said({"small", "large"}),
              HasSubstr("small is of the first 16 sequences of 32 tokens of data.validation, that of"));
}

// Else a law is fitted to runs of two optimizers, and the best learning rate is one of their mean.
TEST_F(Scaling, RunsThatDifferInMoreThanALawKnowsAreNamed) {
  const std::vector<RunEvent> events = {Validated(40, 2.5), event::RunFinished{}};
  const auto said = [&](const std::vector<std::string>& runs) {
    ScalingFitCommand fit;
    for (const std::string& run : runs) fit.runs.push_back(Path(run));
    testing::internal::CaptureStderr();
    EXPECT_THAT(MessageOf(fit.Run()), HasSubstr("; a fit of the")) << "too few, but all of them are read";
    return testing::internal::GetCapturedStderr();
  };
  WriteRun("base", 40, events);
  WriteRun("wide", 40, events, {"model.hidden_size=64", "model.intermediate_size=128", "model.num_layers=3"});
  WriteRun("short", 20, {Validated(20, 3.0), event::RunFinished{}}, {"train.steps=20", "schedule.warmup_steps=2"});
  WriteRun("rate", 40, events, {"optimizer.lr=0.01"});
  WriteRun("seed", 40, events, {"run.seed=2"});
  WriteRun("batch", 40, events, {"batch.microbatches=4", "batch.microbatch_size=1"});
  WriteRun("place", 40, events, {"train.threads=3", "log.every_steps=5", "checkpoint.keep_last=3", "run.name=other"});
  EXPECT_THAT(said({"base", "wide", "short", "rate", "seed", "batch", "place"}),
              testing::Not(HasSubstr("the runs differ in")));

  WriteRun("lion", 40, events, {"optimizer.name=lion", "optimizer.lr=0.01"});
  EXPECT_THAT(said({"base", "wide", "lion"}),
              HasSubstr("the runs differ in optimizer.name (adamw, lion): a law takes"));
  std::vector<std::string> decays = {"base", "lion"};
  for (const char* decay : {"0.25", "0.5", "0.75", "1.5", "2.5"}) {
    decays.push_back(absl::StrCat("decay_", decay));
    WriteRun(decays.back(), 40, events, {absl::StrCat("optimizer.weight_decay=", decay)});
  }
  EXPECT_THAT(said(decays),
              HasSubstr("optimizer.name (adamw, lion), optimizer.weight_decay (0.1, 0.25, 0.5, 0.75 and 2 more): a"));
}

// Loss on other data is another function of size and tokens. The same data may lie elsewhere.
TEST_F(Scaling, RunsOfOtherDataAreNamed) {
  const auto write = [this](const std::string& name, int64_t tokens, const std::vector<std::string>& overrides) {
    event::RunStarted started;
    started.data_tokens = tokens;
    WriteRun(name, 40, {started, Validated(40, 2.5), event::RunFinished{}}, overrides);
  };
  const auto said = [&](const std::vector<std::string>& runs) {
    ScalingFitCommand fit;
    for (const std::string& run : runs) fit.runs.push_back(Path(run));
    testing::internal::CaptureStderr();
    EXPECT_THAT(MessageOf(fit.Run()), HasSubstr("; a fit of the")) << "too few, but all of them are read";
    return testing::internal::GetCapturedStderr();
  };
  write("base", 6400, {"data.validation=[v.bin]"});
  write("elsewhere", 6400, {"data.train=[/data/train.bin]", "data.validation=[/data/v.bin]"});
  write("longer", 6336, {"batch.sequence_length=64", "model.max_sequence_length=64", "data.validation=[v.bin]"});
  write("of_long_ago", 0, {"data.validation=[v.bin]"});
  EXPECT_THAT(said({"base", "elsewhere", "longer", "of_long_ago"}), testing::Not(HasSubstr("the runs differ in")));
  write("renamed", 6400, {"data.train=[other.bin]", "data.validation=[v.bin]"});
  EXPECT_THAT(
      said({"base", "renamed"}),
      HasSubstr("the runs differ in data.train (train.bin of 6.40 K tokens, other.bin of 6.40 K tokens): a law"));
  write("namesake", 64000, {"data.train=[/new/train.bin]", "data.validation=[v.bin]"});
  EXPECT_THAT(said({"base", "namesake"}),
              HasSubstr("in data.train (train.bin of 6.40 K tokens, /new/train.bin of 64.0 K tokens): a law"));
  EXPECT_THAT(said({"of_long_ago", "base", "namesake"}), HasSubstr("in data.train (train.bin of 6.40 K tokens, /new/"));
  // Of one name and length.
  const auto hold = [&](const std::string& name, const std::string& digest) {
    event::RunStarted started;
    started.data_tokens = 6400;
    started.data_digest = digest;
    WriteRun(name, 40, {started, Validated(40, 2.5), event::RunFinished{}}, {"data.validation=[v.bin]"});
  };
  hold("repacked", "0123456789abcdef");
  hold("as_before", "fedcba9876543210");
  hold("as_well", "fedcba9876543210");
  EXPECT_THAT(said({"base", "as_before", "as_well"}), testing::Not(HasSubstr("the runs differ in")));
  EXPECT_THAT(said({"base", "as_before", "repacked", "as_well"}),
              testing::ContainsRegex("the runs differ in what the data files hold "
                                     "\\(digest fedcba9876543210 in [^,]+, digest 0123456789abcdef in [^,]+\\): a"));
  EXPECT_THAT(said({"as_before", "repacked", "renamed"}), testing::Not(HasSubstr("data files hold")));
  write("validated", 6400, {"data.validation=[w.bin]"});
  EXPECT_THAT(said({"base", "validated"}), HasSubstr("in data.validation (v.bin, w.bin): a law"));
}

TEST_F(Scaling, TrialsThatDifferInMoreThanALawKnowsAreNamed) {
  std::filesystem::create_directories(Path("sweep/runs"));
  Write("sweep/sweep.yaml",
        "sweep: {config: config.yaml, strategy: grid}\n"
        "budget: {trials: 3}\n"
        "space:\n"
        "  optimizer.name: {choices: [adamw, lion, muon]}\n"
        "  optimizer.lr: {choices: [0.001]}\n"
        "  kind: {choices: [\"data.shuffle=true model.num_layers=2\", \"data.shuffle=true\"]}\n");
  const std::vector<std::string> optimizers = {"adamw", "lion", "muon"};
  std::vector<Observation> trials;
  std::string results;
  for (size_t i = 0; i < optimizers.size(); ++i) {
    const std::string run = absl::StrCat("sweep/runs/000000000000000", i + 1);
    WriteRun(run, 40, {Validated(40, 2.5), event::RunFinished{}}, {absl::StrCat("optimizer.name=", optimizers[i])});
    trials.push_back(ReadFinishedRun(Path(run))->observation);
    trials.back().name = absl::StrCat("trial ", i);
    RecordedTrial recorded;
    recorded.trial = static_cast<int64_t>(i);
    recorded.digest = i + 1;
    absl::StrAppend(&results, RecordLine(recorded), "\n");
  }
  Write("sweep/results.jsonl", results);
  const auto said = [&](size_t count) {
    Write("sweep/scaling.csv", ToCsv(absl::MakeConstSpan(trials).first(count)));
    ScalingFitCommand fit;
    fit.runs = {Path("sweep")};
    testing::internal::CaptureStderr();
    EXPECT_FALSE(fit.Run().ok()) << "too few";
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said(1), testing::Not(HasSubstr("the runs differ in")));
  EXPECT_THAT(said(2), AllOf(HasSubstr("the runs differ in optimizer.name (adamw, lion): a law takes"),
                             testing::Not(HasSubstr("are gone"))));

  std::filesystem::remove_all(Path("sweep/runs/0000000000000002"));
  EXPECT_THAT(said(1), testing::Not(HasSubstr("are gone"))) << "that trial is no part of the law";
  EXPECT_THAT(said(2), HasSubstr(absl::StrCat("runs of the sweep ", Path("sweep"), " are gone: its trials may differ ",
                                              "in optimizer.name, data.shuffle, of which a law knows nothing")));
}

// A copy, and a trial that is named as a run of its own, too. Rows of a file may be rounded, and so equal by chance.
TEST_F(Scaling, ARunCountsOnceWhateverItIsCalled) {
  const std::vector<RunEvent> events = {Validated(40, 2.5), event::RunFinished{}};
  WriteRun("run", 40, events);
  WriteRun("copy", 40, events, {"run.name=copy"});
  WriteRun("other_seed", 40, {Validated(40, std::nextafter(2.5, 3)), event::RunFinished{}}, {"run.seed=2"});
  std::filesystem::create_directory(Path("sweep"));
  Write("sweep/scaling.csv", ToCsv({ReadFinishedRun(Path("run"))->observation}));
  Write("rows.csv", "parameters,tokens,loss\n1e6,1e9,3\n1e6,1e9,3\n");
  ScalingFitCommand command = FitCommand("fit");
  command.budgets.clear();
  for (const char* place : {"run", "other_seed", "sweep", "copy", "rows.csv"}) command.runs.push_back(Path(place));
  testing::internal::CaptureStderr();
  const absl::StatusOr<int> ran = command.Run();
  const std::string said = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(ran.ok()) << ran.status();
  EXPECT_EQ(ReadFit(Path("fit/fit.json"))->runs.size(), 20u + 2 + 2)
      << "of the two seeds, which differ in their loss alone, both";
  EXPECT_THAT(said, HasSubstr(absl::StrCat("copy is the same run as ", Path("run"), ", to the last bit of its loss")));
  EXPECT_THAT(said, HasSubstr(absl::StrCat("sweep is the same run as ", Path("run"))));
  EXPECT_THAT(said, testing::Not(HasSubstr("other_seed is the same")));
}

TEST_F(Scaling, ARunThatHasNotEndedIsRefused) {
  WriteRun("half", 20, {Validated(20, 3.0)});
  EXPECT_THAT(std::string(ReadFinishedRun(Path("half")).status().message()),
              HasSubstr("half has not ended: 20 of 40 steps done"));
  WriteRun("resumed", 20, {event::RunFinished{}, event::RunStarted{}});
  EXPECT_FALSE(ReadFinishedRun(Path("resumed")).ok());
  const auto finished = [](int64_t step) {
    event::RunFinished end;
    end.step = step;
    return RunEvent(end);
  };
  const auto why = [this](const std::string& run) { return MessageOf(ReadFinishedRun(Path(run)).status()); };
  WriteRun("early", 20, {Validated(20, 3.0), finished(20)},
           {"train.early_stop_patience=1", "train.validate_every_steps=10", "data.validation=train.bin",
            "checkpoint.keep_best=1"});
  EXPECT_THAT(why("early"), HasSubstr("early ended early, at step 20 of 40 (train.early_stop_patience)"));
  WriteRun("short", 20, {finished(20)});
  EXPECT_THAT(why("short"), HasSubstr("short ended at step 20 of 40 that its config.yaml asks for"));
  EXPECT_EQ(ExitCodeOf(ReadFinishedRun(Path("half")).status()), kExitUsage) << "of scaling fit";
  EXPECT_EQ(ExitCodeOf(ReadFinishedRun(Path("short")).status()), kExitUsage);
  WriteRun("cut", 20, {finished(40)});
  EXPECT_EQ(ExitCodeOf(ReadFinishedRun(Path("cut")).status()), kExitFailure);
  EXPECT_THAT(why("cut"), HasSubstr("cut ended at step 40, and "));
  EXPECT_THAT(why("cut"), HasSubstr("/metrics.jsonl has been cut off after step 20"));
  WriteRun("empty", 0, {finished(40)});
  EXPECT_THAT(why("empty"), HasSubstr("/metrics.jsonl has been cut off after step 0"));
}

// Its weights have learned from other tokens before.
TEST_F(Scaling, ARunThatBeganWithASavedModelIsRefused) {
  WriteRun("tuned", 40, {Validated(40, 2.5), event::RunFinished{}});
  auto config = ReadRunConfig(RunDirectory(Path("tuned")));
  ASSERT_TRUE(config.ok()) << config.status();
  config->train.init_from = "a_model";
  Write("tuned/config.yaml", PrintConfig(*config));
  EXPECT_THAT(std::string(ReadFinishedRun(Path("tuned")).status().message()),
              HasSubstr("tuned began with the weights in a_model (train.init_from)"));
}

// Its loss would be that of a rate that is still high, as Hoffmann et al. (2022, section 3.1) found of cosines that are
// longer than the run.
TEST_F(Scaling, ARunWhoseRateHasNotComeDownIsRefused) {
  const std::vector<RunEvent> events = {Validated(40, 2.5), event::RunFinished{}};
  const auto refused = [&](const std::string& name, const std::vector<std::string>& overrides) {
    WriteRun(name, 40, events, overrides);
    return std::string(ReadFinishedRun(Path(name)).status().message());
  };
  EXPECT_THAT(refused("rung", {"schedule.total_steps=50"}), HasSubstr("rung ended at step 40 of 50 of its schedule"));
  for (const std::string name : {"cosine", "linear"}) {
    const std::string kind = "schedule.name=" + name;
    EXPECT_THAT(refused(name, {kind, "schedule.warmup_steps=10", "schedule.decay_steps=31"}),
                HasSubstr(name + " ended at step 40 of 41 of its schedule"));
    EXPECT_EQ(refused(name + "_whole", {kind, "schedule.warmup_steps=10", "schedule.decay_steps=30"}), "");
    EXPECT_EQ(refused(name + "_flat", {kind, "schedule.warmup_steps=10", "schedule.decay_steps=5"}), "");
  }
  EXPECT_EQ(refused("wsd", {"schedule.name=wsd", "schedule.warmup_steps=10", "schedule.decay_steps=30"}), "");
  EXPECT_EQ(refused("constant", {"schedule.name=constant"}), "");
}

TEST_F(Scaling, PredictThenCompare) {
  ASSERT_TRUE(FitCommand("fit").Run().ok());
  ASSERT_EQ(Predict().value(), kExitDone);
  const auto saved = ReadPrediction(Path("prediction.json"));
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(saved->run_name, "tiny");
  EXPECT_EQ(saved->size.tokens, 40 * 128);
  EXPECT_EQ(saved->fit_digest, DigestOf(*ReadFit(Path("fit/fit.json"))));

  const double predicted = saved->prediction.loss;
  WriteRun("as_said", 40, {Validated(40, predicted), event::RunFinished{}}, {"train.threads=3", "run.name=other"});
  EXPECT_EQ(Compare("as_said").value(), kExitDone);
  WriteRun("worse", 40, {Validated(40, 2 * predicted), event::RunFinished{}});
  EXPECT_EQ(Compare("worse").value(), kExitFailure);
  WriteRun("other", 40, {Validated(40, predicted), event::RunFinished{}}, {"optimizer.lr=1e-5"});
  const auto other = Compare("other");
  EXPECT_TRUE(IsUsageError(other.status()));
  EXPECT_THAT(MessageOf(other), HasSubstr("the prediction is for another config than that of"));
  EXPECT_TRUE(IsUsageError(Compare("none").status()));
}

// Else the loss that it ends with would be compared with that of a run whose learning rate comes down.
TEST_F(Scaling, WhatNoLawSaysIsNotPredicted) {
  ASSERT_TRUE(FitCommand("fit").Run().ok());
  EXPECT_THAT(MessageOf(Predict({"schedule.decay_steps=41"})),
              HasSubstr("a run of this config ends at step 40 of 41 of its schedule"));
  EXPECT_FALSE(std::filesystem::exists(Path("prediction.json")));
  ConfigArguments arguments;
  arguments.path = Path("config.yaml");
  Config config = *arguments.Load();
  EXPECT_EQ(NoLawBecause(config), "");
  Config part = config;
  part.train.only = {"head.*"};
  EXPECT_EQ(NoLawBecause(part), "trains a part of its model only");
  config.train.init_from = "a_model";
  EXPECT_EQ(NoLawBecause(config), "begins with a saved model (train.init_from)");
}

// As `validate` and `train` do.
TEST_F(Scaling, SizesAreShortened) {
  ASSERT_TRUE(FitCommand("fit").Run().ok());
  testing::internal::CaptureStdout();
  EXPECT_TRUE(Predict().ok());
  EXPECT_TRUE(NextCommand("fit").Run().ok());
  const std::string said = testing::internal::GetCapturedStdout();
  EXPECT_THAT(said, HasSubstr("\ntokens      5.12 K\n"));
  EXPECT_THAT(said, testing::ContainsRegex("\n +[0-9.]+ M +[0-9.]+ M +[0-9.]+ [MB] +[0-9.]+e\\+[0-9]+ +[0-9.]+\n"));
}

// Some of a fit's resampled laws have no constant term, as where the runs do not show one.
TEST_F(Scaling, APredictionSaysWhereItsIntervalEndsAtTheLimitOfTheSearch) {
  ASSERT_TRUE(FitCommand("fit").Run().ok());
  const auto said = [&] {
    testing::internal::CaptureStdout();
    EXPECT_TRUE(Predict({}, /*overwrite=*/true).ok());
    return testing::internal::GetCapturedStdout();
  };
  EXPECT_THAT(said(), testing::Not(HasSubstr("limit of the search")));
  Fit fit = *ReadFit(Path("fit/fit.json"));
  for (size_t i = 0; i < fit.resampled.size() / 4; ++i) fit.resampled[i].log_coefficients[0] = -40;
  Write("fit/fit.json", ToJson(fit));
  EXPECT_THAT(said(), HasSubstr("note        low end: limit of the search; there the runs do not bound the loss\n"));
}

// A fit takes minutes, and was made before a budget that none takes was refused.
TEST_F(Scaling, ABudgetIsRefusedBeforeTheFit) {
  ScalingFitCommand command = FitCommand("fit");
  command.budgets = {1e15, 1e300};
  EXPECT_THAT(MessageOf(command.Run()), HasSubstr("positive number of FLOPs below 1e60, not 1e+300"));
  EXPECT_FALSE(std::filesystem::exists(Path("fit")));
}

TEST_F(Scaling, NextAndOptimumOfAFit) {
  ASSERT_TRUE(FitCommand("fit").Run().ok());
  ScalingNextCommand next = NextCommand("fit/fit.json");
  EXPECT_EQ(next.Run().value(), kExitDone);
  next.flops_max = 1e3;
  EXPECT_THAT(MessageOf(next.Run()), HasSubstr("no run of up to 1000 FLOPs narrows the prediction by 10 %"));
  EXPECT_EQ(ExitCodeOf(next.Run().status()), kExitUsage);
  ScalingOptimumCommand optimum = OptimumCommand("fit/fit.json");
  EXPECT_EQ(optimum.Run().value(), kExitDone);
  optimum.budgets = {-1};
  EXPECT_THAT(MessageOf(optimum.Run()), HasSubstr("positive number of FLOPs"));
}

TEST_F(Scaling, AFitIsNamedByItsDirectoryToo) {
  ASSERT_TRUE(FitCommand("fit").Run().ok());
  ScalingOptimumCommand optimum = OptimumCommand("fit");
  EXPECT_EQ(optimum.Run().value(), kExitDone);
  ScalingNextCommand next = NextCommand("fit");
  EXPECT_EQ(next.Run().value(), kExitDone);
  std::filesystem::create_directory(Path("empty"));
  optimum.fit = Path("empty");
  EXPECT_THAT(MessageOf(optimum.Run()), HasSubstr(Path("empty") + " holds no fit.json: FIT is a directory of"));
}

}  // namespace
}  // namespace holdfast
