#pragma once
// One rank's end of a communicator over NCCL. Made by ConnectNccl.

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "framework/comm/communicator.h"
#include "framework/comm/cuda/nccl_communicator.h"
#include "framework/comm/cuda/nccl_resources.h"

namespace holdfast {

class NcclMember final : public Communicator {
 public:
  NcclMember(std::unique_ptr<NcclResources> resources, const NcclOptions& options, int rank, int size,
             uint64_t generation)
      : resources_(std::move(resources)), options_(options), rank_(rank), size_(size), generation_(generation) {}
  ~NcclMember() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  uint64_t generation() const override { return generation_; }
  bool serves_device_memory() const override { return true; }

  absl::Status AllGatherV(ConstBytes input, RankSlices<Bytes> output, Deadline deadline) override;
  absl::Status AllToAllV(RankSlices<ConstBytes> input, RankSlices<Bytes> output, Deadline deadline) override;
  absl::Status Broadcast(int root, Bytes data, Deadline deadline) override;
  absl::Status Barrier(Deadline deadline) override;
  absl::Status Send(int to, uint32_t tag, ConstBytes data, Deadline deadline) override;
  absl::Status Receive(int from, uint32_t tag, Bytes data, Deadline deadline) override;
  void Abort(const std::string& reason) override;

 private:
  using Post = std::function<absl::Status()>;

  /// One group of sends and receives: posted together, waited for together. `others` is who may be missing.
  absl::Status Run(const std::string& call, const Post& post, const std::string& others, Deadline deadline);
  absl::Status RunCollective(const char* name, const Post& post, Deadline deadline);
  absl::Status Launch(const Post& post);
  absl::Status Wait(const std::function<absl::StatusOr<bool>()>& done, const std::string& others, Deadline deadline);
  /// Whether what is for r goes through NCCL.
  bool Sends(int r) const { return r != rank_ || options_.sends_to_self; }
  absl::Status PostSend(int to, ConstBytes data);
  absl::Status PostReceive(int from, Bytes data);
  absl::Status PostCopy(Bytes to, ConstBytes from);
  absl::Status Fail(const absl::Status& status);
  std::string Others() const;

  std::unique_ptr<NcclResources> resources_;
  const NcclOptions options_;
  const int rank_, size_;
  const uint64_t generation_;
  uint64_t sequence_ = 0;

  std::mutex mutex_;      // held for every call of NCCL, none of which blocks
  absl::Status failure_;  // under mutex_
};

}  // namespace holdfast
