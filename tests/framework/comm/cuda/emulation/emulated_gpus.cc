#include "tests/framework/comm/cuda/emulation/emulated_gpus.h"

#include <cuda_runtime.h>
#include <nccl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "framework/base/task_thread.h"

namespace {

std::atomic<bool> kernels_are_stubborn{false}, gpus_are_lost{false};
std::atomic<int> nccl_sends{0};

// Whoever waits looks again every millisecond: aborts and stubbornness are flags that wake nobody.
template <typename Condition>
void WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable& changed, Condition condition) {
  while (!condition()) changed.wait_for(lock, std::chrono::milliseconds(1));
}

class Gpu {
 public:
  void Queue() { Change(kernels_, 1); }
  void Done() { Change(kernels_, -1); }
  void Take(int blocks, const std::function<bool()>& give_up) {
    std::unique_lock lock(mutex_);
    WaitUntil(lock, changed_, [&] { return free_blocks_ >= blocks || give_up(); });
    free_blocks_ -= blocks;
  }
  void GiveBack(int blocks) { Change(free_blocks_, blocks); }
  void WaitForAll(const std::function<bool()>& give_up) {
    std::unique_lock lock(mutex_);
    WaitUntil(lock, changed_, [&] { return kernels_ == 0 || give_up(); });
  }

 private:
  void Change(int& value, int by) {
    const std::lock_guard lock(mutex_);
    value += by;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int free_blocks_ = holdfast::kEmulatedBlocks;
  int kernels_ = 0;  // queued or running
};

std::array<Gpu, holdfast::kEmulatedGpus> gpus;
thread_local int current_gpu = 0;

Gpu& CurrentGpu() { return gpus[static_cast<size_t>(current_gpu)]; }
bool Never() { return false; }

struct Operation {
  bool send;
  int peer;
  void* data;
  size_t bytes;
  bool done = false;
};

/// What the members of one communicator share.
struct Meeting {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<int> gpus_of_members;
  std::map<std::pair<int, int>, std::deque<Operation*>> sent;  // by (from, to)
};

std::mutex meetings_mutex;
std::map<uint64_t, std::shared_ptr<Meeting>> meetings;

}  // namespace

struct EmulatedStream {
  holdfast::TaskThread thread;
};

struct EmulatedEvent {
  std::shared_ptr<std::atomic<bool>> done = std::make_shared<std::atomic<bool>>(true);
};

struct EmulatedComm {
  std::shared_ptr<Meeting> meeting;
  int size = 0, rank = 0, gpu = 0, blocks = 0;
  std::atomic<bool> aborted{false};
  std::atomic<ncclResult_t> state{ncclInProgress};
  std::atomic<int> kernels{0};
  std::set<int> peers;  // it is connected to
  std::thread background;

  Gpu& device() const { return gpus[static_cast<size_t>(gpu)]; }
  bool GivesUp() const { return aborted && !kernels_are_stubborn; }

  ncclResult_t GoOn(std::function<ncclResult_t()> work) {
    state = ncclInProgress;
    if (background.joinable()) background.join();
    background = std::thread([this, work = std::move(work)] {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
      state = work();
    });
    return ncclInProgress;
  }
  void WaitForKernels() const {
    while (kernels > 0) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }

  ncclResult_t Meet() {
    std::unique_lock lock(meeting->mutex);
    std::vector<int>& members = meeting->gpus_of_members;
    members.push_back(gpu);
    meeting->changed.notify_all();
    WaitUntil(lock, meeting->changed, [&] { return members.size() == static_cast<size_t>(size) || aborted; });
    return std::set<int>(members.begin(), members.end()).size() == members.size() ? ncclSuccess : ncclInvalidUsage;
  }

  void Kernel(std::vector<Operation> operations) {
    device().Take(blocks, [this] { return GivesUp(); });
    {
      std::unique_lock lock(meeting->mutex);
      for (Operation& o : operations) {
        if (o.send) meeting->sent[{rank, o.peer}].push_back(&o);
      }
      meeting->changed.notify_all();
      WaitUntil(lock, meeting->changed, [&] { return Advance(operations) || GivesUp(); });
      for (Operation& o : operations) {
        if (o.send && !o.done) std::erase(meeting->sent[{rank, o.peer}], &o);
      }
    }
    device().GiveBack(blocks);
  }
  bool Advance(std::vector<Operation>& operations) {
    for (Operation& o : operations) {
      if (o.send || o.done) continue;
      std::deque<Operation*>& queue = meeting->sent[{o.peer, rank}];
      if (queue.empty()) continue;
      std::memcpy(o.data, queue.front()->data, std::min(o.bytes, queue.front()->bytes));
      o.done = queue.front()->done = true;
      queue.pop_front();
      meeting->changed.notify_all();
    }
    return std::all_of(operations.begin(), operations.end(), [](const Operation& o) { return o.done; });
  }

  ncclResult_t Launch(const std::vector<Operation>& operations, cudaStream_t stream) {
    for (const Operation& o : operations) {
      if (peers.insert(o.peer).second) device().WaitForAll([this] { return GivesUp(); });
    }
    device().Queue();
    ++kernels;
    stream->thread.Post([this, operations] {
      Kernel(operations);
      device().Done();
      --kernels;
    });
    return ncclSuccess;
  }
};

namespace {

struct Group {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<Operation> operations;
};
thread_local Group group;

void Free(ncclComm_t comm) {
  if (comm->background.joinable()) comm->background.join();
  comm->WaitForKernels();
  delete comm;
}

}  // namespace

namespace holdfast {

void MakeKernelsStubborn(bool stubborn) { kernels_are_stubborn = stubborn; }
void LoseGpus(bool lost) { gpus_are_lost = lost; }
int NcclSends() { return nccl_sends; }

}  // namespace holdfast

const char* cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "invalid device"; }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = holdfast::kEmulatedGpus;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_gpu;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  current_gpu = device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = holdfast::kEmulatedBlocks;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** data, size_t bytes) {
  *data = std::malloc(bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  CurrentGpu().WaitForAll(Never);
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  stream->thread.Post([=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new EmulatedStream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  stream->thread.Drain();
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t) { return gpus_are_lost ? cudaErrorIllegalAddress : cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new EmulatedEvent;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->done = std::make_shared<std::atomic<bool>>(false);
  stream->thread.Post([done = event->done] { *done = true; });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) { return *event->done ? cudaSuccess : cudaErrorNotReady; }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return cudaSuccess; }

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclInvalidUsage ? "invalid usage" : "no error";
}
const char* ncclGetLastError(ncclComm_t) { return "Duplicate GPU detected"; }
ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<uint64_t> last{0};
  const uint64_t number = ++last;
  std::memcpy(id->internal, &number, sizeof(number));
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  uint64_t number = 0;
  std::memcpy(&number, id.internal, sizeof(number));
  *comm = new EmulatedComm;
  EmulatedComm& c = **comm;
  c.size = size;
  c.rank = rank;
  c.gpu = current_gpu;
  c.blocks = config->maxCTAs == INT_MIN ? holdfast::kEmulatedBlocks : config->maxCTAs;
  {
    const std::lock_guard lock(meetings_mutex);
    std::shared_ptr<Meeting>& meeting = meetings[number];
    if (meeting == nullptr) meeting = std::make_shared<Meeting>();
    c.meeting = meeting;
  }
  return c.GoOn([&c] { return c.Meet(); });
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = comm->state;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return comm->GoOn([comm] {
    comm->WaitForKernels();
    return ncclSuccess;
  });
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  Free(comm);
  return ncclSuccess;
}
ncclResult_t ncclCommRevoke(ncclComm_t comm, int) {
  comm->aborted = true;
  return ncclCommFinalize(comm);
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->aborted = true;
  comm->device().WaitForAll(Never);
  Free(comm);
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  group = {};
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (group.operations.empty()) return ncclSuccess;
  return group.comm->GoOn([g = std::move(group)] { return g.comm->Launch(g.operations, g.stream); });
}
ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t, int to, ncclComm_t comm, cudaStream_t stream) {
  ++nccl_sends;
  group.comm = comm;
  group.stream = stream;
  group.operations.push_back({true, to, const_cast<void*>(data), count});
  return ncclSuccess;
}
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t, int from, ncclComm_t comm, cudaStream_t stream) {
  group.comm = comm;
  group.stream = stream;
  group.operations.push_back({false, from, data, count});
  return ncclSuccess;
}
