// Proves of every strategy that its suggestions follow from the history alone, wherever it is cut, that no point is
// tried twice, that a finite space ends when all of it is tried, and that failures, constant and equal values, NaN and
// fixed dimensions neither stop it nor break it; of Bayesian search that it finds what an even spread does not.
#include "framework/search/strategy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::search {
namespace {

using ::testing::HasSubstr;

SearchSpace Mixed() {
  return SearchSpace::Create({{.name = "lr", .scale = Scale::kLog, .low = 1e-5, .high = 1e-1},
                              {.name = "layers", .low = 1, .high = 8, .integer = true},
                              {.name = "optimizer", .scale = Scale::kChoice, .choices = {"adamw", "muon"}},
                              {.name = "beta", .low = 0, .high = 1, .condition = Condition{"optimizer", "adamw"}},
                              {.name = "fixed", .low = 0.3, .high = 0.3}})
      .value();
}

SearchSpace Square() {
  return SearchSpace::Create({{.name = "x", .low = -5, .high = 10}, {.name = "y", .low = 0, .high = 15}}).value();
}

SearchSpace Small() {
  return SearchSpace::Create({{.name = "n", .low = 1, .high = 4, .integer = true},
                              {.name = "c", .scale = Scale::kChoice, .choices = {"a", "b", "c"}}})
      .value();
}

std::unique_ptr<SearchStrategy> Must(const SearchSpace& space, StrategyOptions options) {
  auto strategy = MakeStrategy(space, options);
  EXPECT_TRUE(strategy.ok()) << strategy.status();
  return *std::move(strategy);
}

StrategyOptions Named(const std::string& name, uint64_t seed = 1) {
  StrategyOptions options{.name = name, .seed = seed};
  if (name == "asha") options.rungs = 3;
  return options;
}

double Number(const Point& point, const std::string& name) {
  const PointValue& value = point.at(name);
  if (const auto* whole = std::get_if<int64_t>(&value)) return static_cast<double>(*whole);
  return std::get<double>(value);
}

Observation Of(int64_t trial, const Suggestion& suggestion) {
  return {
      .trial = trial, .point = suggestion.point, .rung = suggestion.rung, .continues = suggestion.continues, .cost = 1};
}

/// With `workers` that run at once, each ending when that many others have begun. value: nothing is a failure.
template <typename Value>
std::vector<Observation> Search(const SearchStrategy& strategy, int trials, Value value, int workers = 1) {
  std::vector<Observation> history;
  const auto end = [&](Observation& one) {
    const std::optional<double> is = value(one);
    one.outcome = is.has_value() ? TrialOutcome::kMeasured : TrialOutcome::kFailed;
    if (is.has_value()) one.value = *is;
  };
  while (static_cast<int>(history.size()) < trials) {
    const auto next = strategy.Next(history);
    if (!next.has_value()) break;
    EXPECT_FALSE(next->why.empty());
    history.push_back(Of(static_cast<int64_t>(history.size()), *next));
    if (static_cast<int>(history.size()) >= workers) end(history[history.size() - static_cast<size_t>(workers)]);
  }
  for (Observation& one : history) {
    if (one.outcome == TrialOutcome::kRunning) end(one);
  }
  return history;
}

std::optional<double> Bowl(const Observation& one) {
  const double x = std::log10(Number(one.point, "lr")) + 3;
  if (x > 1.5) return std::nullopt;
  return x * x + 0.1 * Number(one.point, "layers") - 0.1 * static_cast<double>(one.rung);
}

std::optional<double> Branin(const Observation& one) {
  const double x = Number(one.point, "x"), y = Number(one.point, "y");
  const double a = y - 5.1 / (4 * M_PI * M_PI) * x * x + 5 / M_PI * x - 6;
  return a * a + 10 * (1 - 1 / (8 * M_PI)) * std::cos(x) + 10;
}

void ExpectDifferent(const std::vector<Observation>& history) {
  std::set<std::pair<std::string, int64_t>> tried;
  for (const Observation& one : history) {
    EXPECT_TRUE(tried.insert({PointText(one.point), one.rung}).second) << PointText(one.point);
  }
}

class EveryStrategy : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Search, EveryStrategy, ::testing::Values("random", "asha", "bayes"));

TEST_P(EveryStrategy, ResumesWhereverItsHistoryIsCut) {
  const auto strategy = Must(Mixed(), Named(GetParam()));
  const std::vector<Observation> whole = Search(*strategy, 30, Bowl);
  ASSERT_EQ(whole.size(), 30u);
  ExpectDifferent(whole);
  const auto resumed = Must(Mixed(), Named(GetParam()));
  for (size_t cut = 0; cut < whole.size(); ++cut) {
    const auto next = resumed->Next(absl::MakeConstSpan(whole).first(cut));
    ASSERT_TRUE(next.has_value());
    EXPECT_EQ(PointText(next->point), PointText(whole[cut].point));
    EXPECT_EQ(next->rung, whole[cut].rung);
    EXPECT_EQ(next->continues, whole[cut].continues);
  }
  const auto other = Must(Mixed(), Named(GetParam(), 2))->Next({});
  EXPECT_NE(PointText(other->point), PointText(whole[0].point));
}

TEST_P(EveryStrategy, TriesNothingTwiceWithManyAtOnce) {
  ExpectDifferent(Search(*Must(Mixed(), Named(GetParam())), 40, Bowl, 8));
}

TEST_P(EveryStrategy, EndsWithAFiniteSpace) {
  const std::vector<Observation> history =
      Search(*Must(Small(), Named(GetParam())), 100, [](const Observation& one) { return Number(one.point, "n"); });
  ExpectDifferent(history);
  int64_t first = 0;
  for (const Observation& one : history) first += one.rung == 0 ? 1 : 0;
  EXPECT_EQ(first, 12);
}

TEST_P(EveryStrategy, SpreadsOutWhereAllFails) {
  const std::vector<Observation> history =
      Search(*Must(Square(), Named(GetParam())), 40, [](const Observation&) { return std::optional<double>(); });
  ASSERT_EQ(history.size(), 40u);
  ExpectDifferent(history);
  std::set<std::pair<int, int>> fields;  // of 4 x 4
  for (const Observation& one : history) {
    fields.insert(
        {static_cast<int>((Number(one.point, "x") + 5) / 3.76), static_cast<int>(Number(one.point, "y") / 3.76)});
  }
  EXPECT_GE(fields.size(), 13u);
}

TEST_P(EveryStrategy, TakesOddValues) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<double> odd = {1, 1, std::nan(""), inf, -inf, 1e308, -1e308, 1, 1e-308, 0};
  for (const bool constant : {true, false}) {
    const std::vector<Observation> history = Search(*Must(Mixed(), Named(GetParam())), 40, [&](const Observation& one) {
      return std::optional(constant ? 7.0 : odd[static_cast<size_t>(one.trial) % odd.size()]);
    });
    EXPECT_EQ(history.size(), 40u);
    ExpectDifferent(history);
  }
}

TEST_P(EveryStrategy, TakesAValueThatIsNotFiniteForAFailure) {
  const auto strategy = Must(Mixed(), Named(GetParam()));
  std::vector<Observation> failed = Search(*strategy, 30, Bowl), not_finite = failed;
  for (size_t i = 0; i < failed.size(); i += 3) {
    failed[i].outcome = TrialOutcome::kFailed;
    not_finite[i].outcome = TrialOutcome::kMeasured;
    not_finite[i].value = i % 2 == 0 ? -INFINITY : std::nan("");
  }
  const auto expected = strategy->Next(failed), next = strategy->Next(not_finite);
  ASSERT_TRUE(expected.has_value() && next.has_value());
  EXPECT_EQ(PointText(next->point), PointText(expected->point));
  EXPECT_EQ(next->rung, expected->rung);
}

TEST_P(EveryStrategy, PassesOverPointsOfAnotherSpace) {
  const auto strategy = Must(Mixed(), Named(GetParam()));
  std::vector<Observation> history = Search(*strategy, 15, Bowl);
  for (Observation& one : history) one.point["gone"] = 1.0;
  EXPECT_TRUE(strategy->Next(history).has_value());
}

TEST(Grid, IsListedInOrder) {
  const std::vector<Observation> history =
      Search(*Must(Small(), Named("grid")), 100, [](const Observation&) { return std::optional<double>(); });
  ASSERT_EQ(history.size(), 12u);
  EXPECT_EQ(PointText(history[0].point), "c=\"a\" n=1");
  EXPECT_EQ(PointText(history[4].point), "c=\"b\" n=2");
  std::vector<Observation> less = history;
  less.erase(less.begin() + 4);
  const auto next = Must(Small(), Named("grid"))->Next(less);
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(PointText(next->point), PointText(history[4].point));
  EXPECT_THAT(MakeStrategy(Square(), Named("grid")).status().message(), HasSubstr("x: a grid needs its `points`"));
}

TEST(Random, IsEven) {
  // 64 points in 8 x 8 fields: an even spread reaches far more of them than the 41 that independent ones do.
  const std::vector<Observation> history = Search(*Must(Square(), Named("random")), 64, Branin);
  std::set<std::pair<int, int>> fields;
  for (const Observation& one : history) {
    fields.insert(
        {static_cast<int>((Number(one.point, "x") + 5) / 1.876), static_cast<int>(Number(one.point, "y") / 1.876)});
  }
  EXPECT_GE(fields.size(), 46u);
}

TEST(Halving, ContinuesTheBestThird) {
  const auto strategy = Must(Square(), Named("asha"));
  std::vector<Observation> history;
  for (const double value : {3.0, 1.0, 1.0}) {
    const auto next = strategy->Next(history);
    ASSERT_EQ(next->rung, 0);
    history.push_back(Of(static_cast<int64_t>(history.size()), *next));
    history.back().outcome = TrialOutcome::kMeasured;
    history.back().value = value;
  }
  const auto next = strategy->Next(history);
  EXPECT_EQ(next->rung, 1);
  EXPECT_EQ(next->continues, 1);  // of equal ones the first
  EXPECT_EQ(PointText(next->point), PointText(history[1].point));
  history.push_back(Of(3, *next));
  EXPECT_EQ(strategy->Next(history)->rung, 0) << "while it runs it is not continued again";
  history[3].outcome = TrialOutcome::kFailed;
  EXPECT_EQ(strategy->Next(history)->rung, 0) << "what failed at a higher rung is not continued again";
}

TEST(Halving, CountsFailuresAsTheWorst) {
  const auto strategy = Must(Square(), Named("asha"));
  const std::vector<Observation> history =
      Search(*strategy, 3, [](const Observation& one) { return one.trial == 2 ? std::optional(5.0) : std::nullopt; });
  EXPECT_EQ(strategy->Next(history)->continues, 2);
}

// Else, where most of a space is refused, all that can be trained would be trained in full.
TEST(Halving, WhatIsRefusedIsOfNoRung) {
  const auto strategy = Must(Square(), Named("asha"));
  std::vector<Observation> history =
      Search(*strategy, 3, [](const Observation& one) { return one.trial == 2 ? std::optional(5.0) : std::nullopt; });
  for (size_t i : {0, 1}) history[i].outcome = TrialOutcome::kRefused;
  EXPECT_EQ(strategy->Next(history)->rung, 0) << "one of one is not a third";
  history[0].outcome = history[1].outcome = TrialOutcome::kFailed;
  EXPECT_EQ(strategy->Next(history)->rung, 1);
}

double Lowest(const std::vector<Observation>& history) {
  double lowest = 1e300;
  for (const Observation& one : history) {
    if (one.outcome == TrialOutcome::kMeasured) lowest = std::min(lowest, one.value);
  }
  return lowest;
}

TEST(Bayes, FindsWhatAnEvenSpreadDoesNot) {
  std::vector<double> bayes, random;
  for (const uint64_t seed : {1, 2, 3, 4, 5}) {
    bayes.push_back(Lowest(Search(*Must(Square(), Named("bayes", seed)), 28, Branin)));
    random.push_back(Lowest(Search(*Must(Square(), Named("random", seed)), 28, Branin)));
  }
  std::sort(bayes.begin(), bayes.end());
  std::sort(random.begin(), random.end());
  EXPECT_LT(bayes[2], 0.42);
  EXPECT_LT(bayes[4], 0.48);
  EXPECT_GT(random[2], 0.48);
}

/// Hartmann's function of six dimensions, whose lowest value is -3.32.
double Hartmann(const Observation& one) {
  constexpr double kA[4][6] = {
      {10, 3, 17, 3.5, 1.7, 8}, {0.05, 10, 17, 0.1, 8, 14}, {3, 3.5, 1.7, 10, 17, 8}, {17, 8, 0.05, 10, 0.1, 14}};
  constexpr double kP[4][6] = {{0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886},
                               {0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991},
                               {0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650},
                               {0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381}};
  constexpr double kC[4] = {1.0, 1.2, 3.0, 3.2};
  double sum = 0;
  for (int i = 0; i < 4; ++i) {
    double square = 0;
    for (int d = 0; d < 6; ++d) {
      square += kA[i][d] * std::pow(Number(one.point, absl::StrCat("x", d)) - kP[i][d], 2);
    }
    sum += kC[i] * std::exp(-square);
  }
  return -sum;
}

// Measured with noise, the place where a search happens to be is tried again and again unless it counts how little that
// says; and in six dimensions it stays there if it takes what it has not seen for known.
TEST(Bayes, DoesNotStayWhereNothingMoreCanBeLearned) {
  std::vector<Dimension> dimensions;
  for (int d = 0; d < 6; ++d) dimensions.push_back({.name = absl::StrCat("x", d), .low = 0, .high = 1});
  const SearchSpace space = SearchSpace::Create(dimensions).value();
  for (const uint64_t seed : {2, 6, 8}) {
    std::mt19937_64 random(seed);
    const auto noise = [&] {  // uniform, of deviation 0.1
      return 0.1 * std::sqrt(12.0) * (static_cast<double>(random() >> 11) / 9007199254740992.0 - 0.5);
    };
    const std::vector<Observation> history =
        Search(*Must(space, Named("bayes", seed)), 60,
               [&](const Observation& one) -> std::optional<double> { return Hartmann(one) + noise(); });
    double lowest = 0;
    for (const Observation& one : history) lowest = std::min(lowest, Hartmann(one));
    EXPECT_LT(lowest, -2.4) << seed;
  }
}

// Fifty noisy trials lie close together where it is best, 16 anywhere.
TEST(Bayes, LooksWhereAnotherTrialSaysSomething) {
  const SearchSpace space = SearchSpace::Create({{.name = "x", .low = 0, .high = 1}}).value();
  int elsewhere = 0;
  for (uint64_t seed = 1; seed <= 16; ++seed) {
    std::mt19937_64 random(seed);
    const auto uniform = [&] { return static_cast<double>(random() >> 11) / 9007199254740992.0; };
    std::vector<Observation> history;
    for (int i = 0; i < 66; ++i) {
      const double x = i < 50 ? 0.48 + 0.04 * uniform() : uniform();
      history.push_back({.trial = i, .point = {{"x", x}}, .outcome = TrialOutcome::kMeasured, .cost = 1});
      history.back().value = 2 * (x - 0.5) * (x - 0.5) + 0.05 * std::sqrt(12.0) * (uniform() - 0.5);
    }
    const double next = Number(Must(space, Named("bayes", seed))->Next(history)->point, "x");
    elsewhere += std::abs(next - 0.5) > 0.06 ? 1 : 0;
  }
  EXPECT_GE(elsewhere, 12) << "of 16";
}

TEST(Bayes, LearnsWhereTrialsFail) {
  int failed = 0;
  for (const uint64_t seed : {1, 2, 3, 4}) {
    Search(*Must(Square(), Named("bayes", seed)), 40, [&](const Observation& one) -> std::optional<double> {
      if (Number(one.point, "x") + Number(one.point, "y") / 2 <= 8) return Branin(one);
      failed += one.trial >= 15 ? 1 : 0;
      return std::nullopt;
    });
  }
  EXPECT_LE(failed, 45);  // of 100
}

TEST(Bayes, SpreadsWhatRunsAtOnce) {
  const auto strategy = Must(Square(), Named("bayes"));
  std::vector<Observation> history = Search(*strategy, 20, Branin);
  for (int i = 0; i < 4; ++i) history.push_back(Of(static_cast<int64_t>(history.size()), *strategy->Next(history)));
  for (size_t i = 20; i < 24; ++i) {
    for (size_t j = 20; j < i; ++j) {
      const double apart = std::hypot(Number(history[i].point, "x") - Number(history[j].point, "x"),
                                      Number(history[i].point, "y") - Number(history[j].point, "y"));
      EXPECT_GT(apart, 0.05) << i << " " << j;
    }
  }
}

TEST(Bayes, SpendsLessWhereItKnowsCosts) {
  const SearchSpace space = SearchSpace::Create({{.name = "lr", .scale = Scale::kLog, .low = 1e-5, .high = 1e-1},
                                                 {.name = "steps", .scale = Scale::kLog, .low = 100, .high = 10000}})
                                .value();
  const auto spent = [&](bool told) {
    const auto strategy = Must(space, Named("bayes"));
    std::vector<Observation> history;
    double sum = 0;
    for (int64_t i = 0; i < 25; ++i) {
      Observation one = Of(i, *strategy->Next(history));
      const double steps = Number(one.point, "steps");
      one.outcome = TrialOutcome::kMeasured;
      if (told) one.cost = steps;
      one.value = 3 * std::pow(steps, -0.3) + std::pow(std::log10(Number(one.point, "lr")) + 3, 2);
      sum += steps;
      history.push_back(one);
    }
    return sum;
  };
  EXPECT_LT(spent(true), 0.7 * spent(false));
}

TEST(Bayes, PaysForTheBestWithinABudget) {
  const SearchSpace space =
      SearchSpace::Create({{.name = "lr", .scale = Scale::kLog, .low = 1e-5, .high = 1e-1},
                           {.name = "wd", .scale = Scale::kLog, .low = 1e-4, .high = 1},
                           {.name = "steps", .scale = Scale::kLog, .low = 100, .high = 10000, .integer = true}})
          .value();
  constexpr double kLowest = 1.5 + 3 * 0.15848931924611134;  // 100^-0.4
  std::vector<double> regrets;
  for (const uint64_t seed : {1, 2, 3, 4, 5}) {
    const auto strategy = Must(space, Named("bayes", seed));
    std::vector<Observation> history;
    double left = 600, cheapest = 100, dearest = 0;
    while (history.size() < 100) {
      Observation one = Of(static_cast<int64_t>(history.size()), *strategy->Next(history));
      one.cost = Number(one.point, "steps") / 100;
      if (one.cost > left) break;
      left -= one.cost;
      one.outcome = TrialOutcome::kMeasured;
      const double log_lr = std::log10(Number(one.point, "lr")), log_wd = std::log10(Number(one.point, "wd"));
      one.value = 1.5 + 3 * std::pow(one.cost, -0.4) + 0.15 * std::pow(log_lr + 3 + 0.3 * std::log10(one.cost), 2) +
                  0.05 * std::pow(log_wd + 2, 2);
      if (history.size() >= 7) cheapest = std::min(cheapest, one.cost), dearest = std::max(dearest, one.cost);
      history.push_back(one);
    }
    regrets.push_back(Lowest(history) - kLowest);
    EXPECT_GT(dearest, 80) << seed;
    EXPECT_LT(cheapest, 20) << seed;
  }
  std::sort(regrets.begin(), regrets.end());
  EXPECT_LT(regrets[2], 0.05);
}

TEST(Bayes, TakesFiveHundredTrials) {
  std::vector<Observation> history = Search(*Must(Mixed(), Named("random")), 500, Bowl);
  const auto next = Must(Mixed(), Named("bayes"))->Next(history);
  ASSERT_TRUE(next.has_value());
  history.push_back(Of(500, *next));
  ExpectDifferent(history);
  EXPECT_LT(*Bowl(history.back()), Lowest(history) + 0.05);
}

TEST(Strategy, SaysAllThatIsWrongWithOptions) {
  const auto strategy = MakeStrategy(Square(), {.name = "best", .rungs = 0, .reduction = std::nan(""), .initial = -1});
  EXPECT_EQ(strategy.status().message(),
            "there is no strategy best; there are grid, random, asha and bayes\n"
            "rungs have to be 1, but with asha, not 0\n"
            "reduction has to be in (1, 100], not nan\n"
            "initial has to be 0 to 1000, not -1");
}

TEST(Halving, TheLastRungTakesSoManyTrialsAtLeast) {
  EXPECT_EQ(FewestTrialsToTheLastRung({.name = "random", .rungs = 1}), 1);
  EXPECT_EQ(FewestTrialsToTheLastRung({.name = "asha", .rungs = 2, .reduction = 3}), 4);
  EXPECT_EQ(FewestTrialsToTheLastRung({.name = "asha", .rungs = 3, .reduction = 3}), 13);
  EXPECT_EQ(FewestTrialsToTheLastRung({.name = "asha", .rungs = 3, .reduction = 1.5}), 1 + 2 + 3);
}

}  // namespace
}  // namespace holdfast::search
