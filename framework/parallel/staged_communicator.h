#pragma once
// A communicator of CPU memory made to serve memory of a device as well, or one of device memory to serve the CPU's:
// what the inner one cannot reach travels through a staging buffer where it can. Each side of a call for itself; memory
// that needs none is passed on as it is.
//
// A staging buffer is as large as the largest call. Through CPU memory go whole units; through device memory only what
// the trainer keeps on the CPU: losses, norms, a chunk of weights, and rounds of a transfer, at most 64 MiB a side
// (transfer.cc).

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "framework/comm/communicator.h"
#include "framework/tensor/tensor.h"

namespace holdfast {

class StagedCommunicator final : public Communicator {
 public:
  /// `device` must outlive it.
  StagedCommunicator(std::unique_ptr<Communicator> inner, Device& device)
      : inner_(std::move(inner)), device_(device), on_device_(inner_->serves_device_memory()) {}
  ~StagedCommunicator() override;

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  uint64_t generation() const override { return inner_->generation(); }

  absl::Status AllGatherV(ConstBytes input, RankSlices<Bytes> output, Deadline deadline) override;
  absl::Status AllToAllV(RankSlices<ConstBytes> input, RankSlices<Bytes> output, Deadline deadline) override;
  absl::Status Broadcast(int root, Bytes data, Deadline deadline) override;
  absl::Status Barrier(Deadline deadline) override { return inner_->Barrier(deadline); }
  absl::Status Send(int to, uint32_t tag, ConstBytes data, Deadline deadline) override;
  absl::Status Receive(int from, uint32_t tag, Bytes data, Deadline deadline) override;
  void Abort(const std::string& reason) override { inner_->Abort(reason); }

 private:
  /// Memory that the inner communicator reaches, for one side of a call.
  struct Staging {
    Bytes bytes;
    Buffer buffer;  // that holds them, if they are the device's
  };
  bool Reaches(ConstBytes bytes) const;
  absl::StatusOr<Bytes> Stage(Staging& staging, size_t bytes);
  void FreeCpu(Staging& staging);
  void CopyIn(Bytes staged, ConstBytes data);
  void CopyOut(Bytes data, ConstBytes staged);
  /// `data`, or a copy of it that the inner communicator reaches.
  absl::StatusOr<ConstBytes> Outgoing(ConstBytes data);
  /// Receives into `output`, or into staging and from there.
  absl::Status Into(RankSlices<Bytes> output, absl::FunctionRef<absl::Status(RankSlices<Bytes>)> receive);

  std::unique_ptr<Communicator> inner_;
  Device& device_;
  bool on_device_;  // the inner one, and so the staging
  Staging out_, in_;
};

/// `communicator`, able to serve memory of the CPU and of `device`; null stays null.
std::unique_ptr<Communicator> ServeDevice(std::unique_ptr<Communicator> communicator, Device& device);

}  // namespace holdfast
