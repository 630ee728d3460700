#pragma once
// Several workers on one machine, started and watched by this process, which is their coordinator and agent.

#include "absl/status/statusor.h"
#include "elastic/coordinator/coordinator_shell.h"
#include "elastic/worker/stop_signal.h"
#include "tools/prepared_run.h"

namespace holdfast {

/// Runs config.elastic.workers worker processes to the end of the run.
absl::StatusOr<CoordinatorShell::Outcome> TrainWithWorkers(const Config& config, const RunDirectory& directory,
                                                           const PreparedRun& run, const StopSignal& stop_signal);

}  // namespace holdfast
