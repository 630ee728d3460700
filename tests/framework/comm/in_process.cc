#include "tests/framework/comm/in_process.h"

#include <utility>

#include "framework/base/status.h"
#include "tests/framework/comm/in_process_rendezvous.h"

namespace holdfast {
namespace {

using Kind = InProcessRendezvous::Kind;

class InProcessCommunicator final : public Communicator {
 public:
  InProcessCommunicator(std::shared_ptr<InProcessRendezvous> rendezvous, int rank)
      : rendezvous_(std::move(rendezvous)), rank_(rank) {}
  ~InProcessCommunicator() override { rendezvous_->Leave(rank_); }

  int rank() const override { return rank_; }
  int size() const override { return rendezvous_->size(); }
  uint64_t generation() const override { return rendezvous_->generation(); }

  absl::Status AllGatherV(ConstBytes input, RankSlices<Bytes> output, Deadline deadline) override {
    RETURN_IF_ERROR(CheckGather(input, output, rank_, size()));
    return Collective({Kind::kAllGatherV, 0, {input, {}, {}}, output}, deadline);
  }

  absl::Status AllToAllV(RankSlices<ConstBytes> input, RankSlices<Bytes> output, Deadline deadline) override {
    RETURN_IF_ERROR(CheckExchange(input, output, rank_, size()));
    return Collective({Kind::kAllToAllV, 0, input, output}, deadline);
  }

  absl::Status Broadcast(int root, Bytes data, Deadline deadline) override {
    RETURN_IF_ERROR(CheckRank(root, size(), "broadcast from"));
    return Collective({Kind::kBroadcast, root, {data, {}, {}}, {data, {}, {}}}, deadline);
  }

  absl::Status Barrier(Deadline deadline) override { return Collective({Kind::kBarrier, 0, {}, {}}, deadline); }

  absl::Status Send(int to, uint32_t tag, ConstBytes data, Deadline deadline) override {
    RETURN_IF_ERROR(CheckPeer(to, rank_, size(), "send to"));
    return rendezvous_->Send(rank_, to, tag, data, deadline);
  }

  absl::Status Receive(int from, uint32_t tag, Bytes data, Deadline deadline) override {
    RETURN_IF_ERROR(CheckPeer(from, rank_, size(), "receive from"));
    return rendezvous_->Receive(from, rank_, tag, data, deadline);
  }

  void Abort(const std::string& reason) override { rendezvous_->Abort(reason); }

 private:
  absl::Status Collective(const InProcessRendezvous::Arguments& arguments, Deadline deadline) {
    return rendezvous_->Collective(rank_, sequence_++, arguments, deadline);
  }

  // Shared with the other members: the last one to be destroyed frees it.
  std::shared_ptr<InProcessRendezvous> rendezvous_;
  int rank_;
  uint64_t sequence_ = 0;
};

}  // namespace

InProcessWorld::InProcessWorld(int size, uint64_t generation)
    : rendezvous_(std::make_shared<InProcessRendezvous>(size, generation)) {
  HOLDFAST_CHECK(size > 0);
}

InProcessWorld::~InProcessWorld() = default;

absl::StatusOr<std::unique_ptr<Communicator>> InProcessWorld::Join(int rank, uint64_t generation) {
  if (generation != rendezvous_->generation()) {
    return absl::FailedPreconditionError(absl::StrCat("rank ", rank, " of generation ", generation,
                                                      " came to the world of generation ", rendezvous_->generation()));
  }
  if (rank < 0 || rank >= rendezvous_->size()) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " in a world of ", rendezvous_->size()));
  }
  RETURN_IF_ERROR(rendezvous_->Join(rank));
  return std::make_unique<InProcessCommunicator>(rendezvous_, rank);
}

std::vector<std::unique_ptr<Communicator>> MakeInProcessWorld(int size, uint64_t generation) {
  InProcessWorld world(size, generation);
  std::vector<std::unique_ptr<Communicator>> members;
  for (int rank = 0; rank < size; ++rank) members.push_back(*world.Join(rank, generation));
  return members;
}

}  // namespace holdfast
