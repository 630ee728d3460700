#pragma once
// Which run to make next so that a prediction becomes more certain.

#include <vector>

#include "absl/status/statusor.h"
#include "framework/scaling/fit.h"

namespace holdfast {

struct NextRun {
  RunSize size;
  double flops = 0;
  double narrowing = 0;  // of the prediction's standard error, in [0, 1)
};

struct NextRunOptions {
  RunSize target;              // whose prediction is to be narrowed
  double flops_max = 0;        // of the run
  double narrowing_min = 0.1;  // less is not worth a run
};

/// Runs of sizes in steps of 2 within and a little beyond those there are, dense or with the target's ratio of all to
/// active parameters, that narrow enough: those that narrow most per FLOP first. Linearised: the variance of log L at
/// the target is g' M^-1 g with M the sum of g g' over the runs, and one more run is one more summand. It needs no
/// losses, so it holds before the run is made, as far as the fit is right. Empty if none narrows enough for flops_max.
/// InvalidArgument if the runs do not determine the law, or a size is none.
absl::StatusOr<std::vector<NextRun>> NextRuns(const Fit& fit, const NextRunOptions& options);

}  // namespace holdfast
