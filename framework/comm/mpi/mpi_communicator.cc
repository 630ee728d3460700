#include "framework/comm/mpi/mpi_communicator.h"

#include <mpi.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "framework/base/status.h"
#include "framework/comm/mpi/mpi_member.h"
#include "framework/comm/mpi/mpi_status.h"

namespace holdfast {
namespace {

using Clock = std::chrono::steady_clock;

/// Of the calls that connect a world: who is late with one must not meet the others at the next.
int TagOf(uint64_t generation) {
  constexpr uint64_t kTags = 32767;  // what every MPI has (MPI 4.0, section 9.1.2)
  return static_cast<int>(generation % kTags);
}

/// Calls patience.give_up in its time, unless it is destroyed before.
std::jthread Watch(Deadline deadline, const ConnectPatience& patience) {
  return std::jthread([deadline, &patience](const std::stop_token& connected) {
    constexpr std::chrono::milliseconds kLook{10};
    Deadline until = deadline;
    bool is_stopped = false;
    while (!connected.stop_requested() && Clock::now() < until) {
      std::this_thread::sleep_for(kLook);
      if (patience.stop.stop_requested() && !std::exchange(is_stopped, true)) {
        until = std::min(until, Clock::now() + patience.grace);
      }
    }
    if (!connected.stop_requested()) patience.give_up();
  });
}

// Not freed before the end of MPI: a message that nobody received would be received by the next communicator that gets
// the same number.
absl::StatusOr<MPI_Comm> NewComm(const std::vector<int>& members, int tag) {
  MPI_Group world = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  RETURN_IF_ERROR(MpiStatus(MPI_Comm_group(MPI_COMM_WORLD, &world)));
  RETURN_IF_ERROR(MpiStatus(MPI_Group_incl(world, static_cast<int>(members.size()), members.data(), &group)));
  RETURN_IF_ERROR(MpiStatus(MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, &comm)));
  RETURN_IF_ERROR(MpiStatus(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN)));
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  return comm;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MpiEnvironment>> MpiEnvironment::Start() {
  int initialized = 0, provided = 0;
  MPI_Initialized(&initialized);
  if (initialized != 0) return absl::FailedPreconditionError("MPI was started before");
  RETURN_IF_ERROR(MpiStatus(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided)));
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (provided < MPI_THREAD_MULTIPLE) return absl::FailedPreconditionError("this MPI serves one thread only");
  auto environment = std::unique_ptr<MpiEnvironment>(new MpiEnvironment());
  RETURN_IF_ERROR(MpiStatus(MPI_Comm_rank(MPI_COMM_WORLD, &environment->rank_)));
  RETURN_IF_ERROR(MpiStatus(MPI_Comm_size(MPI_COMM_WORLD, &environment->size_)));
  return environment;
}

absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> MpiEnvironment::Connect(
    uint64_t generation, const std::vector<std::vector<int>>& groups, Deadline deadline,
    const ConnectPatience& patience) const {
  RETURN_IF_ERROR(CheckGroups(rank_, size_, groups));
  std::jthread watch;
  if (patience.give_up != nullptr) watch = Watch(deadline, patience);
  std::vector<std::unique_ptr<Communicator>> communicators(groups.size());
  for (size_t i = 0; i < groups.size(); ++i) {
    if (std::find(groups[i].begin(), groups[i].end(), rank_) == groups[i].end()) continue;
    MpiComms comms;
    for (MPI_Comm* comm : {&comms.collectives, &comms.low_tags, &comms.high_tags, &comms.farewells}) {
      ASSIGN_OR_RETURN(*comm, NewComm(groups[i], TagOf(generation)));
    }
    ASSIGN_OR_RETURN(communicators[i], MpiMember::Make(comms, generation));
  }
  return communicators;
}

void MpiEnvironment::Finish() { MPI_Finalize(); }

}  // namespace holdfast
