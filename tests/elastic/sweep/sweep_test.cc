// Proves that a plan follows a record that grows, as `sweep --watch` has it, with each trial set up once, and that a
// record that is not the one it knows is refused. And what a progress line says.

#include "elastic/sweep/sweep.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "elastic/sweep/sweep_record.h"
#include "framework/metrics/run_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/framework/base/temporary_directory.h"
#include "tests/framework/storage/syscalls.h"

namespace holdfast {
namespace {

/// The next point is the number of trials that there are.
class ByNumber final : public search::SearchStrategy {
 public:
  std::optional<search::Suggestion> Next(absl::Span<const search::Observation> history) const override {
    const auto number = static_cast<int64_t>(history.size());
    return search::Suggestion{.point = {{"number", number}}, .rung = 0, .continues = {}, .why = "it is its turn"};
  }
};

class GrowingRecord : public ::testing::Test {
 protected:
  GrowingRecord() {
    config_.parallel = 3;
    config_.budget.trials = 20;
  }
  absl::StatusOr<std::unique_ptr<SweepPlan>> TakeUp() {
    return TakeUpPlan(config_, strategy_, place_, [this](const search::Point& point, int64_t) {
      ++setups_;
      TrialSetup setup;
      setup.config.train.steps = 10;
      setup.digest = static_cast<uint64_t>(std::get<int64_t>(point.at("number"))) + 1;
      setup.flops_per_step = setup.tokens_per_step = 1;
      return absl::StatusOr<TrialSetup>(setup);
    });
  }
  void Record(const RecordedTrial& recorded) {
    std::ofstream(place_.results(), std::ios::app) << RecordLine(recorded) << "\n";
  }
  static RecordedTrial ResultFor(const PlannedTrial& trial) {
    return RecordOf(trial, {.measured = true, .value = 1, .steps = 10, .seconds = 1}, /*reused=*/false);
  }

  const TemporaryDirectory root_;
  const SweepPlace place_{.directory = root_.path()};
  const ByNumber strategy_;
  SweepConfig config_;
  size_t setups_ = 0;
};

TEST_F(GrowingRecord, SetsUpEachTrialOnce) {
  const auto plan = TakeUp();
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(setups_, 3U);
  for (int64_t known = 0; known < 20; ++known) {
    ASSERT_TRUE(TellRecorded(place_, **plan).ok());
    EXPECT_EQ((*plan)->results(), known);
    EXPECT_EQ(setups_, (*plan)->trials().size());
    EXPECT_EQ(setups_, static_cast<size_t>(std::min<int64_t>(20, known + 3)));
    EXPECT_FALSE((*plan)->done());
    Record(ResultFor((*plan)->trials()[static_cast<size_t>(known)]));
  }
  ASSERT_TRUE(TellRecorded(place_, **plan).ok());
  EXPECT_TRUE((*plan)->done());
  EXPECT_EQ(setups_, 20U);
}

// Between two trials it ended in "0 trials done, trial ".
TEST_F(GrowingRecord, AProgressLineNamesTrialsWhereSomeRun) {
  const auto plan = TakeUp();
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(StatusText(**plan, {}), "0 trials done");
  const PlannedTrial &first = (*plan)->trials()[0], &second = (*plan)->trials()[1];
  EXPECT_EQ(StatusText(**plan, {{&first, 2, 3}, {&second, 1, 0}}), "0 trials done, trial 0: 3/10 on 2, 1: 0/10 on 1");
}

// Of which `sweep --watch` says how far the trial is, too.
TEST_F(GrowingRecord, ATrialIsTrainedByTheCurveThatItLeavesUntilItsOwnRunBegins) {
  TrialSetup trial, trunk;
  trial.config.train.steps = 30;
  trial.digest = 1;
  trunk.config.train.steps = 20;
  trunk.digest = 2;
  EXPECT_EQ(&NextOf(config_, place_, trial), &trial);
  trial.trunk = std::make_shared<TrialSetup>(trunk);
  EXPECT_EQ(&NextOf(config_, place_, trial), trial.trunk.get());
  const auto train = [&](const TrialSetup& setup, int64_t step) {
    const RunDirectory run(place_.run(config_, setup));
    ASSERT_TRUE(run.Create(/*overwrite=*/true).ok());
    ASSERT_TRUE(run.WriteConfig("").ok());
    StepMetrics line;
    line.step = step;
    std::ofstream(run.metrics()) << line.ToJson() << "\n";
  };
  train(trunk, 20);
  EXPECT_EQ(&NextOf(config_, place_, trial), trial.trunk.get());
  train(trunk, 21);
  EXPECT_EQ(&NextOf(config_, place_, trial), &trial) << "it cannot be left at step 20 any more";
  train(trunk, 20);
  train(trial, 3);
  EXPECT_EQ(&NextOf(config_, place_, trial), &trial);
  EXPECT_EQ(place_.run(config_, trial), root_ / "runs/0000000000000001");
}

struct NoObserver final : SweepObserver {
  void OnTrialBegins(const PlannedTrial&, int64_t, int64_t) override {}
  void OnTrialEnds(const SweepPlan&, const PlannedTrial&, bool) override {}
  void OnStatus(const SweepPlan&, const std::vector<Running>&) override {}
};

// Its lines are synced, but not its name.
TEST_F(GrowingRecord, IsInTheDirectoryAlsoAfterALossOfPower) {
  config_.budget.trials = 1;
  const auto plan = TakeUp();
  ASSERT_TRUE(plan.ok()) << plan.status();
  Record(ResultFor((*plan)->trials()[0]));
  ASSERT_TRUE(TellRecorded(place_, **plan).ok());
  std::filesystem::create_directory(place_.runs(config_));
  NoObserver observer;
  const SyscallWatch watch;
  const auto ran = RunSweep(
      config_, place_, **plan, observer, [] { return 0; }, absl::OkStatus);
  EXPECT_TRUE(ran.ok()) << ran.status();
  EXPECT_THAT(watch.Calls(), ::testing::ElementsAre("fsync " + std::filesystem::canonical(root_.path()).string()));
}

// Whose runs are all there, so no process is started.
TEST_F(GrowingRecord, ThatSomebodyRemovesIsWrittenAnewWithAllResults) {
  struct Remover final : SweepObserver {
    explicit Remover(std::string path) : results(std::move(path)) {}
    void OnTrialBegins(const PlannedTrial&, int64_t, int64_t) override {}
    void OnTrialEnds(const SweepPlan&, const PlannedTrial& trial, bool) override {
      if (trial.number != 0) return;
      EXPECT_TRUE(std::filesystem::remove(results));
    }
    void OnStatus(const SweepPlan&, const std::vector<Running>&) override {}
    const std::string results;
  };
  config_.metric = kTrainingLoss;
  config_.budget.trials = 2;
  const auto plan = TakeUp();
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const PlannedTrial& trial : (*plan)->trials()) {
    const RunDirectory run(place_.run(config_, *trial.setup));
    ASSERT_TRUE(run.Create(/*overwrite=*/false).ok() && run.WriteConfig("").ok());
    std::ofstream metrics(run.metrics());
    for (StepMetrics line; line.step < 10;) {
      ++line.step;
      metrics << line.ToJson() << "\n";
    }
  }
  Remover observer(place_.results());
  const auto ran = RunSweep(
      config_, place_, **plan, observer, [] { return 0; }, absl::OkStatus);
  ASSERT_TRUE(ran.ok()) << ran.status();
  const auto recorded = ReadRecord(place_.results());
  ASSERT_TRUE(recorded.ok()) << recorded.status();
  EXPECT_EQ(recorded->size(), 2U);
}

TEST_F(GrowingRecord, ThatIsOfAnotherSweepIsRefused) {
  const auto plan = TakeUp();
  ASSERT_TRUE(plan.ok()) << plan.status();
  Record(ResultFor((*plan)->trials()[0]));
  ASSERT_TRUE(TellRecorded(place_, **plan).ok());
  std::filesystem::remove(place_.results());
  EXPECT_TRUE(absl::IsFailedPrecondition(TellRecorded(place_, **plan))) << "begun anew";
  Record(ResultFor((*plan)->trials()[0]));
  EXPECT_TRUE(TellRecorded(place_, **plan).ok());
  RecordedTrial other = ResultFor((*plan)->trials()[1]);
  other.digest += 1;
  Record(other);
  EXPECT_TRUE(absl::IsFailedPrecondition(TellRecorded(place_, **plan)));
}

}  // namespace
}  // namespace holdfast
