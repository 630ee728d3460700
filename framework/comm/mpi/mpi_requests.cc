#include "framework/comm/mpi/mpi_requests.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "framework/base/status.h"
#include "framework/comm/mpi/mpi_status.h"

namespace holdfast {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kPieceBytes = size_t{1} << 30;
constexpr std::chrono::milliseconds kCancelLimit{200};
// A poll that finds nothing gives the processor away; one that has found nothing for a while sleeps.
constexpr std::chrono::milliseconds kSpinTime{5};
constexpr std::chrono::microseconds kNap{50};

}  // namespace

absl::Status MpiRequests::Send(MPI_Comm comm, int peer, int tag, ConstBytes data) {
  for (size_t at = 0; at < data.size(); at += kPieceBytes) {
    const ConstBytes piece = data.subspan(at, kPieceBytes);
    const int bytes = static_cast<int>(piece.size());
    requests_.push_back(MPI_REQUEST_NULL);
    pieces_.push_back({peer, false, false, bytes});
    RETURN_IF_ERROR(MpiStatus(MPI_Isend(piece.data(), bytes, MPI_BYTE, peer, tag, comm, &requests_.back())));
  }
  return absl::OkStatus();
}

absl::Status MpiRequests::Receive(MPI_Comm comm, int peer, int tag, Bytes data) {
  for (size_t at = 0; at < data.size(); at += kPieceBytes) {
    const Bytes piece = data.subspan(at, kPieceBytes);
    const int bytes = static_cast<int>(piece.size());
    requests_.push_back(MPI_REQUEST_NULL);
    pieces_.push_back({peer, true, false, bytes});
    RETURN_IF_ERROR(MpiStatus(MPI_Irecv(piece.data(), bytes, MPI_BYTE, peer, tag, comm, &requests_.back())));
  }
  return absl::OkStatus();
}

absl::Status MpiRequests::Poll(bool& all_done) {
  all_done = true;
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (pieces_[i].done) continue;
    int done = 0, bytes = 0;
    MPI_Status status;
    const absl::Status tested = MpiStatus(MPI_Test(&requests_[i], &done, &status));
    pieces_[i].done = done != 0 || !tested.ok();
    RETURN_IF_ERROR(Annotate(tested, absl::StrCat("rank ", pieces_[i].peer)));
    all_done = all_done && pieces_[i].done;
    if (!pieces_[i].done || !pieces_[i].receive) continue;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    if (bytes == pieces_[i].bytes) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", pieces_[i].peer, ": ", pieces_[i].bytes, " bytes are expected, ", bytes, " were sent"));
  }
  return absl::OkStatus();
}

absl::Status MpiRequests::Wait(absl::FunctionRef<absl::Status()> check) {
  const auto spin_deadline = Clock::now() + kSpinTime;
  while (true) {
    bool all_done = false;
    RETURN_IF_ERROR(Poll(all_done));
    if (all_done) return absl::OkStatus();
    RETURN_IF_ERROR(check());
    if (Clock::now() < spin_deadline) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
}

std::vector<int> MpiRequests::Missing() const {
  std::vector<int> ranks;
  for (const Piece& piece : pieces_) {
    if (!piece.done) ranks.push_back(piece.peer);
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

absl::StatusOr<std::vector<int>> MpiRequests::MissingNow() {
  bool all_done = false;
  RETURN_IF_ERROR(Poll(all_done));
  return Missing();
}

void MpiRequests::Cancel() {
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (pieces_[i].receive && requests_[i] != MPI_REQUEST_NULL) MPI_Cancel(&requests_[i]);
  }
  const auto limit = Clock::now() + kCancelLimit;
  for (MPI_Request& request : requests_) {
    int done = request == MPI_REQUEST_NULL ? 1 : 0;
    while (done == 0 && Clock::now() < limit) {
      if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) break;
      sched_yield();
    }
    if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
  }
}

}  // namespace holdfast
