#pragma once
// The best model size and number of tokens for a budget of FLOPs.

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/scaling/fit.h"
#include "framework/scaling/interval_ends.h"

namespace holdfast {

struct Optimum {
  double flops = 0;
  RunSize size;
  double loss = 0;
  LimitedInterval active, tokens, loss_interval;
};

/// InvalidArgument unless 0 < `flops` < 1e60 and 1 <= `ratio` < 1e6, as OptimumFor takes them.
absl::Status CheckBudget(double flops, double ratio = 1);

/// With C = 6 N D, N the active parameters, of which a model has `ratio` >= 1 times as many in all: where the law's
/// term in N falls as fast as its term in D, in closed form for every form here (Hoffmann et al. 2022, equation 4).
/// InvalidArgument as of CheckBudget, or if a term is as good as 0, so that there is no optimum.
absl::StatusOr<Optimum> OptimumFor(const Fit& fit, double flops, double ratio = 1);

/// The exponent p of N ~ C^p along the optima; D ~ C^(1 - p).
double AllocationExponent(const Law& law);

}  // namespace holdfast
