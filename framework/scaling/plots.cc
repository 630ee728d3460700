#include "framework/scaling/plots.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/metrics/progress.h"
#include "framework/scaling/optimum.h"

namespace holdfast {
namespace {

constexpr int kPoints = 60;  // of a curve

/// The law and its band over `kPoints` values in equal ratios; `size` is the run at a value.
Curve LawCurve(const Fit& fit, double low, double high, const std::function<RunSize(double)>& size) {
  Curve curve{.label = "", .x = {}, .y = {}};
  for (int i = 0; i < kPoints; ++i) {
    const double x = low * std::pow(high / low, static_cast<double>(i) / (kPoints - 1));
    const RunSize at = size(x);
    const Interval interval = fit.IntervalOf([&at](const Law& law) { return law.Loss(at); });
    curve.x.push_back(x);
    curve.y.push_back(fit.law.Loss(at));
    curve.low.push_back(interval.low);
    curve.high.push_back(interval.high);
  }
  return curve;
}

/// At most `count` of them, the first and the last among them.
template <typename T>
std::vector<T> Spread(const std::vector<T>& all, size_t count) {
  if (all.size() <= count) return all;
  std::vector<T> some;
  for (size_t i = 0; i < count; ++i) some.push_back(all[i * (all.size() - 1) / (count - 1)]);
  return some;
}

/// By parameters, active ones first, those within 1 % together.
std::vector<std::vector<const Observation*>> RunsBySize(const Fit& fit) {
  std::vector<const Observation*> runs;
  for (const Observation& run : fit.runs) runs.push_back(&run);
  std::stable_sort(runs.begin(), runs.end(), [](const Observation* a, const Observation* b) {
    return std::pair(a->size.active, a->size.parameters) < std::pair(b->size.active, b->size.parameters);
  });
  const auto alike = [](const RunSize& a, const RunSize& b) {
    return std::abs(a.active / b.active - 1) < 0.01 && std::abs(a.parameters / b.parameters - 1) < 0.01;
  };
  std::vector<std::vector<const Observation*>> groups;
  for (const Observation* run : runs) {
    if (groups.empty() || !alike(run->size, groups.back().front()->size)) groups.emplace_back();
    groups.back().push_back(run);
  }
  return groups;
}

}  // namespace

Plot LossPlot(const Fit& fit) {
  constexpr size_t kSizes = 5;
  Plot plot{.curves = {},
            .options = {
                .title = "Loss by active parameters", .x_label = "tokens", .y_label = "nats per token", .log_x = true}};
  double low = INFINITY, high = 0;
  for (const Observation& run : fit.runs) {
    low = std::min(low, run.size.tokens);
    high = std::max(high, run.size.tokens);
  }
  int color = 0;
  for (const auto& runs : Spread(RunsBySize(fit), kSizes)) {
    Curve points{.label = FormatCount(runs[0]->size.active), .x = {}, .y = {}, .points = true, .line = false};
    for (const Observation* run : runs) {
      points.x.push_back(run->size.tokens);
      points.y.push_back(run->loss);
    }
    Curve law = LawCurve(fit, low, high, [&](double tokens) {
      return RunSize{.parameters = runs[0]->size.parameters, .active = runs[0]->size.active, .tokens = tokens};
    });
    law.color = points.color = color++;
    plot.curves.push_back(std::move(law));
    plot.curves.push_back(std::move(points));
  }
  return plot;
}

Plot FrontierPlot(const Fit& fit) {
  Plot plot{.curves = {},
            .options = {.title = "Least loss", .x_label = "FLOPs (6 N D)", .y_label = "nats per token", .log_x = true}};
  Curve points{.label = "runs", .x = {}, .y = {}, .points = true, .line = false};
  for (const Observation& run : fit.runs) {
    points.x.push_back(run.size.Flops());
    points.y.push_back(run.loss);
  }
  const auto [low, high] = std::minmax_element(points.x.begin(), points.x.end());
  if (OptimumFor(fit, *low).ok() && OptimumFor(fit, *high * 100).ok()) {
    plot.curves.push_back(LawCurve(fit, *low, *high * 100, [&](double flops) { return OptimumFor(fit, flops)->size; }));
    plot.curves.back().label = fit.options.form == LawForm::kMoe ? "law, dense" : "law";
  }
  plot.curves.push_back(std::move(points));
  return plot;
}

Plot HyperparameterPlot(const HyperparameterLaw& law, Hyperparameter which) {
  constexpr size_t kSizes = 6;
  Plot plot{.curves = {},
            .options = {.title = absl::StrCat("Loss over ", NameOf(which), ", by active parameters and tokens"),
                        .x_label = NameOf(which),
                        .y_label = "nats per token",
                        .log_x = true}};
  Curve best{.label = "lowest", .x = {}, .y = {}, .points = true, .line = false};
  for (const BestOfSize& size : Spread(law.sizes, kSizes)) {
    plot.curves.push_back({.label = absl::StrCat(FormatCount(size.size.active), ", ", FormatCount(size.size.tokens)),
                           .x = size.tried,
                           .y = size.losses,
                           .points = true});
    if (!size.inside) continue;
    best.x.push_back(size.best);
    best.y.push_back(size.loss);
  }
  plot.curves.push_back(std::move(best));
  return plot;
}

Plot IsoflopPlot(const Fit& fit, const IsoflopCurves& isoflop) {
  constexpr size_t kBudgets = 6;
  Plot plot{
      .curves = {},
      .options = {.title = "IsoFLOP", .x_label = "active parameters", .y_label = "nats per token", .log_x = true}};
  int color = 0;
  for (const IsoflopCurve& budget : Spread(isoflop.curves, kBudgets)) {
    Curve points{.label = absl::StrFormat("%.1e", budget.flops), .x = {}, .y = {}, .points = true, .line = false};
    for (const size_t run : budget.runs) {
      points.x.push_back(fit.runs[run].size.active);
      points.y.push_back(fit.runs[run].loss);
    }
    const RunSize& first = fit.runs[budget.runs[0]].size;
    Curve law = LawCurve(fit, points.x.front(), points.x.back(), [&](double active) {
      return RunSize{
          .parameters = active * first.parameters / first.active, .active = active, .tokens = budget.TokensAt(active)};
    });
    law.color = points.color = color++;
    plot.curves.push_back(std::move(law));
    plot.curves.push_back(std::move(points));
  }
  return plot;
}

}  // namespace holdfast
