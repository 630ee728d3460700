#pragma once
// What a sweep has found, as a table and as pictures. Pure. Nothing in them depends on clocks, workers or what was done
// twice, but for seconds of workers where these are the cost.

#include <string>
#include <vector>

#include "elastic/sweep/sweep_plan.h"
#include "framework/metrics/table.h"

namespace holdfast {

/// A row for each trial that has ended, by number: point, rung, steps, metric (and its bits), cost, outcome.
Table ResultsTable(const SweepConfig& config, const SweepPlan& plan);

/// How much of the variance of the metric each dimension explains by itself, of measured trials at the highest rung;
/// the largest first. It is epsilon squared (Kelley 1935) over its choices or at most five groups of equal size: the
/// correlation ratio less what as many groups explain by chance. Of a dimension with fewer than two trials more than
/// groups nothing is said.
struct Importance {
  std::string dimension;
  double share = 0;  // in [0, 1]
};
std::vector<Importance> ImportanceOf(const SweepConfig& config, const SweepPlan& plan);

/// Measured trials at the highest rung that none with at most their cost is better than, by cost.
std::vector<const PlannedTrial*> ParetoFront(const SweepConfig& config, const SweepPlan& plan);

/// The cost of a trial in the unit that the sweep counts, with the steps that it shares with earlier ones.
double WholeCost(const SweepConfig& config, const PlannedTrial& trial);

/// One self-contained page with the table and all pictures.
std::string ReportHtml(const SweepConfig& config, const SweepPlan& plan);

/// The best trial, the importance of dimensions and a plot of the best value over cost, for a terminal.
std::string ReportText(const SweepConfig& config, const SweepPlan& plan, int columns, bool unicode);

}  // namespace holdfast
