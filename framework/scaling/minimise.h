#pragma once
// The two steps of a fit (fit.h): where to begin, and the minimum from there.

#include <vector>

#include "absl/types/span.h"
#include "framework/scaling/law.h"

namespace holdfast {

/// The ends of what is searched.
inline constexpr double kExponentMin = 0.005, kExponentMax = 4;
inline constexpr double kLogCoefficientMin = -30;  // about sizes and losses in the middle of the runs: none

/// Whether the runs do not determine an exponent.
inline bool IsAtLimit(double exponent) { return exponent <= kExponentMin * 1.01 || exponent >= kExponentMax * 0.99; }
/// Whether a term of centred runs is not there: at most e^-12 of the loss.
inline bool IsNothing(double log_coefficient) { return log_coefficient < -12; }

/// Runs as a fit sees them: sizes about their mean logarithms, losses about theirs, so that the values of a law are
/// about 1 and do not go up and down together.
class CentredRuns {
 public:
  explicit CentredRuns(absl::Span<const Observation> runs);

  size_t size() const { return sizes_.size(); }
  const LogSize& log_size(size_t i) const { return sizes_[i]; }
  double log_loss(size_t i) const { return log_losses_[i]; }

  /// A law of such sizes and losses as one of those that runs have, and back.
  Law Uncentred(Law law) const { return Moved(std::move(law), 1); }
  Law Centred(Law law) const { return Moved(std::move(law), -1); }

 private:
  Law Moved(Law law, double sign) const;
  std::vector<LogSize> sizes_;
  std::vector<double> log_losses_;
  LogSize mean_;
  double mean_log_loss_ = 0;
};

/// Laws to begin from, the best first: local minima over a grid of exponents, each with its best coefficients.
std::vector<Law> StartingLaws(LawForm form, const CentredRuns& runs);

struct Minimum {
  Law law;
  double objective = 0;
};

/// From `law`, with a weight for each run, until a step gains less than `enough` of the objective.
Minimum Minimise(Law law, const CentredRuns& runs, absl::Span<const double> weights, double huber_delta, double enough);

}  // namespace holdfast
