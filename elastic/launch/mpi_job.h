#pragma once
// The processes that mpirun started: one worker each, rank 0 is the coordinator as well. Such a world cannot change.
// When a member is lost or hung, every other one ends with kExitWorldBroken (75, sysexits' EX_TEMPFAIL: start the job
// again), which makes mpirun end whatever is left; the job then resumes from its newest checkpoint.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "elastic/launch/run_worker.h"
#include "framework/comm/mpi/mpi_communicator.h"
#include "framework/config/config.h"
#include "models/runtime/run_device.h"

namespace holdfast {

class MpiJob {
 public:
  /// Starts MPI: once in the life of a process. All processes of the job call it, and make the same calls from then on.
  static absl::StatusOr<std::unique_ptr<MpiJob>> Start();
  /// Rank 0 without Announce: tells the others that there will be no run.
  ~MpiJob();

  int rank() const { return environment_->rank(); }
  int size() const { return environment_->size(); }
  /// The host of this process, by name.
  const std::string& host() const { return hosts_[static_cast<size_t>(rank())]; }
  bool on_one_machine() const { return slot().workers_here == size(); }
  /// Of this process among those on its machine.
  WorkerSlot slot() const;
  /// Sets what the job decides: the number of workers and, if it is left open, that of threads.
  void Shape(Config* config) const;

  /// From rank 0 to all: where its coordinator listens; empty = nowhere.
  absl::Status Announce(std::string* address);
  WorkerIdentity identity() const;
  WorkerPeers Peers(const Config& config) const;
  /// Ends this process, and by mpirun the others: without MPI_Finalize, which would wait for those.
  [[noreturn]] static void End(int exit_code, const std::string& why);

 private:
  explicit MpiJob(std::unique_ptr<MpiEnvironment> environment) : environment_(std::move(environment)) {}

  absl::Status LearnHosts();

  std::unique_ptr<MpiEnvironment> environment_;
  std::unique_ptr<Communicator> all_;  // for what is said before the run
  std::vector<std::string> hosts_;     // by rank
  bool announced_ = false;
};

}  // namespace holdfast
