#include "framework/comm/mpi/mpi_communicator.h"

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>
#include <utility>

#include "framework/base/status.h"
#include "framework/comm/mpi/mpi_member.h"
#include "framework/comm/mpi/mpi_requests.h"
#include "framework/comm/mpi/mpi_status.h"

namespace holdfast {
namespace {

using Clock = std::chrono::steady_clock;

/// Of the calls that connect a world: who is late with one must not meet the others at the next.
int TagOf(uint64_t generation) {
  constexpr uint64_t kTags = 32767;  // what every MPI has (MPI 4.0, section 9.1.2)
  return static_cast<int>(generation % kTags);
}

/// Who has not come yet. Thread-safe.
class Missing {
 public:
  explicit Missing(std::vector<int> ranks) : ranks_(std::move(ranks)) {}
  void Set(std::vector<int> ranks) {
    const std::lock_guard lock(mutex_);
    ranks_ = std::move(ranks);
  }
  std::vector<int> ranks() const {
    const std::lock_guard lock(mutex_);
    return ranks_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<int> ranks_;
};

/// Calls patience.give_up in its time, unless it is destroyed before.
std::jthread Watch(Deadline deadline, const ConnectPatience& patience, const Missing& missing) {
  return std::jthread([deadline, &patience, &missing](const std::stop_token& connected) {
    constexpr std::chrono::milliseconds kLook{10};
    Deadline until = deadline;
    bool is_stopped = false;
    while (!connected.stop_requested() && Clock::now() < until) {
      std::this_thread::sleep_for(kLook);
      if (patience.stop.stop_requested() && !std::exchange(is_stopped, true)) {
        until = std::min(until, Clock::now() + patience.grace);
      }
    }
    if (!connected.stop_requested()) patience.give_up(missing.ranks());
  });
}

/// A word to and from each of `others`, world ranks. MPI's calls that connect do not say for whom they wait; this does.
absl::Status Meet(uint64_t generation, const std::vector<int>& others, const std::vector<int>& mpi_ranks,
                  Missing& missing) {
  std::map<int, int> world_ranks;  // by rank in MPI
  std::vector<std::byte> theirs(others.size());
  const std::byte mine{};
  MpiRequests requests;
  const auto post = [&]() -> absl::Status {
    for (size_t i = 0; i < others.size(); ++i) {
      const int peer = mpi_ranks[static_cast<size_t>(others[i])];
      world_ranks[peer] = others[i];
      RETURN_IF_ERROR(requests.Receive(MPI_COMM_WORLD, peer, TagOf(generation), {&theirs[i], 1}));
      RETURN_IF_ERROR(requests.Send(MPI_COMM_WORLD, peer, TagOf(generation), {&mine, 1}));
    }
    return absl::OkStatus();
  };
  const auto look = [&] {
    std::vector<int> ranks = requests.Missing();
    for (int& rank : ranks) rank = world_ranks[rank];
    missing.Set(std::move(ranks));
    return absl::OkStatus();
  };
  absl::Status met = post();
  if (met.ok()) met = requests.Wait(look);
  if (!met.ok()) requests.Cancel();
  missing.Set({});
  return met;
}

/// Members of the groups that `rank` is in, but for itself.
std::vector<int> OthersIn(const std::vector<std::vector<int>>& groups, int rank) {
  std::set<int> others;
  for (const std::vector<int>& group : groups) {
    if (std::find(group.begin(), group.end(), rank) != group.end()) others.insert(group.begin(), group.end());
  }
  others.erase(rank);
  return {others.begin(), others.end()};
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
    const ConnectPatience& patience, std::vector<int> mpi_ranks) const {
  if (mpi_ranks.empty()) {
    mpi_ranks.resize(static_cast<size_t>(size_));
    std::iota(mpi_ranks.begin(), mpi_ranks.end(), 0);
  }
  const auto rank = static_cast<int>(std::find(mpi_ranks.begin(), mpi_ranks.end(), rank_) - mpi_ranks.begin());
  RETURN_IF_ERROR(CheckGroups(rank, static_cast<int>(mpi_ranks.size()), groups));
  const std::vector<int> others = OthersIn(groups, rank);
  Missing missing(others);
  std::jthread watch;
  if (patience.give_up != nullptr) watch = Watch(deadline, patience, missing);
  RETURN_IF_ERROR(Meet(generation, others, mpi_ranks, missing));
  std::vector<std::unique_ptr<Communicator>> communicators(groups.size());
  for (size_t i = 0; i < groups.size(); ++i) {
    if (std::find(groups[i].begin(), groups[i].end(), rank) == groups[i].end()) continue;
    std::vector<int> of_mpi;
    for (const int member : groups[i]) of_mpi.push_back(mpi_ranks[static_cast<size_t>(member)]);
    MpiComms comms;
    for (MPI_Comm* comm : {&comms.collectives, &comms.low_tags, &comms.high_tags, &comms.farewells}) {
      ASSIGN_OR_RETURN(*comm, NewComm(of_mpi, TagOf(generation)));
    }
    ASSIGN_OR_RETURN(communicators[i], MpiMember::Make(comms, generation, groups[i]));
  }
  return communicators;
}

void MpiEnvironment::Finish() { MPI_Finalize(); }

}  // namespace holdfast
