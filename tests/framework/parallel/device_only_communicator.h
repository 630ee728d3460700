#pragma once
// A communicator that takes memory of one device only, as NCCL does, and finds those who give it other memory. Carried
// by one that serves any.

#include <memory>
#include <string>
#include <utility>

#include "framework/comm/communicator.h"
#include "framework/tensor/device.h"

namespace holdfast {

class DeviceOnlyCommunicator final : public Communicator {
 public:
  DeviceOnlyCommunicator(std::unique_ptr<Communicator> carrier, const Device& device)
      : carrier_(std::move(carrier)), device_(device) {}

  int rank() const override { return carrier_->rank(); }
  int size() const override { return carrier_->size(); }
  uint64_t generation() const override { return carrier_->generation(); }
  bool serves_device_memory() const override { return true; }

  absl::Status AllGatherV(ConstBytes input, RankSlices<Bytes> output, Deadline deadline) override {
    if (!Takes(input) || !Takes(output.bytes)) return Refuse();
    return carrier_->AllGatherV(input, output, deadline);
  }
  absl::Status AllToAllV(RankSlices<ConstBytes> input, RankSlices<Bytes> output, Deadline deadline) override {
    if (!Takes(input.bytes) || !Takes(output.bytes)) return Refuse();
    return carrier_->AllToAllV(input, output, deadline);
  }
  absl::Status Broadcast(int root, Bytes data, Deadline deadline) override {
    return Takes(data) ? carrier_->Broadcast(root, data, deadline) : Refuse();
  }
  absl::Status Barrier(Deadline deadline) override { return carrier_->Barrier(deadline); }
  absl::Status Send(int to, uint32_t tag, ConstBytes data, Deadline deadline) override {
    return Takes(data) ? carrier_->Send(to, tag, data, deadline) : Refuse();
  }
  absl::Status Receive(int from, uint32_t tag, Bytes data, Deadline deadline) override {
    return Takes(data) ? carrier_->Receive(from, tag, data, deadline) : Refuse();
  }
  void Abort(const std::string& reason) override { carrier_->Abort(reason); }

 private:
  bool Takes(ConstBytes bytes) const { return bytes.empty() || device_.IsDeviceOnly(bytes.data()); }
  static absl::Status Refuse() { return absl::UnimplementedError("this is not memory of the device"); }

  std::unique_ptr<Communicator> carrier_;
  const Device& device_;
};

}  // namespace holdfast
