// Proves that intervals are the percentiles they should be, that IsoFLOP curves and laws of hyperparameters find the
// lowest points of losses made with known ones, and that the next run narrows as much as a direct computation says.
#include <Eigen/Dense>
#include <cmath>

#include "framework/scaling/hyperparameter_law.h"
#include "framework/scaling/isoflop.h"
#include "framework/scaling/next_run.h"
#include "framework/scaling/optimum.h"
#include "framework/scaling/plots.h"
#include "framework/scaling/quantiles.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/framework/scaling/synthetic_runs.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(Quantiles, TailsAreExpandedByStudentsT) {
  EXPECT_NEAR(ExpandedTail(0.9, 100'000, 1), 0.05, 2e-4);
  // t with 5 degrees is exceeded by 2.0150 in 5 % (tables); the normal distribution by sqrt(6/5) of that in 1.364 %.
  EXPECT_NEAR(ExpandedTail(0.9, 6, 1), 0.01364, 1e-4);
  EXPECT_LT(ExpandedTail(0.9, 10, 5), ExpandedTail(0.9, 20, 5));
}

TEST(Quantiles, IntervalsAreInterpolated) {
  const Interval interval = CentralInterval({4, 0, 3, 1, 2}, 0.1);
  EXPECT_NEAR(interval.low, 0.4, 1e-12);
  EXPECT_NEAR(interval.high, 3.6, 1e-12);
  EXPECT_EQ(CentralInterval({7}, 0.1).low, 7);
}

TEST(Parabola, HasALowestPointOrIsNone) {
  const std::vector<double> x = {1, 2, 3, 5};
  std::vector<double> y;
  for (const double v : x) y.push_back(3 * (v - 2.5) * (v - 2.5) + 1);
  const auto parabola = FitParabola(x, y);
  ASSERT_TRUE(parabola.has_value());
  EXPECT_NEAR(parabola->x_min, 2.5, 1e-9);
  EXPECT_NEAR(parabola->y_min, 1, 1e-9);
  EXPECT_NEAR(parabola->At(4), 7.75, 1e-9);
  for (double& v : y) v = -v;
  EXPECT_FALSE(FitParabola(x, y).has_value());
  EXPECT_FALSE(FitParabola(std::vector<double>{1, 1, 2, 2}, std::vector<double>{1, 2, 3, 4}).has_value());
}

TEST(PowerLaws, AreFoundOrSaidNotToBeDetermined) {
  const std::vector<std::vector<double>> x = {{1e8, 1e9}, {1e9, 3e9}, {1e10, 1e11}};
  std::vector<double> y;
  for (const auto& v : x) y.push_back(5 * std::pow(v[0], -0.3) * std::pow(v[1], 0.1));
  const auto law = FitPowerLaw(x, y);
  ASSERT_TRUE(law.has_value());
  EXPECT_NEAR(law->exponents[0], -0.3, 1e-9);
  EXPECT_NEAR(law->exponents[1], 0.1, 1e-9);
  EXPECT_NEAR(law->At({2e9, 2e9}), 5 * std::pow(2e9, -0.2), 1e-9);
  const std::vector<std::vector<double>> together = {{1e8, 2e9}, {1e9, 2e10}, {1e10, 2e11}};
  EXPECT_FALSE(FitPowerLaw(together, y).has_value());
}

std::vector<Observation> IsoflopRuns(const Law& law, const std::vector<double>& budgets) {
  std::vector<RunSize> sizes;
  for (const double flops : budgets) {
    for (int i = -3; i <= 3; ++i) {
      const double active = 0.1 * std::sqrt(flops / 6) * std::pow(1.3, i);
      sizes.push_back({.parameters = active, .active = active, .tokens = flops / 6 / active});
    }
  }
  return RunsOf(law, sizes, 0, 1);
}

TEST(Isoflop, FindsCurvesAndTheirLowestPoints) {
  // With equal exponents the optimum is N = sqrt((C / 6) / g) and a parabola in log N is not biased.
  const Law law = LawOf(LawForm::kChinchilla, {1.8, 400, 400 * 4}, {0.35, 0.35});
  std::vector<Observation> runs = IsoflopRuns(law, {1e19, 1e20, 1e21});
  runs.push_back(
      {.name = "alone", .size = {1e9, 1e9, 1e13}, .flops = 6e22, .loss = 2, .learning_rate = {}, .batch_tokens = {}});
  const IsoflopCurves curves = FindIsoflopCurves(runs);
  ASSERT_THAT(curves.curves, SizeIs(3));
  EXPECT_NEAR(curves.curves[1].flops, 1e20, 1e14);
  for (const IsoflopCurve& curve : curves.curves) {
    EXPECT_THAT(curve.runs, SizeIs(7));
    EXPECT_TRUE(curve.lowest_is_inside);
    EXPECT_NEAR(std::log(curve.best_active() / std::sqrt(curve.flops / 6 * std::pow(0.25, 1 / 0.35))), 0, 0.03);
  }
  ASSERT_TRUE(curves.optimum.has_value());
  EXPECT_NEAR(curves.optimum->exponents[0], 0.5, 0.001);
}

// Attention, or another way to count.
TEST(Isoflop, TokensAreThoseOfTheRunsWhateverTheirFlopsCount) {
  std::vector<Observation> runs =
      IsoflopRuns(LawOf(LawForm::kChinchilla, {1.8, 400, 400 * 4}, {0.35, 0.35}), {1e19, 1e20});
  for (Observation& run : runs) run.flops *= 2;
  for (const IsoflopCurve& curve : FindIsoflopCurves(runs).curves) {
    EXPECT_NEAR(curve.TokensAt(1e9) / (curve.flops / 12 / 1e9), 1, 1e-6);
  }
}

TEST(Isoflop, ALowestPointOutsideTheSizesDoesNotCount) {
  std::vector<Observation> runs = IsoflopRuns(LawOf(LawForm::kChinchilla, {1.8, 4000, 40}, {0.35, 0.35}), {1e19, 1e21});
  const IsoflopCurves curves = FindIsoflopCurves(runs);
  for (const IsoflopCurve& curve : curves.curves) EXPECT_FALSE(curve.lowest_is_inside);
  EXPECT_FALSE(curves.optimum.has_value());
}

/// Runs of some sizes with learning rates around the best of each, which is 20 N^-0.25 D^0.05.
std::vector<Observation> Sweeps(const std::vector<RunSize>& sizes) {
  std::vector<Observation> runs = {};
  for (const RunSize& size : sizes) {
    const double best = 20 * std::pow(size.active, -0.25) * std::pow(size.tokens, 0.05);
    for (const double factor : {0.25, 0.5, 1.5, 3.0}) {
      for (const double batch : {1e5, 1e6}) {
        runs.push_back({.name = "",
                        .size = size,
                        .flops = size.Flops(),
                        .loss = 3 + 0.1 * std::pow(std::log(factor), 2) + (batch < 5e5 ? 0.5 : 0),
                        .learning_rate = best * factor,
                        .batch_tokens = batch});
      }
    }
  }
  return runs;
}

TEST(HyperparameterLaw, FindsTheBestOfEachSizeAndTheirLaw) {
  const auto found = FindHyperparameterLaw(
      Sweeps({{1e8, 1e8, 1e9}, {1e9, 1e9, 5e9}, {4e9, 4e9, 1e9}, {1e9, 1e9, 1e11}}), Hyperparameter::kLearningRate);
  ASSERT_THAT(found.sizes, SizeIs(4));
  EXPECT_NEAR(found.sizes[0].best, 20 * std::pow(1e8, -0.25) * std::pow(1e9, 0.05), 1e-9);
  EXPECT_NEAR(found.sizes[0].loss, 3, 1e-9) << "of the better batch size";
  ASSERT_TRUE(found.law.has_value());
  EXPECT_TRUE(found.over_tokens);
  EXPECT_NEAR(found.law->exponents[0], -0.25, 1e-6);
  EXPECT_NEAR(found.law->exponents[1], 0.05, 1e-6);
}

TEST(HyperparameterLaw, OverSizeAloneWhereTokensGoWithIt) {
  const auto runs = Sweeps({{1e8, 1e8, 2e9}, {1e9, 1e9, 2e10}, {1e10, 1e10, 2e11}});
  const auto found = FindHyperparameterLaw(runs, Hyperparameter::kLearningRate);
  ASSERT_TRUE(found.law.has_value());
  EXPECT_FALSE(found.over_tokens);
  EXPECT_NEAR(found.law->exponents[0], -0.2, 1e-6);
  EXPECT_THAT(FindHyperparameterLaw(runs, Hyperparameter::kBatchTokens).sizes, IsEmpty()) << "two batch sizes only";
}

/// Of one size and number of tokens.
std::vector<Observation> WithLosses(const std::vector<std::pair<double, double>>& rates_and_losses) {
  std::vector<Observation> runs;
  for (const auto& [rate, loss] : rates_and_losses) {
    const RunSize size{.parameters = 1e8, .active = 1e8, .tokens = 2e9};
    runs.push_back(
        {.name = "", .size = size, .flops = size.Flops(), .loss = loss, .learning_rate = rate, .batch_tokens = 1e6});
  }
  return runs;
}

// As of a Llama with 0.1 million parameters: a parabola through all of them is lowest at 0.011, and 0.3 nats below any.
TEST(HyperparameterLaw, WhatIsFarFromTheLowestLossSaysNothingOfIt) {
  const auto runs = WithLosses({{0.001, 5.19}, {0.003, 4.65}, {0.01, 3.48}, {0.03, 3.10}, {0.1, 4.12}, {0.3, 10.03}});
  const auto found = FindHyperparameterLaw(runs, Hyperparameter::kLearningRate);
  ASSERT_THAT(found.sizes, SizeIs(1));
  EXPECT_TRUE(found.sizes[0].inside);
  EXPECT_NEAR(found.sizes[0].best, 0.0243, 0.0005);
  EXPECT_NEAR(found.sizes[0].loss, 3.07, 0.01);
  EXPECT_THAT(found.sizes[0].tried, SizeIs(6)) << "all are drawn";
}

// With noise: the three about the lowest alone are a parabola that is lowest at 0.0123.
TEST(HyperparameterLaw, AllWithinAFactorOfFourCount) {
  std::vector<std::pair<double, double>> points;
  for (double factor = 1.0 / 6; factor < 9; factor *= std::sqrt(2)) {
    const double noise = points.size() % 4 < 2 ? 0.01 : -0.01;
    points.emplace_back(0.01 * factor, 3 + 0.1 * std::pow(std::log(factor), 2) + noise);
  }
  const auto found = FindHyperparameterLaw(WithLosses(points), Hyperparameter::kLearningRate);
  ASSERT_THAT(found.sizes, SizeIs(1));
  EXPECT_NEAR(found.sizes[0].best, 0.0098, 0.0005);
}

// A lucky seed of one rate is no better rate.
TEST(HyperparameterLaw, OfRunsAlikeTheMeanCounts) {
  const auto runs = WithLosses({{0.01, 3.2}, {0.02, 3.0}, {0.04, 3.2}, {0.04, 2.9}, {0.04, 3.5}});
  const auto found = FindHyperparameterLaw(runs, Hyperparameter::kLearningRate);
  ASSERT_THAT(found.sizes, SizeIs(1));
  EXPECT_NEAR(found.sizes[0].best, 0.02, 1e-9);
}

TEST(HyperparameterLaw, ABestAtTheEdgeIsNotUsed) {
  std::vector<Observation> runs = Sweeps({{1e8, 1e8, 2e9}, {1e9, 1e9, 2e10}});
  std::erase_if(runs, [](const Observation& run) {  // of the small one only learning rates below the best
    const double best = 20 * std::pow(run.size.active, -0.25) * std::pow(run.size.tokens, 0.05);
    return run.size.active < 5e8 && *run.learning_rate > 1.2 * best;
  });
  runs.push_back(runs[0]);
  runs.back().learning_rate = *runs[0].learning_rate / 2;
  runs.back().loss = 3 + 0.1 * std::pow(std::log(0.125), 2);
  const auto found = FindHyperparameterLaw(runs, Hyperparameter::kLearningRate);
  ASSERT_THAT(found.sizes, SizeIs(2));
  EXPECT_FALSE(found.sizes[0].inside);
  EXPECT_FALSE(found.law.has_value());
}

/// g' M^-1 g with differences for derivatives and a plain inverse.
double VarianceAt(const Law& law, const std::vector<RunSize>& runs, const RunSize& target) {
  const auto gradient = [&](const RunSize& size) {
    Eigen::VectorXd g(5);
    for (int i = 0; i < 5; ++i) {
      Law up = law, down = law;
      (i < 3 ? up.log_coefficients[i] : up.exponents[i - 3]) += 1e-5;
      (i < 3 ? down.log_coefficients[i] : down.exponents[i - 3]) -= 1e-5;
      g[i] = (up.LogLoss(LogSize(size)) - down.LogLoss(LogSize(size))) / 2e-5;
    }
    return g;
  };
  Eigen::MatrixXd information = Eigen::MatrixXd::Zero(5, 5);
  for (const RunSize& run : runs) information += gradient(run) * gradient(run).transpose();
  return gradient(target).dot(information.fullPivLu().solve(gradient(target)));
}

TEST(NextRun, NarrowsAsMuchAsItSays) {
  const std::vector<RunSize> sizes = GridOfSizes(4);
  const Fit fit = *FitLaw(RunsOf(ReplicatedChinchilla(), sizes, 0.002, 1), {.resamples = 20}, 1);
  const RunSize target{.parameters = 7e10, .active = 7e10, .tokens = 1.4e12};
  const auto runs = NextRuns(fit, {.target = target, .flops_max = 1e23, .narrowing_min = 0.05});
  ASSERT_TRUE(runs.ok()) << runs.status();
  ASSERT_FALSE(runs->empty());
  const double before = VarianceAt(fit.law, sizes, target);
  double per_flop = INFINITY;
  for (const NextRun& run : *runs) {
    std::vector<RunSize> with = sizes;
    with.push_back(run.size);
    EXPECT_NEAR(run.narrowing, 1 - std::sqrt(VarianceAt(fit.law, with, target) / before), 0.01);
    EXPECT_GE(run.narrowing, 0.05);
    EXPECT_LE(run.flops, 1e23);
    EXPECT_EQ(run.flops, run.size.Flops());
    EXPECT_LE(run.narrowing / run.flops, per_flop);
    per_flop = run.narrowing / run.flops;
  }
  EXPECT_THAT(*NextRuns(fit, {.target = target, .flops_max = 1e10}), IsEmpty());
  EXPECT_THAT(std::string(NextRuns(fit, {.target = {}, .flops_max = 1e23}).status().message()),
              HasSubstr("the target:"));
}

TEST(HyperparameterLaw, OnlyTheBestOfEachSizeAreTakenForALaw) {
  std::vector<Observation> runs = Sweeps({{1e8, 1e8, 1e9}, {1e9, 1e9, 1e9}});
  runs.push_back(runs[5]);  // another seed of the best of the first size: learning rate x 1.5, the larger batch
  runs.back().loss += 0.01;
  runs.push_back(runs[0]);  // a lucky one of a bad learning rate: the mean is what counts
  runs.back().loss = 2.9;
  const std::vector<Observation> best = WithBestHyperparameters(runs);
  ASSERT_THAT(best, SizeIs(3));
  EXPECT_EQ(best[0].size.active, 1e8);
  EXPECT_EQ(best[1].size.active, 1e9);
  EXPECT_NEAR(best[2].loss - best[0].loss, 0.01, 1e-9);
  for (const Observation& run : best) EXPECT_EQ(run.batch_tokens, 1e6);
}

TEST(Plots, ShowLossesOverWhatWasTriedAndTheLowest) {
  const auto law = FindHyperparameterLaw(Sweeps({{1e8, 1e8, 1e9}, {1e9, 1e9, 5e9}}), Hyperparameter::kLearningRate);
  const Plot plot = HyperparameterPlot(law, Hyperparameter::kLearningRate);
  ASSERT_THAT(plot.curves, SizeIs(3));
  EXPECT_TRUE(plot.options.log_x);
  EXPECT_EQ(plot.curves[0].x, law.sizes[0].tried);
  EXPECT_EQ(plot.curves[0].y, law.sizes[0].losses);
  EXPECT_NE(plot.curves[0].label, plot.curves[1].label);
  EXPECT_THAT(plot.options.title, HasSubstr("by active parameters and tokens")) << "what the labels are";
  EXPECT_THAT(plot.curves[2].x, ElementsAre(law.sizes[0].best, law.sizes[1].best));
}

TEST(Plots, ShowRunsAndTheLawWithItsBand) {
  const Law law = LawOf(LawForm::kChinchilla, {1.8, 400, 1600}, {0.35, 0.35});
  const Fit fit = *FitLaw(IsoflopRuns(law, {1e19, 1e20, 1e21}), {.resamples = 20}, 1);
  const Plot plot = LossPlot(fit);
  ASSERT_THAT(plot.curves, SizeIs(10)) << "five sizes: a law and its runs";
  EXPECT_EQ(plot.curves[0].color, plot.curves[1].color);
  EXPECT_EQ(plot.curves[0].x.size(), plot.curves[0].low.size());
  EXPECT_FALSE(plot.curves[1].line);
  EXPECT_THAT(plot.options.title, HasSubstr("by active parameters")) << "what the labels of the curves are";
  const Plot frontier = FrontierPlot(fit);
  ASSERT_THAT(frontier.curves, SizeIs(2));
  EXPECT_THAT(frontier.curves[1].x, SizeIs(fit.runs.size()));
  EXPECT_NEAR(frontier.curves[0].y[0], OptimumFor(fit, frontier.curves[0].x[0])->loss, 1e-9);
  const IsoflopCurves curves = FindIsoflopCurves(fit.runs);
  const Plot isoflop = IsoflopPlot(fit, curves);
  ASSERT_THAT(isoflop.curves, SizeIs(6));
  EXPECT_NEAR(isoflop.curves[0].y.front(), isoflop.curves[1].y.front(), 1e-3) << "losses without noise lie on the law";
}

}  // namespace
}  // namespace holdfast
