#include "elastic/sweep/sweep_report.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "framework/base/counted.h"
#include "framework/metrics/parallel_coordinates.h"
#include "framework/metrics/plot.h"
#include "framework/metrics/progress.h"
#include "framework/metrics/xml_text.h"

namespace holdfast {
namespace {

constexpr size_t kMostGroups = 5;    // of trials, to see what a dimension explains
constexpr size_t kFewestWithin = 2;  // trials more than groups, to tell what a dimension explains from chance
constexpr size_t kMostCurves = 8;    // in a picture
constexpr int kPlotRows = 16;

int64_t HighestRung(const SweepPlan& plan) {
  const PlannedTrial* best = plan.best();
  return best == nullptr ? 0 : best->suggestion.rung;
}

/// What can be compared with each other: they were trained as long as the strategy wants.
std::vector<const PlannedTrial*> Comparable(const SweepPlan& plan) {
  std::vector<const PlannedTrial*> trials;
  const int64_t rung = HighestRung(plan);
  for (const PlannedTrial& trial : plan.trials()) {
    if (trial.ended && trial.result->measured && trial.suggestion.rung == rung) trials.push_back(&trial);
  }
  return trials;
}

bool IsBetter(const SweepConfig& config, double a, double b) { return config.maximize ? a > b : a < b; }

double PerStep(const SweepConfig& config, const PlannedTrial& trial) {
  return config.cost == CostKind::kTokens ? trial.setup->tokens_per_step : trial.setup->flops_per_step;
}

std::string ValueCell(const search::Point& point, const std::string& name) {
  const auto found = point.find(name);
  return found == point.end() ? "" : ValueText(found->second);
}

/// A number to place a value by: of a choice its number.
std::optional<double> Place(const search::Dimension& dimension, const search::Point& point) {
  const auto found = point.find(dimension.name);
  if (found == point.end()) return std::nullopt;
  if (const auto* number = std::get_if<double>(&found->second)) return *number;
  if (const auto* whole = std::get_if<int64_t>(&found->second)) return static_cast<double>(*whole);
  const auto& text = std::get<std::string>(found->second);
  const auto choice = std::find(dimension.choices.begin(), dimension.choices.end(), text);
  return static_cast<double>(choice - dimension.choices.begin());
}

double MeanOf(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double SquaresAround(const std::vector<double>& values, double mean) {
  double sum = 0;
  for (const double v : values) sum += (v - mean) * (v - mean);
  return sum;
}

/// Values of the metric by groups of a dimension: its choices, or neighbours of about equal number. Trials with one
/// value of the dimension are in one group: nothing but the metric could tell which of them to put elsewhere.
std::vector<std::vector<double>> GroupsOf(const search::Dimension& dimension,
                                          const std::vector<const PlannedTrial*>& trials) {
  std::map<double, std::vector<double>> places;  // the metric's values at each; where it is left out, the first
  for (const PlannedTrial* trial : trials) {
    places[Place(dimension, trial->suggestion.point).value_or(-INFINITY)].push_back(trial->result->value);
  }
  const bool as_they_are = places.size() <= kMostGroups || dimension.scale == search::Scale::kChoice;
  std::vector<std::vector<double>> groups;
  size_t before = 0, last = 0;
  bool after_left_out = false;
  for (const auto& [place, values] : places) {
    const size_t quantile = (2 * before + values.size()) * kMostGroups / (2 * trials.size());  // of their middle
    if (groups.empty() || as_they_are || after_left_out || quantile != last) groups.emplace_back();
    groups.back().insert(groups.back().end(), values.begin(), values.end());
    last = quantile;
    before += values.size();
    after_left_out = std::isinf(place);
  }
  return groups;
}

std::string LabelOf(const SweepConfig& config) {
  return absl::StrCat(config.metric, config.maximize ? " (more is better)" : "");
}

std::string CostLabel(const SweepConfig& config) {
  return config.cost == CostKind::kSeconds  ? "seconds of workers"
         : config.cost == CostKind::kTokens ? "tokens"
                                            : "FLOPs";
}

/// Which trials a picture has, of a strategy that trains some for less: ", rung 1 of 0 to 2 (90 steps)"; else empty.
std::string OfRung(const SweepConfig& config, const SweepPlan& plan) {
  if (config.strategy.rungs == 1 || plan.best() == nullptr) return "";
  return absl::StrCat(", rung ", HighestRung(plan), " of 0 to ", config.strategy.rungs - 1, " (",
                      Counted(plan.best()->setup->steps(), "step"), ")");
}

std::string BestOverCost(const SweepConfig& config, const SweepPlan& plan,
                         std::optional<std::pair<int, bool>> terminal) {
  Curve all{.label = "trials", .x = {}, .y = {}, .points = true, .line = false},
      best{.label = "best", .x = {}, .y = {}};
  double spent = 0;
  std::vector<const PlannedTrial*> in_turn;
  for (const PlannedTrial& trial : plan.trials()) {
    if (trial.ended) in_turn.push_back(&trial);
  }
  std::stable_sort(in_turn.begin(), in_turn.end(),
                   [](const PlannedTrial* a, const PlannedTrial* b) { return a->ends < b->ends; });
  const int64_t rung = HighestRung(plan);
  for (const PlannedTrial* trial : in_turn) {
    if (!trial->setup.has_value()) continue;
    spent += config.cost == CostKind::kSeconds
                 ? trial->result->seconds
                 : static_cast<double>(std::max<int64_t>(0, trial->result->steps - trial->first_step)) *
                       PerStep(config, *trial);
    if (!trial->result->measured || trial->suggestion.rung != rung) continue;
    const double value = trial->result->value;
    all.x.push_back(spent);
    all.y.push_back(value);
    if (!best.y.empty()) {  // it is what it was until now
      best.x.push_back(spent);
      best.y.push_back(best.y.back());
    }
    best.x.push_back(spent);
    best.y.push_back(best.y.empty() || IsBetter(config, value, best.y.back()) ? value : best.y.back());
  }
  const PlotOptions options{.title = absl::StrCat(config.name, ": best so far", OfRung(config, plan)),
                            .x_label = CostLabel(config) + " spent",
                            .y_label = LabelOf(config)};
  return terminal.has_value() ? PlotTerminal({best, all}, options, terminal->first, kPlotRows, terminal->second)
                              : PlotSvg({best, all}, options);
}

std::string FrontPlot(const SweepConfig& config, const SweepPlan& plan) {
  Curve all{.label = "trials", .x = {}, .y = {}, .points = true, .line = false},
      front{.label = "none better for less", .x = {}, .y = {}, .points = true};
  for (const PlannedTrial* trial : Comparable(plan)) {
    all.x.push_back(WholeCost(config, *trial));
    all.y.push_back(trial->result->value);
  }
  for (const PlannedTrial* trial : ParetoFront(config, plan)) {
    front.x.push_back(WholeCost(config, *trial));
    front.y.push_back(trial->result->value);
  }
  return PlotSvg({all, front}, {.title = absl::StrCat(config.metric, " against the cost of a trial"),
                                .x_label = CostLabel(config),
                                .y_label = LabelOf(config),
                                .log_x = true});
}

std::string LinesPlot(const SweepConfig& config, const SweepPlan& plan) {
  std::vector<CoordinateAxis> axes;
  for (const search::Dimension& dimension : config.space) {
    axes.push_back(
        {.label = dimension.name, .log = dimension.scale == search::Scale::kLog, .choices = dimension.choices});
  }
  axes.push_back({.label = config.metric});
  std::vector<const PlannedTrial*> trials = Comparable(plan);
  std::stable_sort(trials.begin(), trials.end(), [&](const PlannedTrial* a, const PlannedTrial* b) {
    return IsBetter(config, a->result->value, b->result->value);
  });
  std::vector<CoordinateLine> lines;
  for (size_t i = 0; i < trials.size(); ++i) {
    CoordinateLine line;
    for (const search::Dimension& dimension : config.space)
      line.values.push_back(Place(dimension, trials[i]->suggestion.point));
    line.values.emplace_back(trials[i]->result->value);
    line.rank = trials.size() < 2 ? 0 : static_cast<double>(i) / static_cast<double>(trials.size() - 1);
    lines.push_back(std::move(line));
  }
  return ParallelCoordinatesSvg("trials, the best in blue", axes, lines);
}

/// Trials with equal values of `dimensions`, as curves over `over`, in the order in which they appear.
std::vector<Curve> CurvesBy(const std::vector<std::string>& dimensions, const std::vector<const PlannedTrial*>& trials,
                            const search::Dimension& over) {
  std::vector<std::pair<std::string, std::vector<std::pair<double, double>>>> groups;
  for (const PlannedTrial* trial : trials) {
    const search::Point& point = trial->suggestion.point;
    const std::optional<double> place = Place(over, point);
    if (!place.has_value()) continue;
    const std::string label = absl::StrJoin(
        dimensions, ", ", [&point](std::string* out, const std::string& name) { out->append(ValueCell(point, name)); });
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& each) { return each.first == label; });
    if (group == groups.end()) group = groups.insert(groups.end(), {label, {}});
    group->second.emplace_back(*place, trial->result->value);
  }
  std::vector<Curve> curves;
  for (auto& [label, places] : groups) {
    std::sort(places.begin(), places.end());
    Curve curve{.label = label, .x = {}, .y = {}, .points = true, .line = false};
    for (const auto& [x, y] : places) {
      curve.x.push_back(x);
      curve.y.push_back(y);
    }
    curves.push_back(std::move(curve));
  }
  return curves;
}

/// The metric over one dimension. In a grid a curve has the trials that differ in nothing else, unless these were too
/// many to look at; otherwise a colour those with one choice of the first dimension that has choices.
std::string DimensionPlot(const SweepConfig& config, const SweepPlan& plan, const search::Dimension& over) {
  const std::vector<const PlannedTrial*> trials = Comparable(plan);
  std::vector<std::string> others, first_choice;
  for (const search::Dimension& other : config.space) {
    if (other.name == over.name) continue;
    others.push_back(other.name);
    if (other.scale == search::Scale::kChoice && first_choice.empty()) first_choice = {other.name};
  }
  std::vector<Curve> curves;
  if (config.strategy.name == "grid") curves = CurvesBy(others, trials, over);
  if (curves.empty() || curves.size() > kMostCurves) {
    curves = CurvesBy(first_choice, trials, over);
  } else {
    for (Curve& curve : curves) curve.line = true;
  }
  return PlotSvg(curves, {.title = absl::StrCat(config.metric, " over ", over.name),
                          .x_label = over.name,
                          .y_label = LabelOf(config),
                          .log_x = over.scale == search::Scale::kLog});
}

/// Of the best trial, where the strategy trains trials for longer than it was. Empty: it is one of those that ran in
/// full.
std::string ShortOfTheEnd(const SweepConfig& config, const PlannedTrial& best) {
  if (best.suggestion.rung + 1 >= config.strategy.rungs) return "";
  return absl::StrCat("; no trial has run in full: this is the best after ", Counted(best.setup->steps(), "step"),
                      ", rung ", best.suggestion.rung, " of 0 to ", config.strategy.rungs - 1);
}

/// Of the pictures, where they leave out trials that were trained for less. Empty: they have all that was measured.
std::string WhatIsDrawn(const SweepPlan& plan) {
  const std::vector<const PlannedTrial*> drawn = Comparable(plan);
  const auto left_out = std::count_if(plan.trials().begin(), plan.trials().end(), [&](const PlannedTrial& trial) {
    return trial.ended && trial.result->measured && trial.suggestion.rung < HighestRung(plan);
  });
  if (left_out == 0) return "";
  return absl::StrCat("<p>The pictures have the ", Counted(static_cast<int64_t>(drawn.size()), "trial"), " of rung ",
                      HighestRung(plan), " (", Counted(drawn.front()->setup->steps(), "step"),
                      "), not those of lower rungs, which were trained for less.</p>\n");
}

}  // namespace

double WholeCost(const SweepConfig& config, const PlannedTrial& trial) {
  if (!trial.setup.has_value()) return 0;
  if (config.cost == CostKind::kSeconds) return trial.result->seconds;
  return static_cast<double>(trial.result->steps) * PerStep(config, trial);
}

Table ResultsTable(const SweepConfig& config, const SweepPlan& plan) {
  Table table{.name = "results", .columns = {"trial"}, .rows = {}};
  for (const search::Dimension& dimension : config.space) table.columns.push_back(dimension.name);
  for (const char* column : {"rung", "steps", "tokens", "flops"}) table.columns.emplace_back(column);
  if (config.cost == CostKind::kSeconds) table.columns.emplace_back("seconds");
  table.columns.push_back(config.metric);
  for (const char* column : {"bits", "run", "outcome"}) table.columns.emplace_back(column);
  for (const PlannedTrial& trial : plan.trials()) {
    if (!trial.ended) continue;
    std::vector<Table::Cell> row{static_cast<double>(trial.number)};
    for (const search::Dimension& dimension : config.space) {
      const std::string text = ValueCell(trial.suggestion.point, dimension.name);
      double number = 0;
      if (dimension.scale != search::Scale::kChoice && absl::SimpleAtod(text, &number)) {
        row.emplace_back(number);
      } else {
        row.emplace_back(text);
      }
    }
    const auto steps = static_cast<double>(trial.result->steps);
    const bool known = trial.setup.has_value();
    row.emplace_back(static_cast<double>(trial.suggestion.rung));
    row.emplace_back(steps);
    row.emplace_back(known ? steps * trial.setup->tokens_per_step : 0);
    row.emplace_back(known ? steps * trial.setup->flops_per_step : 0);
    if (config.cost == CostKind::kSeconds) row.emplace_back(trial.result->seconds);
    row.emplace_back(trial.result->measured ? trial.result->value : NAN);
    row.emplace_back(trial.result->measured ? absl::StrFormat("%016x", std::bit_cast<uint64_t>(trial.result->value))
                                            : "");
    row.emplace_back(known ? absl::StrFormat("%016x", trial.setup->digest) : "");
    row.emplace_back(trial.result->measured ? "measured" : absl::StrCat("failed: ", trial.result->reason));
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::vector<Importance> ImportanceOf(const SweepConfig& config, const SweepPlan& plan) {
  const std::vector<const PlannedTrial*> trials = Comparable(plan);
  std::vector<double> values;
  for (const PlannedTrial* trial : trials) values.push_back(trial->result->value);
  std::vector<Importance> importance;
  if (values.empty()) return importance;
  const double mean = MeanOf(values), all = SquaresAround(values, mean);
  for (const search::Dimension& dimension : config.space) {
    const std::vector<std::vector<double>> groups = GroupsOf(dimension, trials);
    if (values.size() < groups.size() + kFewestWithin) continue;
    double within = 0;
    for (const std::vector<double>& group : groups) within += SquaresAround(group, MeanOf(group));
    // Both per degree of freedom: groups of a few trials differ by chance.
    const auto count = static_cast<double>(values.size());
    const double unexplained = within / (count - static_cast<double>(groups.size()));
    const double share = all > 0 ? 1 - unexplained / (all / (count - 1)) : 0;
    importance.push_back({dimension.name, std::max(0.0, share)});
  }
  std::stable_sort(importance.begin(), importance.end(),
                   [](const Importance& a, const Importance& b) { return a.share > b.share; });
  return importance;
}

std::vector<const PlannedTrial*> ParetoFront(const SweepConfig& config, const SweepPlan& plan) {
  std::vector<const PlannedTrial*> trials = Comparable(plan);
  std::stable_sort(trials.begin(), trials.end(), [&](const PlannedTrial* a, const PlannedTrial* b) {
    const double ca = WholeCost(config, *a), cb = WholeCost(config, *b);
    return ca != cb ? ca < cb : IsBetter(config, a->result->value, b->result->value);
  });
  std::vector<const PlannedTrial*> front;
  for (const PlannedTrial* trial : trials) {
    if (front.empty() || IsBetter(config, trial->result->value, front.back()->result->value)) front.push_back(trial);
  }
  return front;
}

std::string ReportHtml(const SweepConfig& config, const SweepPlan& plan) {
  std::string html;
  if (const PlannedTrial* best = plan.best(); best != nullptr) {
    absl::StrAppend(&html, "<p>Best: trial ", best->number, ", ", XmlText(config.metric),
                    absl::StrFormat(" %.5f, ", best->result->value), XmlText(search::PointText(best->suggestion.point)),
                    ShortOfTheEnd(config, *best), "</p>\n", WhatIsDrawn(plan), BestOverCost(config, plan, std::nullopt),
                    FrontPlot(config, plan), LinesPlot(config, plan));
    for (const search::Dimension& dimension : config.space) {
      if (dimension.scale != search::Scale::kChoice) html += DimensionPlot(config, plan, dimension);
    }
    const std::vector<Importance> importance = ImportanceOf(config, plan);
    html += "<h2>What each dimension explains by itself</h2>\n";
    if (importance.empty()) html += "<p>Too few trials to say.</p>\n";
    html += "<table>\n";
    for (const Importance& each : importance) {
      absl::StrAppend(&html, "<tr><td>", XmlText(each.dimension),
                      absl::StrFormat("</td><td>%.0f %%</td></tr>\n", 100 * each.share));
    }
    html += "</table>\n";
  }
  return HtmlPage(config.name, absl::StrCat(html, "<h2>Trials</h2>\n", ResultsTable(config, plan).ToHtml()));
}

std::string ReportText(const SweepConfig& config, const SweepPlan& plan, int columns, bool unicode) {
  const PlannedTrial* best = plan.best();
  if (best == nullptr) return "no trial has been measured yet\n";
  std::string text = BestOverCost(config, plan, std::pair(columns, unicode));
  absl::StrAppend(&text, "best: trial ", best->number, ", ", config.metric,
                  absl::StrFormat(" %.5f, ", best->result->value), search::PointText(best->suggestion.point),
                  ShortOfTheEnd(config, *best), "\n");
  for (const Importance& each : ImportanceOf(config, plan)) {
    absl::StrAppendFormat(&text, "  %-32s explains %3.0f %% of the differences by itself\n", each.dimension,
                          100 * each.share);
  }
  return text;
}

}  // namespace holdfast
