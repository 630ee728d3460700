#include "framework/comm/mpi/mpi_communicator.h"

#include <mpi.h>

#include <algorithm>
#include <utility>

#include "framework/base/status.h"
#include "framework/comm/mpi/mpi_member.h"
#include "framework/comm/mpi/mpi_status.h"

namespace holdfast {
namespace {

constexpr int kConnectTag = 1;

// Not freed before the end of MPI: a message that nobody received would be received by the next communicator that gets
// the same number.
absl::StatusOr<MPI_Comm> NewComm(const std::vector<int>& members) {
  MPI_Group world = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  RETURN_IF_ERROR(MpiStatus(MPI_Comm_group(MPI_COMM_WORLD, &world)));
  RETURN_IF_ERROR(MpiStatus(MPI_Group_incl(world, static_cast<int>(members.size()), members.data(), &group)));
  RETURN_IF_ERROR(MpiStatus(MPI_Comm_create_group(MPI_COMM_WORLD, group, kConnectTag, &comm)));
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
    uint64_t generation, const std::vector<std::vector<int>>& groups) const {
  RETURN_IF_ERROR(CheckGroups(rank_, size_, groups));
  std::vector<std::unique_ptr<Communicator>> communicators(groups.size());
  for (size_t i = 0; i < groups.size(); ++i) {
    if (std::find(groups[i].begin(), groups[i].end(), rank_) == groups[i].end()) continue;
    MpiComms comms;
    for (MPI_Comm* comm : {&comms.collectives, &comms.low_tags, &comms.high_tags, &comms.farewells}) {
      ASSIGN_OR_RETURN(*comm, NewComm(groups[i]));
    }
    ASSIGN_OR_RETURN(communicators[i], MpiMember::Make(comms, generation));
  }
  return communicators;
}

void MpiEnvironment::Finish() { MPI_Finalize(); }

}  // namespace holdfast
