#include "framework/scaling/report.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "framework/scaling/interval_ends.h"

namespace holdfast {
namespace {

using Count = Table::Count;

/// By the names of columns.
std::string LimitsNote(const Optimum& optimum) {
  std::vector<std::string> limits;
  const auto add = [&](const LimitedInterval& interval, const char* low, const char* high) {
    if (interval.low_is_limit) limits.emplace_back(low);
    if (interval.high_is_limit) limits.emplace_back(high);
  };
  add(optimum.active, "low", "high");
  add(optimum.tokens, "tokens_low", "tokens_high");
  add(optimum.loss_interval, "loss_low", "loss_high");
  return limits.empty() ? "" : absl::StrCat("limit of the search: ", absl::StrJoin(limits, ", "));
}

}  // namespace

Table ValuesTable(const Fit& fit) {
  Table table{.name = "values", .columns = {"value", "fitted", "low", "high", "note"}, .rows = {}};
  for (const ValueInterval& value : ValueIntervals(fit)) {
    table.rows.push_back({value.name == "p" ? "N ~ C^p: p" : value.name, value.fitted, value.interval.low,
                          value.interval.high, value.Note()});
  }
  return table;
}

Table RunsTable(const Fit& fit) {
  Table table{
      .name = "runs",
      .columns = {"name", "parameters", "active_parameters", "tokens", "flops", "loss", "fitted", "log_residual"},
      .rows = {}};
  const std::vector<double> residuals = fit.Residuals();
  for (size_t i = 0; i < fit.runs.size(); ++i) {
    const Observation& run = fit.runs[i];
    table.rows.push_back({run.name, Count{run.size.parameters}, Count{run.size.active}, Count{run.size.tokens},
                          run.flops, run.loss, fit.law.Loss(run.size), residuals[i]});
  }
  return table;
}

Table OptimumTable(absl::Span<const Optimum> optima) {
  Table table{.name = "optimum",
              .columns = {"flops", "active_parameters", "low", "high", "tokens", "tokens_low", "tokens_high", "loss",
                          "loss_low", "loss_high", "note"},
              .rows = {}};
  for (const Optimum& o : optima) {
    const Interval &active = o.active.interval, &tokens = o.tokens.interval, &loss = o.loss_interval.interval;
    table.rows.push_back({o.flops, Count{o.size.active}, Count{active.low}, Count{active.high}, Count{o.size.tokens},
                          Count{tokens.low}, Count{tokens.high}, o.loss, loss.low, loss.high, LimitsNote(o)});
  }
  return table;
}

Table IsoflopTable(const IsoflopCurves& curves) {
  Table table{.name = "isoflop",
              .columns = {"flops", "runs", "best_active_parameters", "best_tokens", "loss", "note"},
              .rows = {}};
  for (const IsoflopCurve& curve : curves.curves) {
    table.rows.push_back({curve.flops, static_cast<double>(curve.runs.size()), Count{curve.best_active()},
                          Count{curve.TokensAt(curve.best_active())}, curve.loss.y_min,
                          curve.lowest_is_inside ? "" : "not between the models that were trained: not used"});
  }
  return table;
}

Table HyperparameterTable(const HyperparameterLaw& law, Hyperparameter which) {
  Table table{.name = NameOf(which),
              .columns = {"active_parameters", "tokens", absl::StrCat("best_", NameOf(which)), "loss", "tried", "note"},
              .rows = {}};
  for (const BestOfSize& size : law.sizes) {
    table.rows.push_back({Count{size.size.active}, Count{size.size.tokens}, size.best, size.loss,
                          static_cast<double>(size.tried.size()),
                          size.inside ? "" : "not between the values that were tried: not used"});
    if (which == Hyperparameter::kBatchTokens) table.rows.back()[2] = Count{size.best};
  }
  return table;
}

Table NextRunTable(absl::Span<const NextRun> runs) {
  Table table{.name = "next",
              .columns = {"parameters", "active_parameters", "tokens", "flops", "narrows_by_percent"},
              .rows = {}};
  for (const NextRun& run : runs) {
    table.rows.push_back(
        {Count{run.size.parameters}, Count{run.size.active}, Count{run.size.tokens}, run.flops, 100 * run.narrowing});
  }
  return table;
}

std::string PowerLawText(const std::string& what, const PowerLaw& law, const std::vector<std::string>& of) {
  std::string text = absl::StrFormat("%s = %.4g", what, std::exp(law.log_constant));
  for (size_t k = 0; k < of.size(); ++k) absl::StrAppendFormat(&text, " %s^%.4g", of[k], law.exponents[k]);
  return text;
}

}  // namespace holdfast
