#pragma once
// IsoFLOP curves (Hoffmann et al. 2022, approach 2): runs of about one budget each, the parabola of their losses over
// the logarithm of the model size, and the power law through the lowest points.
//
// To look at, and to compare with what others publish. The optimum that counts is that of the fitted law (optimum.h):
// a parabola is biased where runs are not centred on the optimum or the two exponents differ (arXiv 2603.22339).

#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "framework/scaling/observation.h"
#include "framework/scaling/parabola.h"

namespace holdfast {

struct IsoflopCurve {
  double flops = 0;               // the runs' geometric mean
  std::vector<size_t> runs;       // indices, by active parameters
  Parabola loss;                  // over log N
  double product = 0;             // N D, the runs' geometric mean: their FLOPs need not be 6 N D
  bool lowest_is_inside = false;  // between the smallest and the largest model

  double best_active() const;
  double TokensAt(double active) const { return product / active; }
};

struct IsoflopCurves {
  std::vector<IsoflopCurve> curves;  // by FLOPs
  std::optional<PowerLaw> optimum;   // N over C, of those whose lowest point is inside; of at least two
};

/// Runs whose FLOPs are within `tolerance` of the smallest of them are of one budget; budgets with fewer than three
/// model sizes, or whose losses have no lowest point, are left out.
IsoflopCurves FindIsoflopCurves(absl::Span<const Observation> runs, double tolerance = 0.2);

}  // namespace holdfast
