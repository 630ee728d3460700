// Stands in for NCCL in a build without CUDA.

#include "framework/comm/cuda/nccl_communicator.h"

namespace holdfast {

absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> ConnectNccl(const NcclOptions& /*options*/, int /*rank*/,
                                                                       int /*size*/, uint64_t /*generation*/,
                                                                       const std::vector<std::vector<int>>& /*groups*/,
                                                                       Rendezvous& /*rendezvous*/,
                                                                       std::stop_token /*stop*/,
                                                                       Deadline /*deadline*/) {
  return absl::UnimplementedError("this build has no CUDA, so no NCCL");
}

}  // namespace holdfast
