// Proves that the trials of a sweep follow from results alone: not from the order in which they become known, nor from
// where a sweep was cut off; that budgets hold, shared steps are not paid twice, and a hopeless sweep ends.

#include "elastic/sweep/sweep_plan.h"

#include <algorithm>
#include <string>
#include <vector>

#include "framework/base/out_of_memory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Suggests x = 100 * how many results it has seen + how many trials there are; its steps follow from x.
class Watching : public search::SearchStrategy {
 public:
  std::optional<search::Suggestion> Next(absl::Span<const search::Observation> history) const override {
    const auto ended = std::count_if(history.begin(), history.end(), [](const search::Observation& seen) {
      return seen.outcome != search::TrialOutcome::kRunning;
    });
    const auto x = 100 * static_cast<int64_t>(ended) + static_cast<int64_t>(history.size());
    return search::Suggestion{.point = {{"x", x}}, .rung = 0, .continues = {}, .why = "it is its turn"};
  }
};

int64_t XOf(const PlannedTrial& trial) { return std::get<int64_t>(trial.suggestion.point.at("x")); }

absl::StatusOr<TrialSetup> MakeSetup(const search::Point& point, int64_t) {
  const int64_t x = std::get<int64_t>(point.at("x"));
  TrialSetup setup;
  setup.config.train.steps = 10 + x * 7 % 13;
  setup.digest = static_cast<uint64_t>(x);
  setup.flops_per_step = 2;
  setup.tokens_per_step = 3;
  return setup;
}

TrialResult ResultOf(const PlannedTrial& trial) {
  return {.measured = true, .value = static_cast<double>(XOf(trial) % 17), .steps = trial.setup->steps(), .seconds = 1};
}

SweepConfig SweepOf(int64_t trials) {
  SweepConfig config;
  config.parallel = 3;
  config.budget.trials = trials;
  return config;
}

/// Tells results, each time that of the waiting trial that `choose` picks among so many, until the plan is done.
template <typename Choose>
void Finish(SweepPlan& plan, Choose choose) {
  while (!plan.done()) {
    std::vector<const PlannedTrial*> waiting;
    for (const PlannedTrial& trial : plan.trials()) {
      if (!trial.result.has_value()) waiting.push_back(&trial);
    }
    ASSERT_FALSE(waiting.empty());
    const PlannedTrial& chosen = *waiting[choose(waiting.size())];
    plan.Tell(chosen.number, ResultOf(chosen));
  }
}

std::vector<int64_t> Points(const SweepPlan& plan) {
  std::vector<int64_t> points;
  for (const PlannedTrial& trial : plan.trials()) points.push_back(XOf(trial));
  return points;
}

TEST(SweepPlan, DoesNotDependOnWhichResultIsKnownFirst) {
  const SweepConfig config = SweepOf(40);
  const Watching strategy;
  SweepPlan first(config, strategy, MakeSetup), last(config, strategy, MakeSetup);
  Finish(first, [](size_t) { return size_t{0}; });
  Finish(last, [](size_t count) { return count - 1; });
  EXPECT_EQ(Points(first), Points(last));
  EXPECT_EQ(first.trials().size(), 40U);
  for (uint64_t seed = 1; seed < 20; ++seed) {
    uint64_t state = seed;
    SweepPlan any(config, strategy, MakeSetup);
    Finish(any,
           [&](size_t count) { return (state = state * 6364136223846793005U + 1442695040888963407U) / 65536 % count; });
    EXPECT_EQ(Points(first), Points(any)) << seed;
  }
}

TEST(SweepPlan, AsksWhenATrialEndsOnItsOwnClock) {
  const SweepConfig config = SweepOf(6);
  const Watching strategy;
  SweepPlan plan(config, strategy, MakeSetup);
  // Steps of x = 0, 1, 2: 10, 17, 11.
  ASSERT_THAT(Points(plan), ElementsAre(0, 1, 2));
  plan.Tell(1, ResultOf(plan.trials()[1]));  // the last to end: nothing follows yet
  EXPECT_THAT(Points(plan), ElementsAre(0, 1, 2));
  plan.Tell(0, ResultOf(plan.trials()[0]));
  EXPECT_THAT(Points(plan), ElementsAre(0, 1, 2, 103)) << "a result that is known, but not ended, was shown";
}

TEST(SweepPlan, AtMostSoManyAreUnderWay) {
  const SweepConfig config = SweepOf(30);
  const Watching strategy;
  SweepPlan plan(config, strategy, MakeSetup);
  while (!plan.done()) {
    const auto under_way = std::count_if(plan.trials().begin(), plan.trials().end(),
                                         [](const PlannedTrial& trial) { return !trial.ended; });
    EXPECT_LE(under_way, config.parallel);
    for (const PlannedTrial& trial : plan.trials()) {
      if (trial.result.has_value()) continue;
      plan.Tell(trial.number, ResultOf(trial));
      break;
    }
  }
}

TEST(SweepPlan, FlopsAndTokensAreNotOverspent) {
  const Watching strategy;
  SweepConfig config = SweepOf(0);
  config.budget.flops = 200;
  SweepPlan flops(config, strategy, MakeSetup);
  Finish(flops, [](size_t) { return size_t{0}; });
  EXPECT_LE(flops.spent().flops, 200);
  EXPECT_GT(flops.spent().flops, 150);
  EXPECT_THAT(flops.end(), HasSubstr("budget.flops"));
  config.budget.flops = 0;
  config.budget.tokens = 100;
  SweepPlan tokens(config, strategy, MakeSetup);
  Finish(tokens, [](size_t) { return size_t{0}; });
  EXPECT_LE(tokens.spent().tokens, 100);
  EXPECT_THAT(tokens.end(), HasSubstr("budget.tokens"));
}

TEST(SweepPlan, AGridIsABudget) {
  SweepConfig config = SweepOf(0);
  config.parallel = 1;
  config.space = {{.name = "x", .low = 1, .high = 4, .integer = true}};
  config.strategy.name = "grid";
  const auto space = search::SearchSpace::Create(config.space);
  const auto strategy = search::MakeStrategy(*space, config.strategy);
  ASSERT_TRUE(strategy.ok()) << strategy.status();
  SweepPlan plan(config, **strategy, MakeSetup);
  EXPECT_EQ(plan.share_of_budget(), 0);
  plan.Tell(0, ResultOf(plan.trials()[0]));
  EXPECT_EQ(plan.share_of_budget(), 0.25);
}

TEST(SweepPlan, SecondsAndMoneyEndItOnceTheyAreSpent) {
  const Watching strategy;
  SweepConfig config = SweepOf(0);
  config.budget.seconds = 5;
  SweepPlan seconds(config, strategy, MakeSetup);
  Finish(seconds, [](size_t) { return size_t{0}; });
  EXPECT_GE(seconds.spent().seconds, 5);
  EXPECT_LE(seconds.spent().seconds, 5 + config.parallel);
  config.budget.seconds = 0;
  config.budget.money = 2;
  config.budget.price_per_hour = 3600;
  SweepPlan money(config, strategy, MakeSetup);
  Finish(money, [](size_t) { return size_t{0}; });
  EXPECT_THAT(money.end(), HasSubstr("budget.money"));
  EXPECT_GE(money.spent().money, 2);
}

/// The points that are given, one after another; `steps` of each curve.
class Listed : public search::SearchStrategy {
 public:
  explicit Listed(std::vector<int64_t> points) : points_(std::move(points)) {}
  std::optional<search::Suggestion> Next(absl::Span<const search::Observation> history) const override {
    if (history.size() >= points_.size()) return std::nullopt;
    return search::Suggestion{.point = {{"x", points_[history.size()]}}, .rung = 0, .continues = {}, .why = "listed"};
  }

 private:
  const std::vector<int64_t> points_;
};

/// One curve; x is how long it is trained.
absl::StatusOr<TrialSetup> LengthOfOneCurve(const search::Point& point, int64_t) {
  TrialSetup setup;
  setup.config.train.steps = std::get<int64_t>(point.at("x"));
  setup.digest = 7;
  setup.flops_per_step = 1;
  return setup;
}

TEST(SweepPlan, StepsThatAnEarlierTrialDoesAreNotPaidAgain) {
  SweepConfig config = SweepOf(0);
  config.parallel = 1;
  config.budget.flops = 1000;
  const Listed strategy({100, 300, 300, 200});
  SweepPlan plan(config, strategy, LengthOfOneCurve);
  Finish(plan, [](size_t) { return size_t{0}; });
  std::vector<int64_t> own;
  for (const PlannedTrial& trial : plan.trials()) own.push_back(trial.own_steps());
  EXPECT_THAT(own, ElementsAre(100, 200, 0, 200)) << "a run is taken up where it is, not where it has been";
  EXPECT_EQ(plan.spent().flops, 500);
  EXPECT_EQ(plan.end(), "there is nothing more to try");
}

/// x is how long it is trained; all leave one curve ten steps before their end.
absl::StatusOr<TrialSetup> LengthWithADecay(const search::Point& point, int64_t) {
  TrialSetup setup;
  setup.config.train.steps = std::get<int64_t>(point.at("x"));
  setup.digest = static_cast<uint64_t>(setup.steps());
  setup.flops_per_step = 1;
  auto trunk = std::make_shared<TrialSetup>(setup);
  trunk->config.train.steps -= 10;
  trunk->digest = 7;
  setup.trunk = trunk;
  return setup;
}

TEST(SweepPlan, ACurveThatManyLeaveIsPaidOnce) {
  SweepConfig config = SweepOf(0);
  config.parallel = 1;
  config.budget.flops = 1000;
  const Listed strategy({100, 300, 200, 300});
  SweepPlan plan(config, strategy, LengthWithADecay);
  Finish(plan, [](size_t) { return size_t{0}; });
  std::vector<int64_t> own;
  for (const PlannedTrial& trial : plan.trials()) own.push_back(trial.own_steps());
  EXPECT_THAT(own, ElementsAre(100, 210, 200, 0)) << "it can be left where it is, not where it has been";
}

TEST(SweepPlan, AConfigThatIsRefusedIsAFailedTrial) {
  const SweepConfig config = SweepOf(8);
  const Watching strategy;
  SweepPlan plan(config, strategy, [](const search::Point& point, int64_t rung) -> absl::StatusOr<TrialSetup> {
    if (std::get<int64_t>(point.at("x")) == 1) return absl::InvalidArgumentError("no such model");
    return MakeSetup(point, rung);
  });
  ASSERT_FALSE(plan.trials()[1].setup.has_value());
  EXPECT_TRUE(plan.trials()[1].ended);
  EXPECT_EQ(plan.trials()[1].result->reason, "no such model");
  Finish(plan, [](size_t) { return size_t{0}; });
  EXPECT_EQ(plan.trials().size(), 9U) << "of the budget it is no trial";
  EXPECT_EQ(plan.end(), "budget.trials, 8, is reached");
  EXPECT_EQ(plan.share_of_budget(), 1);
  EXPECT_FALSE(plan.hopeless());
}

// In less than minutes: a point takes no longer when thousands were before it.
TEST(SweepPlan, AGridOfWhichEveryPointIsRefusedIsLookedAtToItsEnd) {
  SweepConfig config = SweepOf(5);
  config.strategy.name = "grid";
  config.space = {{.name = "x", .low = 1, .high = 3000, .integer = true}};
  const auto space = search::SearchSpace::Create(config.space);
  ASSERT_TRUE(space.ok()) << space.status();
  const auto strategy = search::MakeStrategy(*space, config.strategy);
  ASSERT_TRUE(strategy.ok()) << strategy.status();
  const SweepPlan plan(config, **strategy, [](const search::Point&, int64_t) -> absl::StatusOr<TrialSetup> {
    return absl::InvalidArgumentError("no such model");
  });
  EXPECT_TRUE(plan.done());
  EXPECT_EQ(plan.trials().size(), 3000U);
  EXPECT_EQ(search::PointText(plan.trials().back().suggestion.point), "x=3000");
  EXPECT_EQ(plan.end(), "there is nothing more to try");
}

// Most of the space is refused, and from some point on all of it.
TEST(SweepPlan, DrawsThatAreRefusedOneAfterTheOtherHaveAnEnd) {
  SweepConfig config = SweepOf(40);
  config.parallel = 1;
  const Watching strategy;
  int64_t draws = 0;
  const auto set_up = [&](const search::Point& point, int64_t rung) -> absl::StatusOr<TrialSetup> {
    if (++draws > 1200 || draws % 300 != 0) return absl::InvalidArgumentError("no such model");
    return MakeSetup(point, rung);
  };
  SweepPlan plan(config, strategy, set_up);
  for (int i = 0; i < 4; ++i) {
    ASSERT_FALSE(plan.done()) << plan.end();
    EXPECT_DOUBLE_EQ(plan.share_of_budget(), i / 40.0);
    plan.Tell(plan.trials().back().number, ResultOf(plan.trials().back()));
  }
  EXPECT_TRUE(plan.done());
  EXPECT_FALSE(plan.hopeless());
  EXPECT_NE(plan.best(), nullptr);
  EXPECT_EQ(plan.trials().size(), 2200U);
  EXPECT_EQ(plan.end(), "1000 trials one after the other have been refused by their config");
}

// Else the search would go on without it, and differently once it is tried again.
TEST(SweepPlan, StandsStillWhereATrialCannotBeLookedAt) {
  const SweepConfig config = SweepOf(10);
  const Watching strategy;
  for (const absl::Status& why : {absl::UnavailableError("the store does not answer"),
                                  absl::ResourceExhaustedError("train.bin: too many open files")}) {
    SweepPlan plan(config, strategy, [&](const search::Point& point, int64_t rung) -> absl::StatusOr<TrialSetup> {
      if (std::get<int64_t>(point.at("x")) > 1) return why;
      return MakeSetup(point, rung);
    });
    EXPECT_EQ(plan.status().code(), why.code());
    EXPECT_THAT(std::string(plan.status().message()), HasSubstr("trial 2 {x=2}: " + std::string(why.message())));
    EXPECT_EQ(plan.trials().size(), 2u);
    EXPECT_FALSE(plan.done());
  }
}

TEST(SweepPlan, AModelThatDoesNotFitInMemoryIsAFailedTrial) {
  const SweepConfig config = SweepOf(8);
  const Watching strategy;
  SweepPlan plan(config, strategy, [](const search::Point& point, int64_t rung) -> absl::StatusOr<TrialSetup> {
    if (std::get<int64_t>(point.at("x")) == 1) return OutOfMemoryError("out of memory");
    return MakeSetup(point, rung);
  });
  EXPECT_TRUE(plan.status().ok()) << plan.status();
  EXPECT_TRUE(plan.trials()[1].ended);
}

void FailNext(SweepPlan& plan) {
  const auto waiting = std::find_if(plan.trials().begin(), plan.trials().end(),
                                    [](const PlannedTrial& trial) { return !trial.result.has_value(); });
  ASSERT_NE(waiting, plan.trials().end());
  plan.Tell(waiting->number, {.reason = "no such GPU"});
}

TEST(SweepPlan, EndsWhenNothingSucceeds) {
  const SweepConfig config = SweepOf(100);
  const Watching strategy;
  SweepPlan plan(config, strategy, MakeSetup);
  for (int i = 0; i < 100 && !plan.done(); ++i) FailNext(plan);
  EXPECT_TRUE(plan.hopeless());
  EXPECT_LT(plan.trials().size(), 10U);
  EXPECT_THAT(plan.end(), HasSubstr("trials have failed"));
}

// The first choice fits nothing, the others do: what is refused says nothing of them.
TEST(SweepPlan, TrialsThatAreRefusedDoNotEndAGrid) {
  SweepConfig config = SweepOf(0);
  config.space = {{.name = "x", .low = 1, .high = 30, .integer = true}};
  config.strategy.name = "grid";
  const auto space = search::SearchSpace::Create(config.space);
  const auto strategy = search::MakeStrategy(*space, config.strategy);
  ASSERT_TRUE(strategy.ok()) << strategy.status();
  SweepPlan plan(config, **strategy, [](const search::Point& point, int64_t rung) -> absl::StatusOr<TrialSetup> {
    if (std::get<int64_t>(point.at("x")) <= 20) return absl::InvalidArgumentError("no such model");
    return MakeSetup(point, rung);
  });
  for (int i = 0; i < 4; ++i) FailNext(plan);
  EXPECT_FALSE(plan.hopeless()) << "four have failed that began";
  Finish(plan, [](size_t) { return size_t{0}; });
  EXPECT_EQ(plan.trials().size(), 30U);
  EXPECT_NE(plan.best(), nullptr);
  EXPECT_EQ(plan.end(), "there is nothing more to try");
}

TEST(SweepPlan, ASpaceWithoutEndThatFitsNothingEnds) {
  SweepConfig config = SweepOf(0);
  config.parallel = 1;
  config.budget.flops = 1e9;  // of which nothing is ever spent
  const Watching strategy;
  SweepPlan plan(config, strategy,
                 [](const search::Point&, int64_t) { return absl::InvalidArgumentError("no such model"); });
  EXPECT_TRUE(plan.done());
  EXPECT_TRUE(plan.hopeless());
  EXPECT_EQ(plan.end(), "all 1000 trials have been refused by their config");
}

// It was under way when all others had failed.
TEST(SweepPlan, ATrialThatIsMeasuredAfterAllGivesHope) {
  SweepConfig config = SweepOf(20);
  config.parallel = 2;
  const Watching strategy;
  SweepPlan plan(config, strategy, [](const search::Point& point, int64_t rung) {
    absl::StatusOr<TrialSetup> setup = MakeSetup(point, rung);
    if (setup->digest == 0) setup->config.train.steps = 1000;  // the first trial
    return setup;
  });
  for (int i = 0; i < 5; ++i) plan.Tell(plan.trials().back().number, {.reason = "no such GPU"});
  EXPECT_TRUE(plan.hopeless());
  EXPECT_FALSE(plan.done());
  plan.Tell(0, ResultOf(plan.trials()[0]));
  EXPECT_FALSE(plan.hopeless());
  Finish(plan, [](size_t) { return size_t{0}; });
  EXPECT_THAT(plan.end(), HasSubstr("budget.trials"));
  EXPECT_EQ(plan.trials().size(), 20U);
}

TEST(SweepPlan, ADivergedTrialCostsTheStepsThatItDid) {
  SweepConfig config = SweepOf(3);
  config.parallel = 1;
  const Watching strategy;
  SweepPlan plan(config, strategy, MakeSetup);
  plan.Tell(0, {.steps = 4, .reason = "step 5 diverged: "});
  EXPECT_EQ(plan.trials()[0].setup->steps(), 10);
  EXPECT_EQ(plan.spent().flops, 4 * 2 + static_cast<double>(plan.trials()[1].own_steps()) * 2);
}

TEST(SweepPlan, TheBestIsOfTheHighestRungAndOfTheGoal) {
  SweepConfig config = SweepOf(4);
  config.parallel = 1;
  config.maximize = true;
  const Watching strategy;
  SweepPlan plan(config, strategy, MakeSetup);
  for (const double value : {3.0, 9.0, 4.0}) {
    plan.Tell(plan.results(), {.measured = true, .value = value, .steps = 10});
  }
  EXPECT_EQ(plan.best()->number, 1);
}

// What is said of a trial when its result is known, before it has ended on the clock.
TEST(SweepPlan, TheBestThatIsKnownNeedNotHaveEnded) {
  const SweepConfig config = SweepOf(3);
  const Watching strategy;
  SweepPlan plan(config, strategy, MakeSetup);
  EXPECT_EQ(plan.best_known(), nullptr);
  plan.Tell(1, {.measured = true, .value = 4, .steps = 17});
  ASSERT_FALSE(plan.trials()[1].ended);
  EXPECT_EQ(plan.best(), nullptr);
  ASSERT_NE(plan.best_known(), nullptr);
  EXPECT_EQ(plan.best_known()->number, 1);
  plan.Tell(0, {.measured = true, .value = 5, .steps = 10});
  EXPECT_EQ(plan.best()->number, 0);
  EXPECT_EQ(plan.best_known()->number, 1);
}

}  // namespace
}  // namespace holdfast
