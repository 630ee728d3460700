#pragma once
// A scaling law fitted to runs, with what resampling says of its accuracy.
//
// What is minimised is the sum of Huber's function of log L(fitted) - log L(run), as Hoffmann et al. 2022 (section 3.3)
// do: a run that went wrong pulls by no more than its sign. It is found in two steps. Variable projection (Golub &
// Pereyra 1973; for scaling laws arXiv 2603.22339, which shows what parabolas through IsoFLOP curves get wrong
// instead): over a grid of exponents the best coefficients are a linear problem with no negative ones, of relative
// errors. From each local minimum of the grid all values are then refined together by Levenberg-Marquardt with weights
// of Huber's function; the lowest counts. No start is drawn, so the result is a function of the runs.
//
// Accuracy: the fit is repeated with random weights of the runs that are exponentially distributed (Rubin 1981, "The
// Bayesian bootstrap"). Drawing runs with replacement does the same where there are many; of few it often leaves sizes
// out that the law cannot be fitted without.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/scaling/law.h"
#include "framework/scaling/observation.h"
#include "framework/scaling/quantiles.h"

namespace holdfast {

inline constexpr int kMaxResamples = 10'000;

struct FitOptions {
  LawForm form = LawForm::kChinchilla;
  double huber_delta = 1e-3;  // of log L: where Huber's function becomes linear; Hoffmann et al.'s
  int resamples = 1000;
  uint64_t seed = 0;  // of their weights
  double level = 0.9;
};

struct Fit {
  FitOptions options;
  std::vector<Observation> runs;
  Law law;
  std::vector<Law> resampled;

  /// log L(run) - log L(fitted), by run.
  std::vector<double> Residuals() const;
  /// Of something that follows from a law.
  Interval IntervalOf(const std::function<double(const Law&)>& value) const;
};

/// How many of the fits for the intervals are done; called by any thread. May be empty.
using FitProgress = std::function<void(uint64_t done, uint64_t total)>;

/// The result does not depend on the number of threads. InvalidArgument if the runs are too few, or too alike, for the
/// form's values, with what is missing.
absl::StatusOr<Fit> FitLaw(absl::Span<const Observation> runs, const FitOptions& options, int threads,
                           const FitProgress& progress = {});

/// What a fit says that should not be relied on: values, and ends of intervals, at the ends of what is searched, and
/// runs whose tokens were not all new; as sentences.
std::vector<std::string> Warnings(const Fit& fit);

struct LossPrediction {
  double loss = 0;
  Interval law;  // where the law lies
  Interval run;  // where a run ends: law, and what runs differ from it
};
LossPrediction Predict(const Fit& fit, const RunSize& size);

}  // namespace holdfast
