#pragma once
// One rank's end of a communicator over Gloo. Made by ConnectGloo.
//
// Every call posts all its messages at once, straight between the caller's memory and its peers, and waits for them.
// After the first failure it tells the others why, closes its connections, and is finished.

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "framework/comm/communicator.h"
#include "framework/comm/gloo/gloo_farewells.h"

namespace holdfast {

class GlooMember final : public Communicator {
 public:
  /// `members` are world ranks; this communicator's rank r is members[r].
  GlooMember(std::unique_ptr<GlooMesh> mesh, std::shared_ptr<GlooFarewells> farewells, int channel,
             std::vector<int> members, uint64_t generation);
  ~GlooMember() override;

  int rank() const override { return mesh_->rank(); }
  int size() const override { return mesh_->size(); }
  uint64_t generation() const override { return generation_; }

  absl::Status AllGatherV(ConstBytes input, RankSlices<Bytes> output, Deadline deadline) override;
  absl::Status AllToAllV(RankSlices<ConstBytes> input, RankSlices<Bytes> output, Deadline deadline) override;
  absl::Status Broadcast(int root, Bytes data, Deadline deadline) override;
  absl::Status Barrier(Deadline deadline) override;
  absl::Status Send(int to, uint32_t tag, ConstBytes data, Deadline deadline) override;
  absl::Status Receive(int from, uint32_t tag, Bytes data, Deadline deadline) override;
  void Abort(const std::string& reason) override;

 private:
  struct Message {
    int peer;
    ConstBytes send;
    Bytes receive;
  };

  /// Moves all messages. `call` is for errors.
  absl::Status Exchange(const std::string& call, uint64_t number, const std::vector<Message>& messages,
                        Deadline deadline);
  absl::Status ExchangeCollective(const char* name, const std::vector<Message>& messages, Deadline deadline);
  /// What Abort interrupts. Fails if there has been a failure.
  absl::Status SetCurrent(GlooTransfers* transfers);
  absl::Status Check(const std::string& what, GlooTransfers& transfers, Deadline deadline);
  /// What the others have told, or not told.
  absl::Status CheckFarewells(const std::string& what);
  /// Why the connection to `peer` broke.
  absl::Status Explain(const std::string& what, int peer);
  absl::Status Fail(const absl::Status& status);
  std::string Name(const std::vector<int>& world_ranks) const;

  std::shared_ptr<GlooFarewells> farewells_;  // shared with the other communicators of this world
  const int channel_;
  const std::vector<int> members_;
  const uint64_t generation_;
  std::unique_ptr<GlooMesh> mesh_;
  uint64_t sequence_ = 0;

  std::mutex mutex_;
  // Under mutex_:
  absl::Status failure_;  // what later calls return
  GlooTransfers* current_ = nullptr;
};

}  // namespace holdfast
