#pragma once
// What a fit and what follows from it say, as tables.

#include <vector>

#include "absl/types/span.h"
#include "framework/metrics/table.h"
#include "framework/scaling/fit.h"
#include "framework/scaling/hyperparameter_law.h"
#include "framework/scaling/isoflop.h"
#include "framework/scaling/next_run.h"
#include "framework/scaling/optimum.h"

namespace holdfast {

Table ValuesTable(const Fit& fit);
Table RunsTable(const Fit& fit);
Table OptimumTable(absl::Span<const Optimum> optima);
Table IsoflopTable(const IsoflopCurves& curves);
Table HyperparameterTable(const HyperparameterLaw& law, Hyperparameter which);
Table NextRunTable(absl::Span<const NextRun> runs);

/// "learning_rate = 21.3 N^-0.25 D^0.05"
std::string PowerLawText(const std::string& what, const PowerLaw& law, const std::vector<std::string>& of);

}  // namespace holdfast
