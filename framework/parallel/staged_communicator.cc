#include "framework/parallel/staged_communicator.h"

#include <utility>

#include "framework/base/status.h"

namespace holdfast {

StagedCommunicator::~StagedCommunicator() {
  host_.reset();  // it may still be reading
  for (Staging* staging : {&out_, &in_}) {
    if (staging->data != nullptr) device_.FreeHost(staging->data);
  }
}

absl::StatusOr<Bytes> StagedCommunicator::Stage(Staging& staging, size_t bytes) {
  if (staging.bytes < bytes) {
    if (staging.data != nullptr) device_.FreeHost(staging.data);
    staging = {};
    HF_ASSIGN_OR_RETURN(void* const data, device_.AllocateHost(bytes));
    staging = {static_cast<std::byte*>(data), bytes};
  }
  return Bytes(staging.data, bytes);
}

absl::Status StagedCommunicator::AllGatherV(ConstBytes input, RankParts<Bytes> output, Deadline deadline) {
  if (!device_.IsDeviceOnly(input.data()) && !device_.IsDeviceOnly(output.bytes.data())) {
    return host_->AllGatherV(input, output, deadline);
  }
  HF_ASSIGN_OR_RETURN(const Bytes out, Stage(out_, input.size()));
  HF_ASSIGN_OR_RETURN(const Bytes in, Stage(in_, output.bytes.size()));
  device_.CopyToHost(out.data(), input.data(), input.size());
  HF_RETURN_IF_ERROR(host_->AllGatherV(out, {in, output.counts, output.displacements}, deadline));
  for (size_t r = 0; r < output.counts.size(); ++r) {
    const auto at = static_cast<size_t>(output.displacements[r]);
    device_.CopyFromHost(output.bytes.data() + at, in.data() + at, static_cast<size_t>(output.counts[r]));
  }
  return absl::OkStatus();
}

absl::Status StagedCommunicator::AllToAllV(RankParts<ConstBytes> input, RankParts<Bytes> output, Deadline deadline) {
  if (!device_.IsDeviceOnly(input.bytes.data()) && !device_.IsDeviceOnly(output.bytes.data())) {
    return host_->AllToAllV(input, output, deadline);
  }
  HF_ASSIGN_OR_RETURN(const Bytes out, Stage(out_, input.bytes.size()));
  HF_ASSIGN_OR_RETURN(const Bytes in, Stage(in_, output.bytes.size()));
  for (size_t r = 0; r < input.counts.size(); ++r) {
    const auto at = static_cast<size_t>(input.displacements[r]);
    device_.CopyToHost(out.data() + at, input.bytes.data() + at, static_cast<size_t>(input.counts[r]));
  }
  HF_RETURN_IF_ERROR(
      host_->AllToAllV({out, input.counts, input.displacements}, {in, output.counts, output.displacements}, deadline));
  for (size_t r = 0; r < output.counts.size(); ++r) {
    const auto at = static_cast<size_t>(output.displacements[r]);
    device_.CopyFromHost(output.bytes.data() + at, in.data() + at, static_cast<size_t>(output.counts[r]));
  }
  return absl::OkStatus();
}

absl::Status StagedCommunicator::Broadcast(int root, Bytes data, Deadline deadline) {
  if (!device_.IsDeviceOnly(data.data())) return host_->Broadcast(root, data, deadline);
  HF_ASSIGN_OR_RETURN(const Bytes staged, Stage(out_, data.size()));
  if (rank() == root) device_.CopyToHost(staged.data(), data.data(), data.size());
  HF_RETURN_IF_ERROR(host_->Broadcast(root, staged, deadline));
  if (rank() != root) device_.CopyFromHost(data.data(), staged.data(), data.size());
  return absl::OkStatus();
}

absl::Status StagedCommunicator::Send(int to, uint32_t tag, ConstBytes data, Deadline deadline) {
  if (!device_.IsDeviceOnly(data.data())) return host_->Send(to, tag, data, deadline);
  HF_ASSIGN_OR_RETURN(const Bytes staged, Stage(out_, data.size()));
  device_.CopyToHost(staged.data(), data.data(), data.size());
  return host_->Send(to, tag, staged, deadline);
}

absl::Status StagedCommunicator::Receive(int from, uint32_t tag, Bytes data, Deadline deadline) {
  if (!device_.IsDeviceOnly(data.data())) return host_->Receive(from, tag, data, deadline);
  HF_ASSIGN_OR_RETURN(const Bytes staged, Stage(in_, data.size()));
  HF_RETURN_IF_ERROR(host_->Receive(from, tag, staged, deadline));
  device_.CopyFromHost(data.data(), staged.data(), data.size());
  return absl::OkStatus();
}

std::unique_ptr<Communicator> ServeDevice(std::unique_ptr<Communicator> host, Device& device) {
  if (host == nullptr || device.is_host()) return host;
  return std::make_unique<StagedCommunicator>(std::move(host), device);
}

}  // namespace holdfast
