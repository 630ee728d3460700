#pragma once
// Communicators over MPI, for machines where MPI is the way to the network. The world is the one that mpirun or srun
// started: nobody joins it and nobody can be replaced. After any failure the process is to end with kExitWorldBroken,
// without MPI_Finalize; the launcher then ends the others, and a supervisor starts the job again from its last state.
//
// Example:
//   ASSIGN_OR_RETURN(auto environment, MpiEnvironment::Start());
//   ASSIGN_OR_RETURN(auto comms, environment->Connect(generation, {all, all}));
//   ...
//   comms.clear();
//   environment->Finish();

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"

namespace holdfast {

/// What a process of a broken world exits with: sysexits' EX_TEMPFAIL, "try again".
constexpr int kExitWorldBroken = 75;

/// MPI's own calls hear neither of a deadline nor of a stop. `give_up` is called, from another thread, when the
/// deadline has passed or a stop was requested `grace` ago, with the ranks that have not come, none if that is not
/// known; there is no way on from there but the end of the process.
struct ConnectPatience {
  std::stop_token stop;
  std::chrono::milliseconds grace{0};
  std::function<void(const std::vector<int>& missing)> give_up = nullptr;
};

/// MPI in this process; at most one in its life (a rule of MPI). Not thread-safe.
class MpiEnvironment {
 public:
  /// FailedPrecondition if MPI was used before or cannot serve several threads.
  static absl::StatusOr<std::unique_ptr<MpiEnvironment>> Start();

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Communicator i for the ranks of groups[i], whose own ranks are the positions in the list; null where this rank is
  /// not in it. The members of a group call together, with the same generation. The environment outlives them. Ranks
  /// are those of a world, of which rank r has rank mpi_ranks[r] in MPI; none are given: the same one.
  absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> Connect(uint64_t generation,
                                                                     const std::vector<std::vector<int>>& groups,
                                                                     Deadline deadline = Deadline::max(),
                                                                     const ConnectPatience& patience = {},
                                                                     std::vector<int> mpi_ranks = {}) const;

  /// The end of a world that is whole: waits for all ranks. Without it MPI is left as it is, since an end together with
  /// members that are gone could hang.
  void Finish();

 private:
  MpiEnvironment() = default;

  int rank_ = 0, size_ = 0;
};

}  // namespace holdfast
