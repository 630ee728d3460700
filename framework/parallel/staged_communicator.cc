#include "framework/parallel/staged_communicator.h"

#include <utility>

#include "framework/base/status.h"

namespace holdfast {

StagedCommunicator::~StagedCommunicator() {
  inner_.reset();  // it may still be reading
  FreeCpu(out_);
  FreeCpu(in_);
}

void StagedCommunicator::FreeCpu(Staging& staging) {
  if (!on_device_ && staging.bytes.data() != nullptr) device_.FreeCpu(staging.bytes.data());
  staging = {};
}

bool StagedCommunicator::Reaches(ConstBytes bytes) const {
  return bytes.empty() || device_.IsDeviceOnly(bytes.data()) == on_device_;
}

absl::StatusOr<Bytes> StagedCommunicator::Stage(Staging& staging, size_t bytes) {
  if (staging.bytes.size() < bytes) {
    FreeCpu(staging);
    if (on_device_) {
      ASSIGN_OR_RETURN(staging.buffer, Buffer::Allocate(device_, bytes, "staging of communicators"));
      staging.bytes = {staging.buffer.as<std::byte>(), bytes};
    } else {
      ASSIGN_OR_RETURN(void* const data, device_.AllocateCpu(bytes));
      staging.bytes = {static_cast<std::byte*>(data), bytes};
    }
  }
  return staging.bytes.first(bytes);
}

void StagedCommunicator::CopyIn(Bytes staged, ConstBytes data) {
  if (on_device_) {
    device_.CopyFromCpu(staged.data(), data.data(), data.size());
  } else {
    device_.CopyToCpu(staged.data(), data.data(), data.size());
  }
}

void StagedCommunicator::CopyOut(Bytes data, ConstBytes staged) {
  if (on_device_) {
    device_.CopyToCpu(data.data(), staged.data(), data.size());
  } else {
    device_.CopyFromCpu(data.data(), staged.data(), data.size());
  }
}

absl::StatusOr<ConstBytes> StagedCommunicator::Outgoing(ConstBytes data) {
  if (Reaches(data)) return data;
  ASSIGN_OR_RETURN(const Bytes staged, Stage(out_, data.size()));
  CopyIn(staged, data);
  return staged;
}

absl::Status StagedCommunicator::Into(RankSlices<Bytes> output,
                                      absl::FunctionRef<absl::Status(RankSlices<Bytes>)> receive) {
  if (Reaches(output.bytes)) return receive(output);
  ASSIGN_OR_RETURN(const Bytes staged, Stage(in_, output.bytes.size()));
  const RankSlices<Bytes> received{staged, output.counts, output.displacements};
  RETURN_IF_ERROR(receive(received));
  for (int r = 0; r < size(); ++r) CopyOut(output[r], received[r]);
  return absl::OkStatus();
}

absl::Status StagedCommunicator::AllGatherV(ConstBytes input, RankSlices<Bytes> output, Deadline deadline) {
  RETURN_IF_ERROR(CheckGather(input, output, rank(), size()));
  ASSIGN_OR_RETURN(const ConstBytes sent, Outgoing(input));
  return Into(output, [&](RankSlices<Bytes> received) { return inner_->AllGatherV(sent, received, deadline); });
}

absl::Status StagedCommunicator::AllToAllV(RankSlices<ConstBytes> input, RankSlices<Bytes> output, Deadline deadline) {
  RETURN_IF_ERROR(CheckExchange(input, output, rank(), size()));
  if (!Reaches(input.bytes)) {
    ASSIGN_OR_RETURN(const Bytes staged, Stage(out_, input.bytes.size()));
    const RankSlices<Bytes> sent{staged, input.counts, input.displacements};
    for (int r = 0; r < size(); ++r) CopyIn(sent[r], input[r]);
    input.bytes = staged;
  }
  return Into(output, [&](RankSlices<Bytes> received) { return inner_->AllToAllV(input, received, deadline); });
}

absl::Status StagedCommunicator::Broadcast(int root, Bytes data, Deadline deadline) {
  if (Reaches(data)) return inner_->Broadcast(root, data, deadline);
  ASSIGN_OR_RETURN(const Bytes staged, Stage(out_, data.size()));
  if (rank() == root) CopyIn(staged, data);
  RETURN_IF_ERROR(inner_->Broadcast(root, staged, deadline));
  if (rank() != root) CopyOut(data, staged);
  return absl::OkStatus();
}

absl::Status StagedCommunicator::Send(int to, uint32_t tag, ConstBytes data, Deadline deadline) {
  ASSIGN_OR_RETURN(const ConstBytes sent, Outgoing(data));
  return inner_->Send(to, tag, sent, deadline);
}

absl::Status StagedCommunicator::Receive(int from, uint32_t tag, Bytes data, Deadline deadline) {
  if (Reaches(data)) return inner_->Receive(from, tag, data, deadline);
  ASSIGN_OR_RETURN(const Bytes staged, Stage(in_, data.size()));
  RETURN_IF_ERROR(inner_->Receive(from, tag, staged, deadline));
  CopyOut(data, staged);
  return absl::OkStatus();
}

std::unique_ptr<Communicator> ServeDevice(std::unique_ptr<Communicator> communicator, Device& device) {
  if (communicator == nullptr || device.is_cpu()) return communicator;
  return std::make_unique<StagedCommunicator>(std::move(communicator), device);
}

}  // namespace holdfast
