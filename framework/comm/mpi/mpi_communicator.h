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

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"

namespace holdfast {

/// What a process of a broken world exits with: sysexits' EX_TEMPFAIL, "try again".
constexpr int kExitWorldBroken = 75;

/// MPI in this process; at most one in its life (a rule of MPI). Not thread-safe.
class MpiEnvironment {
 public:
  /// FailedPrecondition if MPI was used before or cannot serve several threads.
  static absl::StatusOr<std::unique_ptr<MpiEnvironment>> Start();

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Communicator i for the ranks of groups[i], whose own ranks are the positions in the list; null where this rank is
  /// not in it. The members of a group call together; waits for them without a deadline. The environment outlives them.
  absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> Connect(uint64_t generation,
                                                                     const std::vector<std::vector<int>>& groups) const;

  /// The end of a world that is whole: waits for all ranks. Without it MPI is left as it is, since an end together with
  /// members that are gone could hang.
  void Finish();

 private:
  MpiEnvironment() = default;

  int rank_ = 0, size_ = 0;
};

}  // namespace holdfast
