#include "framework/comm/mpi/mpi_member.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "absl/strings/str_join.h"
#include "framework/base/status.h"
#include "framework/comm/mpi/mpi_status.h"

namespace holdfast {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kNoTag = 0;  // messages between two ranks keep their order
constexpr std::chrono::milliseconds kLeavingLimit{200};

void CopyBytes(Bytes to, ConstBytes from) {
  if (!from.empty() && to.data() != from.data()) std::memcpy(to.data(), from.data(), from.size());
}

std::string Name(const std::vector<int>& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", "));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> MpiMember::Make(MpiComms comms, uint64_t generation,
                                                              std::vector<int> members) {
  auto member = std::unique_ptr<MpiMember>(new MpiMember(comms, generation, std::move(members)));
  RETURN_IF_ERROR(MpiStatus(MPI_Comm_rank(comms.collectives, &member->rank_)));
  RETURN_IF_ERROR(MpiStatus(MPI_Comm_size(comms.collectives, &member->size_)));
  int* largest_tag = nullptr;
  int found = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&largest_tag), &found);
  if (found == 0 || *largest_tag < INT32_MAX) return absl::UnimplementedError("this MPI has tags of less than 31 bits");
  RETURN_IF_ERROR(member->ListenForFarewells());
  return member;
}

absl::Status MpiMember::ListenForFarewells() {
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    peers_.push_back(std::make_unique<Peer>());
    Peer& peer = *peers_.back();
    peer.rank = r;
    RETURN_IF_ERROR(
        MpiStatus(MPI_Irecv(&peer.farewell, sizeof(Farewell), MPI_BYTE, r, kNoTag, comms_.farewells, &peer.request)));
  }
  return absl::OkStatus();
}

MpiMember::~MpiMember() {
  if (failure_.ok()) Say(Kind::kLeft, "");
  for (const auto& peer : peers_) {
    if (peer->request == MPI_REQUEST_NULL) continue;
    MPI_Cancel(&peer->request);
    MPI_Wait(&peer->request, MPI_STATUS_IGNORE);  // cancelled or small: does not wait for the peer
  }
}

absl::Status MpiMember::AllGatherV(ConstBytes input, RankSlices<Bytes> output, Deadline deadline) {
  RETURN_IF_ERROR(CheckGather(input, output, rank_, size_));
  const auto post = [&](MpiRequests& requests) -> absl::Status {
    for (const auto& peer : peers_) {
      RETURN_IF_ERROR(requests.Receive(comms_.collectives, peer->rank, kNoTag, output[peer->rank]));
    }
    for (const auto& peer : peers_) {
      RETURN_IF_ERROR(requests.Send(comms_.collectives, peer->rank, kNoTag, input));
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(RunCollective("all-gather", post, deadline));
  CopyBytes(output[rank_], input);
  return absl::OkStatus();
}

absl::Status MpiMember::AllToAllV(RankSlices<ConstBytes> input, RankSlices<Bytes> output, Deadline deadline) {
  RETURN_IF_ERROR(CheckExchange(input, output, rank_, size_));
  const auto post = [&](MpiRequests& requests) -> absl::Status {
    for (const auto& peer : peers_) {
      RETURN_IF_ERROR(requests.Receive(comms_.collectives, peer->rank, kNoTag, output[peer->rank]));
    }
    for (const auto& peer : peers_) {
      RETURN_IF_ERROR(requests.Send(comms_.collectives, peer->rank, kNoTag, input[peer->rank]));
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(RunCollective("all-to-all", post, deadline));
  CopyBytes(output[rank_], input[rank_]);
  return absl::OkStatus();
}

absl::Status MpiMember::Broadcast(int root, Bytes data, Deadline deadline) {
  RETURN_IF_ERROR(CheckRank(root, size_, "broadcast from"));
  const auto post = [&](MpiRequests& requests) -> absl::Status {
    if (rank_ != root) return requests.Receive(comms_.collectives, root, kNoTag, data);
    for (const auto& peer : peers_) {
      RETURN_IF_ERROR(requests.Send(comms_.collectives, peer->rank, kNoTag, data));
    }
    return absl::OkStatus();
  };
  return RunCollective("broadcast", post, deadline);
}

absl::Status MpiMember::Barrier(Deadline deadline) {
  const std::byte mine{};
  std::vector<std::byte> theirs(static_cast<size_t>(size_));
  const auto post = [&](MpiRequests& requests) -> absl::Status {
    for (const auto& peer : peers_) {
      const Bytes word = absl::MakeSpan(theirs).subspan(static_cast<size_t>(peer->rank), 1);
      RETURN_IF_ERROR(requests.Receive(comms_.collectives, peer->rank, kNoTag, word));
      RETURN_IF_ERROR(requests.Send(comms_.collectives, peer->rank, kNoTag, {&mine, 1}));
    }
    return absl::OkStatus();
  };
  return RunCollective("barrier", post, deadline);
}

absl::Status MpiMember::Send(int to, uint32_t tag, ConstBytes data, Deadline deadline) {
  RETURN_IF_ERROR(CheckPeer(to, rank_, size_, "send to"));
  const auto post = [&](MpiRequests& requests) {
    return requests.Send(tag > INT32_MAX ? comms_.high_tags : comms_.low_tags, to, static_cast<int>(tag & INT32_MAX),
                         data);
  };
  return Run(absl::StrCat("send to ", WorldRank(to), " with tag ", tag), post, deadline);
}

absl::Status MpiMember::Receive(int from, uint32_t tag, Bytes data, Deadline deadline) {
  RETURN_IF_ERROR(CheckPeer(from, rank_, size_, "receive from"));
  const auto post = [&](MpiRequests& requests) {
    return requests.Receive(tag > INT32_MAX ? comms_.high_tags : comms_.low_tags, from,
                            static_cast<int>(tag & INT32_MAX), data);
  };
  return Run(absl::StrCat("receive from ", WorldRank(from), " with tag ", tag), post, deadline);
}

absl::Status MpiMember::RunCollective(const char* name, const Post& post, Deadline deadline) {
  const uint64_t number = sequence_++;
  return Run(absl::StrCat(name, " number ", number), post, deadline);
}

absl::Status MpiMember::Run(const std::string& call, const Post& post, Deadline deadline) {
  {
    const std::lock_guard lock(mutex_);
    RETURN_IF_ERROR(failure_);
  }
  const std::string what = absl::StrCat("rank ", WorldRank(rank_), " of generation ", generation_, ": ", call);
  MpiRequests requests;
  absl::Status mpi = post(requests);
  absl::Status why;  // what Check found
  if (mpi.ok()) mpi = requests.Wait([&] { return why = Check(what, requests, deadline); });
  if (mpi.ok()) return mpi;
  absl::Status result = Fail(why.ok() ? Annotate(mpi, what) : why);
  requests.Cancel();
  return result;
}

absl::Status MpiMember::Check(const std::string& what, MpiRequests& requests, Deadline deadline) {
  {
    const std::lock_guard lock(mutex_);
    RETURN_IF_ERROR(failure_);
  }
  RETURN_IF_ERROR(CheckFarewells(what, requests));
  if (Clock::now() < deadline) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::vector<int> missing, requests.MissingNow());
  if (missing.empty()) return absl::OkStatus();
  for (int& rank : missing) rank = WorldRank(rank);
  return Blaming(absl::DeadlineExceededError(absl::StrCat(what, " waited for ", Name(missing))), missing);
}

absl::Status MpiMember::CheckFarewells(const std::string& what, const MpiRequests& requests) {
  std::vector<int> left;
  for (const auto& peer : peers_) {
    int done = 0;
    if (peer->received == Kind::kNone) {
      RETURN_IF_ERROR(Annotate(MpiStatus(MPI_Test(&peer->request, &done, MPI_STATUS_IGNORE)), what));
      if (done == 0) continue;
      peer->received = peer->farewell.kind;
      peer->left_until = Clock::now() + kLeavingLimit;
    }
    if (peer->received == Kind::kFailed) return absl::AbortedError(peer->farewell.text);
    if (Clock::now() > peer->left_until) left.push_back(peer->rank);
  }
  if (left.empty()) return absl::OkStatus();
  const std::vector<int> missing = requests.Missing();
  std::erase_if(left, [&](int r) { return std::find(missing.begin(), missing.end(), r) == missing.end(); });
  if (left.empty()) return absl::OkStatus();
  for (int& rank : left) rank = WorldRank(rank);
  return Blaming(absl::UnavailableError(absl::StrCat(what, ": ", Name(left), " left")), left);
}

void MpiMember::Abort(const std::string& reason) {
  Fail(
      absl::AbortedError(absl::StrCat("rank ", WorldRank(rank_), " of generation ", generation_, " aborted: ", reason)))
      .IgnoreError();
}

absl::Status MpiMember::Fail(const absl::Status& status) {
  const std::lock_guard lock(mutex_);
  if (!failure_.ok()) return failure_;
  const std::string message(status.message());
  failure_ = absl::AbortedError(message);
  Say(Kind::kFailed, message);
  return status;
}

// Small messages leave at once, whoever listens; nobody waits for them to be read.
void MpiMember::Say(Kind kind, const std::string& text) {
  mine_.kind = kind;
  std::strncpy(mine_.text, text.c_str(), sizeof(mine_.text) - 1);
  for (const auto& peer : peers_) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (MPI_Isend(&mine_, sizeof(mine_), MPI_BYTE, peer->rank, kNoTag, comms_.farewells, &request) != MPI_SUCCESS) {
      continue;
    }
    int done = 0;
    for (int i = 0; i < 1000 && done == 0; ++i) {
      if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) break;
    }
    if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
  }
}

}  // namespace holdfast
