#pragma once
// A stream of a GPU: the queue its kernels run on, their working memory, and the first failure among them.

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "framework/tensor/device.h"
#include "kernels/cuda/cuda_queue.h"

namespace holdfast {

class CudaStream final : public Stream, private kernels::CudaQueue {
 public:
  static absl::StatusOr<std::unique_ptr<CudaStream>> Create(int device, MemoryAccount& memory,
                                                            const kernels::GemmChoice& gemms);
  ~CudaStream() override;

  kernels::Ops& ops() override { return *ops_; }
  absl::Status Synchronize() override;
  std::shared_ptr<Event> Record() override;
  void CopyToCpu(void* cpu, const void* device, size_t bytes) override;
  size_t scratch_bytes() const override { return scratch_bytes_; }

 private:
  class Events;
  class RecordedEvent;

  CudaStream(int device, MemoryAccount& memory);

  CUstream_st* stream() const override;
  void* Scratch(size_t bytes) override;
  void FreeScratch();
  void Fail(const char* operation, const char* cause) override;

  int device_;
  MemoryAccount& memory_;  // the device's
  std::shared_ptr<Events> events_;
  cudaStream_t stream_ = nullptr;
  void* scratch_ = nullptr;
  size_t scratch_bytes_ = 0;
  std::string failure_;        // the first
  bool lacks_memory_ = false;  // is what it says
  std::unique_ptr<kernels::Ops> ops_;
};

}  // namespace holdfast
