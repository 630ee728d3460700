#pragma once
// A run whose workers are the processes of an MPI job.

#include <memory>
#include <stop_token>

#include "elastic/launch/launcher.h"
#include "elastic/launch/mpi_job.h"

namespace holdfast {

/// On rank 0: the coordinator and a worker. `job` must outlive it.
class MpiLauncher final : public Launcher {
 public:
  static absl::StatusOr<std::unique_ptr<MpiLauncher>> Open(const Config& config, const RunDirectory& directory,
                                                           MpiJob& job, const std::stop_token& stop = {});

  absl::StatusOr<CoordinatorShell::Outcome> Run(const PreparedRun& run, const StopSignal& stop) override;

 private:
  MpiLauncher(const Config& config, const RunDirectory& directory, std::unique_ptr<TrainingRuntime> runtime,
              MpiJob& job)
      : Launcher(config, directory, OutlineOf(*runtime)), runtime_(std::move(runtime)), job_(job) {}

  std::unique_ptr<TrainingRuntime> runtime_;
  MpiJob& job_;
};

/// On every other rank: a worker, to the end of the run. `start` is made of `stop`, and is told when the run begins.
absl::StatusOr<Worker::Exit> FollowMpiJob(const Config& config, const RunDirectory& directory, MpiJob& job,
                                          const StopSignal& stop, StopOfStart& start);

}  // namespace holdfast
