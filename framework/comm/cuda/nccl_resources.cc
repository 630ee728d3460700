#include "framework/comm/cuda/nccl_resources.h"

#include <chrono>
#include <thread>

#include "framework/base/status.h"
#include "framework/comm/cuda/nccl_status.h"

namespace holdfast {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kFinishLimit{500};
constexpr std::chrono::seconds kEndLimit{5};

// Threads that end communicators. They may outlive everything, so this is never destroyed.
struct Endings {
  std::mutex mutex;
  std::condition_variable_any changed;
  int running = 0;
};
Endings& AllEndings() {
  static Endings& endings = *new Endings;
  return endings;
}

/// What `state` comes to when NCCL is done in the background, or kInProgress after `limit`.
ncclResult_t Settle(ncclComm_t comm, ncclResult_t state, Clock::duration limit) {
  const auto until = Clock::now() + limit;
  while (state == ncclInProgress && Clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    if (const ncclResult_t asked = ncclCommGetAsyncError(comm, &state); asked != ncclSuccess) return asked;
  }
  return state;
}

}  // namespace

absl::StatusOr<std::unique_ptr<NcclResources>> NcclResources::Make(int size) {
  auto resources = std::unique_ptr<NcclResources>(new NcclResources());
  Handles& handles = *resources->handles_;
  handles.size = static_cast<size_t>(size);
  RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&handles.device), "cudaGetDevice"));
  RETURN_IF_ERROR(CudaStatus(cudaStreamCreateWithFlags(&handles.stream, cudaStreamNonBlocking), "cudaStreamCreate"));
  RETURN_IF_ERROR(CudaStatus(cudaEventCreateWithFlags(&handles.event, cudaEventDisableTiming), "cudaEventCreate"));
  RETURN_IF_ERROR(CudaStatus(cudaMalloc(reinterpret_cast<void**>(&handles.words), 2 * handles.size), "cudaMalloc"));
  return resources;
}

NcclResources::~NcclResources() { End(Ending::kAbort); }

absl::Status NcclResources::StartConnecting(int size, const ncclUniqueId& id, int rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.maxCTAs = kMaxBlocks;
  return NcclStatus(ncclCommInitRankConfig(&handles_->comm, size, id, rank, &config), "ncclCommInitRankConfig");
}

absl::StatusOr<bool> NcclResources::Progress() {
  ncclResult_t state = ncclSuccess;
  RETURN_IF_ERROR(NcclStatus(ncclCommGetAsyncError(handles_->comm, &state), "ncclCommGetAsyncError"));
  RETURN_IF_ERROR(NcclStatus(state, "NCCL"));
  return state == ncclSuccess;
}

absl::Status NcclResources::Mark() {
  return CudaStatus(cudaEventRecord(handles_->event, handles_->stream), "cudaEventRecord");
}

absl::StatusOr<bool> NcclResources::StreamDone() {
  const cudaError_t state = cudaEventQuery(handles_->event);
  if (state == cudaErrorNotReady) {
    cudaGetLastError();  // it was no error, and must not be taken for one by whoever asks next
    return false;
  }
  RETURN_IF_ERROR(CudaStatus(state, "NCCL's stream"));
  return true;
}

void NcclResources::Handles::LetGo() {
  const std::lock_guard lock(mutex);
  idle = true;
  changed.notify_all();
}

// Aborting frees, and to free memory of a GPU is to wait for all that runs on it, such as another communicator's call
// that nobody has ended yet. Revoking only stops what is under way.
void NcclResources::EndNccl(Handles& handles, Ending ending) {
  if (handles.comm == nullptr) return;
  if (ending == Ending::kFinish && Settle(handles.comm, ncclCommFinalize(handles.comm), kFinishLimit) == ncclSuccess) {
    ncclCommDestroy(handles.comm);
    return;
  }
  if (ending == Ending::kRevoke) {
    Settle(handles.comm, ncclCommRevoke(handles.comm, NCCL_REVOKE_DEFAULT), kEndLimit);
    if (cudaStreamSynchronize(handles.stream) == cudaSuccess) handles.LetGo();
  }
  ncclCommAbort(handles.comm);
}

void NcclResources::FreeCuda(const Handles& handles) {
  if (handles.words != nullptr) cudaFree(handles.words);
  if (handles.event != nullptr) cudaEventDestroy(handles.event);
  if (handles.stream != nullptr) cudaStreamDestroy(handles.stream);
}

void NcclResources::WaitForEndings(const std::stop_token& stop) {
  std::unique_lock lock(AllEndings().mutex);
  AllEndings().changed.wait_for(lock, stop, kEndLimit, [] { return AllEndings().running == 0; });
}

bool NcclResources::End(Ending ending) {
  if (!std::exchange(ending_, true)) {
    {
      const std::lock_guard lock(AllEndings().mutex);
      ++AllEndings().running;
    }
    std::thread([handles = handles_, ending] {
      cudaSetDevice(handles->device);
      EndNccl(*handles, ending);
      handles->LetGo();
      FreeCuda(*handles);
      const std::lock_guard lock(AllEndings().mutex);
      --AllEndings().running;
      AllEndings().changed.notify_all();
    }).detach();
  }
  std::unique_lock lock(handles_->mutex);
  return handles_->changed.wait_for(lock, kEndLimit, [&] { return handles_->idle; });
}

}  // namespace holdfast
