#pragma once
// A point of the space as something that can be trained: which run it is a part of, and up to which step.
//
// Trials whose runs begin alike share a run: one trained up to step 100 and one up to step 200 of the same curve are
// one run directory, and the second costs the steps from 101 on. That is so for the rungs of a search by halving, and
// for any two lengths with a constant learning rate. With `wsd` a trial leaves the curve of the constant rate where its
// decay begins, so a longer one costs the steps by which its constant part is longer, and its decay.

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "elastic/sweep/sweep_config.h"
#include "framework/config/config.h"
#include "framework/search/space.h"

namespace holdfast {

/// Curves that leave another one: with `wsd` all lengths begin with the same constant rate, as a run that has nothing
/// but it, and each ends with a decay of its own.
struct TrialSetup {
  Config config;        // train.steps is where the trial ends, schedule.total_steps says what the schedule is made for
  uint64_t digest = 0;  // of the curve that it is the beginning of: config, data, build and arithmetic
  double flops_per_step = 0, tokens_per_step = 0;
  std::shared_ptr<const TrialSetup> trunk;  // that it leaves where that one ends; null: none

  int64_t steps() const { return config.train.steps; }
  int64_t most_workers() const { return config.batch.microbatches; }
};

/// The base config with these overrides ("section.key=value"), resolved as `holdfast train` would.
using LoadTrialFn = std::function<absl::StatusOr<Config>(const std::vector<std::string>& overrides)>;

/// The shortest text that reads back as the same number.
std::string NumberText(double value);

/// As a config has it.
std::string ValueText(const search::PointValue& value);

/// "section.key=value" for each value of a point.
std::vector<std::string> OverridesOf(const search::Point& point);

/// Rungs of a search by halving: all but the last end after a `1 / reduction` of the next one's steps.
int64_t StepsOfRung(int64_t steps, int64_t rung, int64_t rungs, double reduction);

/// Everything is checked that can be without training: config, data, model, metric. `rung`: from 0. `stop`, here and
/// below: as of OpenTrainingData.
absl::StatusOr<TrialSetup> SetUpTrial(const SweepConfig& sweep, const LoadTrialFn& load, const search::Point& point,
                                      int64_t rung, const std::stop_token& stop = {});

/// InvalidArgument with what is wrong whatever the point is, a line each: with the base config, with its overrides,
/// with the metric, for which the headers of token files may be read. Of a base config that only a point completes
/// nothing is wrong. `load` may leave out what takes long.
absl::Status CheckEveryTrial(const SweepConfig& sweep, const LoadTrialFn& load, const search::SearchSpace& space,
                             const std::stop_token& stop = {});

/// Where trials are compared by their validation loss: what differs in what some of them are validated on, as their
/// batches differ, and what to do; empty if nothing does.
std::string ValidationDifference(const SweepConfig& sweep, const LoadTrialFn& load, const search::SearchSpace& space,
                                 const std::stop_token& stop = {});

}  // namespace holdfast
