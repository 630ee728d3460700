#pragma once
// Pictures of a fit: curves for PlotSvg (framework/metrics/plot.h), with bands where the law lies.

#include <vector>

#include "framework/metrics/plot.h"
#include "framework/scaling/fit.h"
#include "framework/scaling/hyperparameter_law.h"
#include "framework/scaling/isoflop.h"

namespace holdfast {

/// A picture's curves and axes.
struct Plot {
  std::vector<Curve> curves;
  PlotOptions options;
};

/// Losses over tokens: runs as points and the law as a line, for up to five model sizes from the smallest to the
/// largest.
Plot LossPlot(const Fit& fit);

/// The least loss over FLOPs, up to a hundred times the largest run, and all runs.
Plot FrontierPlot(const Fit& fit);

/// Losses over what was tried, for up to six sizes, and where the lowest of each is.
Plot HyperparameterPlot(const HyperparameterLaw& law, Hyperparameter which);

/// Losses over model size by budget, for up to six: runs as points, the law as a line.
Plot IsoflopPlot(const Fit& fit, const IsoflopCurves& isoflop);

}  // namespace holdfast
