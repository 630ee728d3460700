#pragma once
// A run whose workers are the processes that mpirun started: one worker each, rank 0 is the coordinator as well. Such a
// world cannot change. When a member is lost or hung, every other one ends with kExitWorldBroken (75, sysexits'
// EX_TEMPFAIL: start the job again), which makes mpirun end whatever is left; the job then goes on from its newest
// checkpoint.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "elastic/coordinator/coordinator_shell.h"
#include "elastic/worker/stop_signal.h"
#include "framework/comm/mpi/mpi_communicator.h"
#include "framework/config/config.h"
#include "framework/metrics/run_directory.h"
#include "tools/prepared_run.h"
#include "tools/training_session.h"

namespace holdfast {

class MpiJob {
 public:
  /// Starts MPI: once in the life of a process. All processes of the job call it, and make the same calls from then on.
  static absl::StatusOr<std::unique_ptr<MpiJob>> Start();
  /// Rank 0 without Lead: tells the others that there will be no run.
  ~MpiJob();

  int rank() const { return session_->rank(); }
  /// How many processes of the job share this machine.
  int64_t processes_here() const;
  int64_t local_index() const;
  /// Sets what the job decides: the number of workers and, if it is left open, that of threads.
  void Shape(Config* config) const;

  /// On rank 0: runs the coordinator and a worker.
  absl::StatusOr<CoordinatorShell::Outcome> Lead(const Config& config, const RunDirectory& directory,
                                                 const PreparedRun& run, TrainingSession& session,
                                                 const StopSignal& stop_signal);
  /// On every other rank: runs a worker. Returns the exit code.
  absl::StatusOr<int> Follow(const Config& config, const RunDirectory& directory, const StopSignal& stop_signal);

 private:
  explicit MpiJob(std::unique_ptr<MpiSession> session) : session_(std::move(session)) {}

  absl::Status LearnHosts();
  /// From rank 0 to all: where its coordinator listens; empty = nowhere.
  absl::Status Announce(std::string* address);
  absl::StatusOr<Worker::Exit> Work(const Config& config, const RunDirectory& directory, const std::string& address,
                                    TrainingSession& session, const StopSignal* stop_signal);
  WorkerPeers Peers(const Config& config) const;

  std::unique_ptr<MpiSession> session_;
  std::unique_ptr<Communicator> all_;  // for what is said before the run
  std::vector<std::string> hosts_;     // by rank
  bool announced_ = false;
};

}  // namespace holdfast
