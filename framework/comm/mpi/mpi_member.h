#pragma once
// One rank's end of a communicator over MPI. Made by MpiEnvironment::Connect.
//
// Like the Gloo members these report why they end: every member keeps a receive posted for each other's reason.

#include <mpi.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"
#include "framework/comm/mpi/mpi_requests.h"

namespace holdfast {

/// MPI's communicators behind one of ours. Tags are 32 bits, MPI has 31.
struct MpiComms {
  MPI_Comm collectives = MPI_COMM_NULL, low_tags = MPI_COMM_NULL, high_tags = MPI_COMM_NULL, farewells = MPI_COMM_NULL;
};

class MpiMember final : public Communicator {
 public:
  /// `members`: world ranks by rank, for messages and blame. Unimplemented if this MPI's tags have less than 31 bits.
  static absl::StatusOr<std::unique_ptr<Communicator>> Make(MpiComms comms, uint64_t generation,
                                                            std::vector<int> members);
  ~MpiMember() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  uint64_t generation() const override { return generation_; }

  absl::Status AllGatherV(ConstBytes input, RankSlices<Bytes> output, Deadline deadline) override;
  absl::Status AllToAllV(RankSlices<ConstBytes> input, RankSlices<Bytes> output, Deadline deadline) override;
  absl::Status Broadcast(int root, Bytes data, Deadline deadline) override;
  absl::Status Barrier(Deadline deadline) override;
  absl::Status Send(int to, uint32_t tag, ConstBytes data, Deadline deadline) override;
  absl::Status Receive(int from, uint32_t tag, Bytes data, Deadline deadline) override;
  void Abort(const std::string& reason) override;

 private:
  enum class Kind : int { kNone, kLeft, kFailed };
  struct Farewell {
    Kind kind = Kind::kNone;
    char text[500] = {};
  };
  struct Peer {
    int rank = 0;
    Farewell farewell;
    MPI_Request request = MPI_REQUEST_NULL;
    Kind received = Kind::kNone;
    Deadline left_until;  // how long what it sent before may still be on its way
  };
  using Post = std::function<absl::Status(MpiRequests&)>;

  MpiMember(MpiComms comms, uint64_t generation, std::vector<int> members)
      : comms_(comms), generation_(generation), members_(std::move(members)) {}
  int WorldRank(int rank) const { return members_[static_cast<size_t>(rank)]; }
  absl::Status ListenForFarewells();
  absl::Status Run(const std::string& call, const Post& post, Deadline deadline);
  absl::Status RunCollective(const char* name, const Post& post, Deadline deadline);
  absl::Status Check(const std::string& what, MpiRequests& requests, Deadline deadline);
  absl::Status CheckFarewells(const std::string& what, const MpiRequests& requests);
  absl::Status Fail(const absl::Status& status);
  void Say(Kind kind, const std::string& text);

  const MpiComms comms_;
  const uint64_t generation_;
  const std::vector<int> members_;
  int rank_ = 0, size_ = 0;
  uint64_t sequence_ = 0;
  std::vector<std::unique_ptr<Peer>> peers_;

  std::mutex mutex_;
  absl::Status failure_;  // under mutex_
  Farewell mine_;
};

}  // namespace holdfast
