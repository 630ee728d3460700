#pragma once
// A communicator that passes every call on: what tests hold back or look at is an override.

#include <memory>
#include <string>
#include <utility>

#include "framework/comm/communicator.h"

namespace holdfast {

class WrappedCommunicator : public Communicator {
 public:
  explicit WrappedCommunicator(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  uint64_t generation() const override { return inner_->generation(); }
  bool serves_device_memory() const override { return inner_->serves_device_memory(); }
  absl::Status AllGatherV(ConstBytes input, RankSlices<Bytes> output, Deadline deadline) override {
    return inner_->AllGatherV(input, output, deadline);
  }
  absl::Status AllToAllV(RankSlices<ConstBytes> input, RankSlices<Bytes> output, Deadline deadline) override {
    return inner_->AllToAllV(input, output, deadline);
  }
  absl::Status Broadcast(int root, Bytes data, Deadline deadline) override {
    return inner_->Broadcast(root, data, deadline);
  }
  absl::Status Barrier(Deadline deadline) override { return inner_->Barrier(deadline); }
  absl::Status Send(int to, uint32_t tag, ConstBytes data, Deadline deadline) override {
    return inner_->Send(to, tag, data, deadline);
  }
  absl::Status Receive(int from, uint32_t tag, Bytes data, Deadline deadline) override {
    return inner_->Receive(from, tag, data, deadline);
  }
  void Abort(const std::string& reason) override { inner_->Abort(reason); }

 private:
  std::unique_ptr<Communicator> inner_;
};

}  // namespace holdfast
