#include "framework/comm/cuda/nccl_communicator.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "framework/base/status.h"
#include "framework/comm/cuda/nccl_member.h"
#include "framework/comm/cuda/nccl_resources.h"
#include "framework/comm/cuda/nccl_status.h"

namespace holdfast {
namespace {

constexpr std::chrono::microseconds kNap{200};

// A blob: the generation, then for every group that starts with the sender, in order, the group's id.
absl::StatusOr<std::string> IdBlob(int rank, uint64_t generation, const std::vector<std::vector<int>>& groups) {
  std::string blob(reinterpret_cast<const char*>(&generation), sizeof(generation));
  for (const std::vector<int>& members : groups) {
    if (members.empty() || members[0] != rank) continue;
    ncclUniqueId id;
    RETURN_IF_ERROR(NcclStatus(ncclGetUniqueId(&id), "ncclGetUniqueId"));
    blob.append(id.internal, sizeof(id.internal));
  }
  return blob;
}

absl::StatusOr<ncclUniqueId> FindId(size_t group, const std::vector<std::vector<int>>& groups, uint64_t generation,
                                    const std::vector<std::string>& blobs) {
  const int first = groups[group][0];
  const auto before = std::count_if(groups.begin(), groups.begin() + static_cast<std::ptrdiff_t>(group),
                                    [&](const std::vector<int>& g) { return !g.empty() && g[0] == first; });
  const std::string& blob = blobs[static_cast<size_t>(first)];
  ncclUniqueId id;
  const size_t at = sizeof(generation) + static_cast<size_t>(before) * sizeof(id.internal);
  if (blob.size() < at + sizeof(id.internal) || std::memcmp(blob.data(), &generation, sizeof(generation)) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", first, " came to generation ", generation, " with another generation or other groups"));
  }
  std::memcpy(id.internal, blob.data() + at, sizeof(id.internal));
  return id;
}

// What was compiled against may be called, and a function that a library lacks is missed only when it is needed.
absl::Status CheckVersion() {
  int version = 0;
  RETURN_IF_ERROR(NcclStatus(ncclGetVersion(&version), "ncclGetVersion"));
  if (version >= NCCL_VERSION_CODE) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("NCCL ", version, " is older than ", NCCL_VERSION_CODE,
                                                    ", which this was built with; install a newer one, or use "
                                                    "parallel.transport: gloo"));
}

// What a GPU has lost by a failure of its own or of a kernel, no world brings back to this process.
absl::Status CheckContext(const NcclOptions& options) {
  const cudaError_t state = cudaStreamQuery(cudaStreamPerThread);
  if (state == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();  // is reported here, or was no error
  if (state == cudaErrorNotReady || state == cudaErrorMemoryAllocation) return absl::OkStatus();
  const std::string lost =
      absl::StrCat("this process cannot use GPU ", options.device, " any more: ", cudaGetErrorString(state));
  if (options.on_stuck != nullptr) options.on_stuck(lost);
  return absl::InternalError(lost);
}

absl::Status UseDevice(const NcclOptions& options, int64_t communicators) {
  RETURN_IF_ERROR(CheckVersion());
  const int device = options.device;
  const absl::Status used = CudaStatus(cudaSetDevice(device), "cudaSetDevice");
  RETURN_IF_ERROR(CheckContext(options));
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return absl::UnavailableError(cudaGetErrorString(error));
  if (device < 0 || device >= count) {
    return absl::UnavailableError(absl::StrCat("CUDA device ", device, " of ", count));
  }
  int multiprocessors = 0;
  RETURN_IF_ERROR(CudaStatus(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
                             "cudaDeviceGetAttribute"));
  if (multiprocessors < communicators * NcclResources::kMaxBlocks) {
    return absl::FailedPreconditionError(
        absl::StrCat("a GPU of ", multiprocessors, " multiprocessors is too small for ", communicators,
                     " communicators of NCCL at once, ", NcclResources::kMaxBlocks, " each; use another transport"));
  }
  return used;
}

absl::Status WaitUntilConnected(NcclResources& resources, const std::stop_token& stop, Deadline deadline) {
  while (true) {
    ASSIGN_OR_RETURN(const bool connected, resources.Progress());
    if (connected) return absl::OkStatus();
    if (stop.stop_requested()) return absl::AbortedError("abandoned");
    if (std::chrono::steady_clock::now() >= deadline) return absl::DeadlineExceededError("took too long");
    std::this_thread::sleep_for(kNap);
  }
}

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> ConnectNccl(const NcclOptions& options, int rank, int size,
                                                                       uint64_t generation,
                                                                       const std::vector<std::vector<int>>& groups,
                                                                       Rendezvous& rendezvous, std::stop_token stop,
                                                                       Deadline deadline) {
  RETURN_IF_ERROR(CheckGroups(rank, size, groups));
  const auto communicators_here = std::count_if(groups.begin(), groups.end(), [&](const std::vector<int>& group) {
    return std::find(group.begin(), group.end(), rank) != group.end();
  });
  RETURN_IF_ERROR(UseDevice(options, communicators_here));
  NcclResources::WaitForEndings(stop);
  ASSIGN_OR_RETURN(const std::string mine, IdBlob(rank, generation, groups));
  ASSIGN_OR_RETURN(const std::vector<std::string> blobs, rendezvous.Exchange(mine, deadline));
  if (blobs.size() != static_cast<size_t>(size)) {
    return absl::InternalError(absl::StrCat("rendezvous of ", blobs.size(), " members for a world of ", size));
  }
  std::vector<std::unique_ptr<Communicator>> communicators(groups.size());
  for (size_t i = 0; i < groups.size(); ++i) {
    const auto place = std::find(groups[i].begin(), groups[i].end(), rank);
    if (place == groups[i].end()) continue;
    const int position = static_cast<int>(place - groups[i].begin()), members = static_cast<int>(groups[i].size());
    ASSIGN_OR_RETURN(const ncclUniqueId id, FindId(i, groups, generation, blobs));
    ASSIGN_OR_RETURN(auto resources, NcclResources::Make(members));
    const std::string what = absl::StrCat("rank ", rank, " connecting in generation ", generation, " by NCCL");
    RETURN_IF_ERROR(Annotate(resources->StartConnecting(members, id, position), what));
    RETURN_IF_ERROR(Annotate(WaitUntilConnected(*resources, stop, deadline), what));
    communicators[i] = std::make_unique<NcclMember>(std::move(resources), options, position, members, generation);
    const std::stop_callback on_stop(stop, [&] { communicators[i]->Abort("abandoned"); });
    RETURN_IF_ERROR(communicators[i]->Barrier(deadline));  // connects everybody to everybody
  }
  return communicators;
}

}  // namespace holdfast
