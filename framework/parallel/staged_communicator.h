#pragma once
// A communicator of host memory made to serve memory of a device: what lies there travels through a staging buffer.
// Host memory is passed on as it is.

#include <memory>
#include <string>

#include "framework/comm/communicator.h"
#include "framework/tensor/device.h"

namespace holdfast {

class StagedCommunicator final : public Communicator {
 public:
  /// `device` must outlive it.
  StagedCommunicator(std::unique_ptr<Communicator> host, Device& device) : host_(std::move(host)), device_(device) {}
  ~StagedCommunicator() override;

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  uint64_t generation() const override { return host_->generation(); }

  absl::Status AllGatherV(ConstBytes input, RankParts<Bytes> output, Deadline deadline) override;
  absl::Status AllToAllV(RankParts<ConstBytes> input, RankParts<Bytes> output, Deadline deadline) override;
  absl::Status Broadcast(int root, Bytes data, Deadline deadline) override;
  absl::Status Barrier(Deadline deadline) override { return host_->Barrier(deadline); }
  absl::Status Send(int to, uint32_t tag, ConstBytes data, Deadline deadline) override;
  absl::Status Receive(int from, uint32_t tag, Bytes data, Deadline deadline) override;
  void Abort(const std::string& reason) override { host_->Abort(reason); }

 private:
  /// Host memory of `bytes`, for one side of a call.
  struct Staging {
    std::byte* data = nullptr;
    size_t bytes = 0;
  };
  absl::StatusOr<Bytes> Stage(Staging& staging, size_t bytes);

  std::unique_ptr<Communicator> host_;
  Device& device_;
  Staging out_, in_;
};

/// `host`, able to serve `device`; null stays null.
std::unique_ptr<Communicator> ServeDevice(std::unique_ptr<Communicator> host, Device& device);

}  // namespace holdfast
