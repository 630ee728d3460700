#pragma once
// What one communicator holds of NCCL and CUDA, and its end. Ending can hang inside the libraries, so it happens on a
// thread of its own, which is waited for a while and then left alone.

#include <cuda_runtime.h>
#include <nccl.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <stop_token>

#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"

namespace holdfast {

class NcclResources {
 public:
  /// Thread blocks of a call at most; NCCL's own limit is 64. A power of two, or NCCL takes the next one.
  static constexpr int kMaxBlocks = 16;

  /// Stream, event and a little memory on the current device.
  static absl::StatusOr<std::unique_ptr<NcclResources>> Make(int size);
  /// Aborts what has not ended.
  ~NcclResources();
  NcclResources(const NcclResources&) = delete;
  NcclResources& operator=(const NcclResources&) = delete;

  /// Starts joining the others; the communicator is ready when Progress says so.
  absl::Status StartConnecting(int size, const ncclUniqueId& id, int rank);
  /// True once NCCL has nothing in the background.
  absl::StatusOr<bool> Progress();
  /// True once everything on the stream is done.
  absl::StatusOr<bool> StreamDone();

  enum class Ending {
    kFinish,  // nothing is under way
    kRevoke,  // something may be
    kAbort,   // it has not connected
  };
  /// Ends NCCL, once. False if it still uses the last call's memory after five seconds. What NCCL itself holds
  /// is freed in the background.
  bool End(Ending ending);

  /// Waits, five seconds at most, until all that ended in this process has freed what it held: that may wait for the
  /// GPU, and what is begun in the meantime for that in turn.
  static void WaitForEndings(const std::stop_token& stop);

  ncclComm_t comm() const { return handles_->comm; }
  cudaStream_t stream() const { return handles_->stream; }
  /// 2 * size bytes, for barriers.
  Bytes words() const { return {handles_->words, 2 * handles_->size}; }
  /// Marks the end of the work so far for StreamDone.
  absl::Status Mark();

 private:
  struct Handles {
    int device = 0;
    size_t size = 0;
    ncclComm_t comm = nullptr;
    cudaStream_t stream = nullptr;
    cudaEvent_t event = nullptr;
    std::byte* words = nullptr;

    void LetGo();

    std::mutex mutex;
    std::condition_variable changed;
    bool idle = false;  // the memory of callers is in use no more
  };

  NcclResources() : handles_(std::make_shared<Handles>()) {}
  static void EndNccl(Handles& handles, Ending ending);
  static void FreeCuda(const Handles& handles);

  std::shared_ptr<Handles> handles_;  // shared with the thread that ends them, which may stay behind
  bool ending_ = false;
};

}  // namespace holdfast
