#pragma once
// What a run directory says of a trial.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "elastic/sweep/sweep_plan.h"
#include "elastic/sweep/trial_setup.h"
#include "framework/metrics/run_directory.h"

namespace holdfast {

/// How far a run is.
struct RunReading {
  int64_t steps = 0;                  // that are recorded
  double seconds = 0;                 // of workers, for the trial's own steps among them
  std::optional<TrialResult> result;  // of the trial that was asked for, if its run has come to it
};

/// `first_step`: the trial's own steps come after it. NotFound if the run has done the steps but writes no such metric:
/// the message says which there are. A directory without a run has done no steps.
absl::StatusOr<RunReading> ReadTrial(const RunDirectory& directory, const TrialSetup& trial, int64_t first_step,
                                     const std::string& metric);

/// The last step that is recorded, from the end of the file alone; 0 if none can be read.
int64_t LastStep(const RunDirectory& directory);

/// The mean loss of the last twentieth of the steps, at least ten, or of all; of one at least.
struct LastLoss {
  double mean = 0;
  int64_t first_step = 0;  // of those that it is the mean of
};
LastLoss LastTrainingLoss(const std::vector<StepMetrics>& steps);

/// Whether an error is one of the training itself, that comes again however often the trial is tried.
bool IsOfTraining(const std::string& reason);

}  // namespace holdfast
