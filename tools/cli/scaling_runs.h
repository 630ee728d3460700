#pragma once
// Runs and configs as scaling laws see them.

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "framework/config/config.h"
#include "framework/scaling/observation.h"

namespace holdfast {

/// All parameters, those that a token meets, and the tokens of all steps.
RunSize RunSizeOf(const Config& config);

/// Which run a config is, wherever it is computed: framework/config/decides.h's digest, of any kernels.
uint64_t RunDigestOf(const Config& config);

struct FinishedRun {
  Observation observation;
  Config config;
  std::string loss_from;  // "validation after step 240", "mean of training steps 229 to 240"
};

/// Of a run directory: the loss of the last validation, else the mean training loss of the last twentieth of its steps,
/// at least ten. FLOPs are those that model FLOPs utilisation counts (models/plan.h). FailedPrecondition, naming it, if
/// the run has not ended, and where only a part of its model was trained; InvalidArgument if it is no run.
absl::StatusOr<FinishedRun> ReadFinishedRun(const std::string& run_dir);

}  // namespace holdfast
