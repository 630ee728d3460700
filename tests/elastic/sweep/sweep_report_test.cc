// Proves which trials the pictures of a sweep put on one curve, and what is said of its dimensions.

#include "elastic/sweep/sweep_report.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// What is said of a sweep that is done: its page, and the text for a terminal. The metric is the number of the trial.
std::string ReportOf(SweepConfig config, bool page) {
  config.parallel = 1;
  const auto space = search::SearchSpace::Create(config.space);
  const auto strategy = search::MakeStrategy(*space, config.strategy);
  EXPECT_TRUE(strategy.ok()) << strategy.status();
  SweepPlan plan(config, **strategy, [runs = 0](const search::Point&, int64_t) mutable -> absl::StatusOr<TrialSetup> {
    TrialSetup setup;
    setup.digest = static_cast<uint64_t>(++runs);
    setup.config.train.steps = 10;
    setup.flops_per_step = setup.tokens_per_step = 1;
    return setup;
  });
  while (!plan.done()) {
    const auto& trial = plan.trials().back();
    plan.Tell(trial.number, {.measured = true, .value = static_cast<double>(trial.number), .steps = 10});
  }
  return page ? ReportHtml(config, plan) : ReportText(config, plan, /*columns=*/80, /*unicode=*/false);
}

std::string PageOf(const SweepConfig& config) { return ReportOf(config, /*page=*/true); }

SweepConfig GridOf(int64_t widths) {
  SweepConfig config;
  config.strategy.name = "grid";
  config.space = {{.name = "optimizer.lr", .scale = search::Scale::kLog, .low = 1e-3, .high = 1e-1, .steps = 3},
                  {.name = "width", .scale = search::Scale::kChoice, .choices = {}},
                  {.name = "kind", .scale = search::Scale::kChoice, .choices = {"a", "b"}}};
  for (int64_t i = 0; i < widths; ++i) config.space[1].choices.push_back("w" + std::to_string(i));
  return config;
}

TEST(SweepReport, ACurveOfAGridHasTrialsThatDifferInNothingElse) {
  const std::string page = PageOf(GridOf(4));
  EXPECT_THAT(page, HasSubstr(">w0, a<"));
  EXPECT_THAT(page, HasSubstr(">w3, b<"));
}

TEST(SweepReport, MoreCurvesThanCanBeLookedAtAreColoursOfOneChoice) {
  const std::string page = PageOf(GridOf(5));
  EXPECT_THAT(page, HasSubstr(">w4<"));
  EXPECT_THAT(page, Not(HasSubstr("w4, b")));
}

TEST(SweepReport, TheBestOfALowerRungIsCalledThat) {
  SweepConfig config;
  config.strategy = {.name = "asha", .rungs = 3};
  config.space = {{.name = "optimizer.lr", .scale = search::Scale::kLog, .low = 1e-3, .high = 1e-1}};
  config.budget.trials = 2;
  const std::string lower = "; no trial has run in full: this is the best after 10 steps, rung 0 of 0 to 2";
  for (const bool page : {false, true}) EXPECT_THAT(ReportOf(config, page), HasSubstr(lower));
  EXPECT_THAT(PageOf(GridOf(4)), Not(HasSubstr("run in full")));
}

TEST(SweepReport, ThePageSaysThatLowerRungsAreNotDrawn) {
  SweepConfig config;
  config.strategy = {.name = "asha", .rungs = 3};
  config.space = {{.name = "optimizer.lr", .scale = search::Scale::kLog, .low = 1e-3, .high = 1e-1}};
  config.budget.trials = 4;  // three of rung 0, of which one is promoted
  EXPECT_THAT(PageOf(config),
              HasSubstr("The pictures have the 1 trial of rung 1 (10 steps), not those of lower rungs"));
  config.budget.trials = 3;
  for (const SweepConfig& all : {config, GridOf(4)}) EXPECT_THAT(PageOf(all), Not(HasSubstr("The pictures have")));
}

TEST(SweepReport, ThePictureOfTheBestSaysOfWhichRung) {
  SweepConfig config;
  config.name = "rates";
  config.strategy = {.name = "asha", .rungs = 3};
  config.space = {{.name = "optimizer.lr", .scale = search::Scale::kLog, .low = 1e-3, .high = 1e-1}};
  config.budget.trials = 4;
  for (const bool page : {false, true}) {
    EXPECT_THAT(ReportOf(config, page), HasSubstr("rates: best so far, rung 1 of 0 to 2 (10 steps)"));
  }
  config = GridOf(4);
  config.name = "grid";
  EXPECT_THAT(ReportOf(config, /*page=*/false), HasSubstr("grid: best so far (validation_loss)"));
}

// The metric is 0, 1, 2 at 10, 20, 30 FLOPs: what is best changes when a trial ends, not before.
TEST(SweepReport, TheBestIsWhatItWasUntilABetterTrialEnds) {
  SweepConfig config;
  config.maximize = true;
  config.strategy.name = "grid";
  config.space = {{.name = "optimizer.lr", .low = 1, .high = 3, .integer = true}};
  const std::string page = PageOf(config);
  // From x 68 to 780 and, between 3 % of room at both ends, from y 388 to 54.
  EXPECT_THAT(page, HasSubstr("d=\"M68.0 388.0L424.0 388.0L424.0 221.0L780.0 221.0L780.0 54.0\""));
}

// Each was a group of its own, and each dimension explained 100 %.
TEST(SweepReport, OfAFewTrialsNothingIsExplained) {
  SweepConfig config;
  config.space = {{.name = "optimizer.lr", .scale = search::Scale::kLog, .low = 1e-3, .high = 1e-1},
                  {.name = "optimizer.weight_decay", .low = 0, .high = 1}};
  for (const int64_t trials : {2, 3}) {
    config.budget.trials = trials;
    EXPECT_THAT(ReportOf(config, /*page=*/false), Not(HasSubstr("explains")));
    EXPECT_THAT(PageOf(config), AllOf(HasSubstr("Too few trials to say"), Not(HasSubstr(" %</td>"))));
  }
}

/// x of each trial, in turn.
class InTurn : public search::SearchStrategy {
 public:
  explicit InTurn(std::vector<int64_t> points) : points_(std::move(points)) {}
  std::optional<search::Suggestion> Next(absl::Span<const search::Observation> history) const override {
    if (history.size() >= points_.size()) return std::nullopt;
    return search::Suggestion{.point = {{"x", points_[history.size()]}}, .why = "listed"};
  }

 private:
  const std::vector<int64_t> points_;
};

/// How much x explains where the metric is the number of the trial.
double ShareOf(const std::vector<int64_t>& points) {
  SweepConfig config;
  config.parallel = 1;
  config.space = {{.name = "x", .low = 1, .high = 6, .integer = true}};
  const InTurn strategy(points);
  SweepPlan plan(config, strategy, [runs = 0](const search::Point&, int64_t) mutable -> absl::StatusOr<TrialSetup> {
    TrialSetup setup;
    setup.config.train.steps = 10;
    setup.digest = static_cast<uint64_t>(++runs);
    setup.flops_per_step = setup.tokens_per_step = 1;
    return setup;
  });
  while (!plan.done()) {
    const auto& trial = plan.trials().back();
    plan.Tell(trial.number, {.measured = true, .value = static_cast<double>(trial.number), .steps = 10});
  }
  const std::vector<Importance> importance = ImportanceOf(config, plan);
  return importance.size() == 1 ? importance[0].share : -1;
}

// Groups of equal number cut those of x = 6 up by their metric, which then seemed to be explained by x to 85 %.
TEST(SweepReport, TrialsWithOneValueAreInOneGroup) {
  std::vector<int64_t> in_the_middle(30, 6), first(30, 6);
  for (int64_t x = 1; x <= 5; ++x) {
    in_the_middle[static_cast<size_t>(11 + x)] = x;
    first[static_cast<size_t>(x - 1)] = x;
  }
  EXPECT_EQ(ShareOf(in_the_middle), 0);
  // Of the squares, 2247.5, those of 0 to 4 and of 5 to 29 have 1310: 1 - (1310 / 28) / (2247.5 / 29).
  EXPECT_NEAR(ShareOf(first), 0.396, 0.001);
}

// The metric is 8 i + 2 j + k: 24 trials differ by 1150, those with one rate by 126, and 1 - (126 / 21) / (1150 / 23)
// is 0.88. Four widths explain 120 and two kinds 6, less than by chance.
TEST(SweepReport, WhatGroupsExplainByChanceIsTakenOff) {
  const std::string text = ReportOf(GridOf(4), /*page=*/false), page = PageOf(GridOf(4));
  EXPECT_THAT(text, AllOf(HasSubstr("optimizer.lr                     explains  88 % of"),
                          HasSubstr("width                            explains   0 % of"),
                          HasSubstr("kind                             explains   0 % of")));
  EXPECT_THAT(page, AllOf(HasSubstr("<td>optimizer.lr</td><td>88 %</td>"), HasSubstr("<td>width</td><td>0 %</td>")));
}

}  // namespace
}  // namespace holdfast
