#pragma once
// Laws of the best learning rate and batch size: the best of each size by a parabola in the logarithm, through the
// values within a factor of 4 of the lowest loss's, then a power law through them.

#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "framework/scaling/observation.h"
#include "framework/scaling/parabola.h"

namespace holdfast {

enum class Hyperparameter { kLearningRate, kBatchTokens };

const char* NameOf(Hyperparameter which);  // as the column of CSV is called

struct BestOfSize {
  RunSize size;
  double best = 0, loss = 0;  // there
  bool inside = false;        // between the values that the parabola goes through; else it is not used
  std::vector<double> tried,
      losses;  // by value: the mean of runs alike; the best of those that differ in the other one
};

struct HyperparameterLaw {
  std::vector<BestOfSize> sizes;  // with at least three values tried whose losses have a lowest point
  bool over_tokens = false;       // x is {N, D}; else {N}, as N and D go together or too few sizes are there
  std::optional<PowerLaw> law;    // of at least two sizes
};

/// Runs are of one size if parameters, active ones and tokens are within a thousandth.
HyperparameterLaw FindHyperparameterLaw(absl::Span<const Observation> runs, Hyperparameter which);

/// Of the runs of each size those with the learning rate and the tokens of a step whose mean loss is lowest, in their
/// order: what a law of the least loss is fitted to.
std::vector<Observation> WithBestHyperparameters(absl::Span<const Observation> runs);

}  // namespace holdfast
