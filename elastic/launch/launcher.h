#pragma once
// Starts the workers of a run, coordinates them, and returns when the run is over. Where the workers live is the
// launcher's matter:
//
//   InProcessLauncher    one worker in this process; messages travel through memory
//   LocalLauncher        processes of this machine, supervised by this one
//   MpiLauncher          the processes that mpirun started, this one included
//   ServerLauncher       none: agents on other machines start them
//
// Example:
//   ASSIGN_OR_RETURN(const auto launcher, InProcessLauncher::Open(config, directory));
//   ASSIGN_OR_RETURN(const PreparedRun run, PrepareRun(config, directory, launcher->outline().layout, options));
//   ASSIGN_OR_RETURN(const CoordinatorShell::Outcome outcome, launcher->Run(run, stop_signal));

#include <utility>

#include "absl/status/statusor.h"
#include "elastic/coordinator/coordinator_shell.h"
#include "elastic/launch/prepared_run.h"
#include "elastic/worker/stop_signal.h"
#include "framework/config/config.h"
#include "framework/metrics/run_directory.h"
#include "models/runtime/training_runtime.h"

namespace holdfast {

/// Opening a launcher checks all that can be checked before the run directory is touched: the workers' data, device,
/// model and memory; a `stop` that is requested before it is open ends what waits for a server. `config` and
/// `directory` must outlive it. Thread-safety: none.
class Launcher {
 public:
  virtual ~Launcher() = default;

  /// What the workers will train.
  const TrainingOutline& outline() const { return outline_; }

  /// Once. A stop that `stop` receives is passed on to the run, which then ends in its own way.
  virtual absl::StatusOr<CoordinatorShell::Outcome> Run(const PreparedRun& run, const StopSignal& stop) = 0;

 protected:
  Launcher(const Config& config, const RunDirectory& directory, TrainingOutline outline)
      : config_(config), directory_(directory), outline_(std::move(outline)) {}

  const Config& config_;
  const RunDirectory& directory_;

 private:
  const TrainingOutline outline_;
};

}  // namespace holdfast
