#pragma once
// What one communicator holds of NCCL and CUDA, and its end. Ending can hang inside the libraries, so it happens on a
// thread of its own, which is waited for a while and then left alone.

#include <cuda_runtime.h>
#include <nccl.h>

#include <condition_variable>
#include <memory>
#include <mutex>

#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"

namespace holdfast {

class NcclResources {
 public:
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

  enum class Ending { kFinish, kAbort };
  /// Ends NCCL, once. False if it did not within a second: memory of the last call may still be in use.
  bool End(Ending ending);

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

    std::mutex mutex;
    std::condition_variable changed;
    bool ended = false;
  };

  NcclResources() : handles_(std::make_shared<Handles>()) {}
  static void EndNccl(Handles& handles, Ending ending);
  static void FreeCuda(const Handles& handles);

  std::shared_ptr<Handles> handles_;  // shared with the thread that ends them, which may stay behind
  bool ending_ = false;
};

}  // namespace holdfast
