#pragma once
// Devices and their streams. A device owns memory, a stream orders operations on it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "framework/tensor/memory_account.h"
#include "kernels/ops.h"

namespace holdfast {

/// A point in a stream's work.
class Event {
 public:
  virtual ~Event() = default;
  /// Blocks until the work before it is done. From any thread.
  virtual void Wait() = 0;
};

/// A queue of operations on one device. On a CPU an operation has finished when its call returns.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual kernels::Ops& ops() = 0;
  /// Waits until all is done. Internal, naming the operation, if one has failed, or OutOfMemoryError for want of
  /// working memory: what was computed since counts for nothing.
  virtual absl::Status Synchronize() = 0;
  /// The end of what is queued now; null if that is done.
  virtual std::shared_ptr<Event> Record() = 0;
  /// Queues a copy of the device's memory to the CPU's, fastest to what Device::AllocateCpu gives.
  virtual void CopyToCpu(void* cpu, const void* device, size_t bytes) = 0;
  /// Bytes of working memory the stream's kernels hold now.
  virtual size_t scratch_bytes() const = 0;
};

enum class StreamKind : uint8_t {
  kCompute,   // may use the whole device
  kTransfer,  // beside a compute stream: a CPU runs it on the calling thread alone
};

inline void WaitFor(const std::shared_ptr<Event>& event) {
  if (event != nullptr) event->Wait();
}

/// Thread-safe. Outlives its buffers and streams.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;
  /// Names what the bits of results depend on, apart from the program. Empty for a CPU: the config names its
  /// arithmetic.
  virtual std::string arithmetic() const { return ""; }
  /// FLOP/s that bf16 matrix products reach at most; 0 = unknown.
  virtual double peak_bf16_flops() const { return 0; }

  /// Uninitialised memory, 64-byte aligned at least (2 MiB for large blocks). ResourceExhausted when there is no more.
  virtual absl::StatusOr<void*> Allocate(size_t bytes) = 0;
  virtual void Free(void* data, size_t bytes) = 0;
  /// Of its memory; kept by buffers and streams.
  MemoryAccount& memory() { return memory_; }

  virtual absl::StatusOr<std::unique_ptr<Stream>> CreateStream(StreamKind kind = StreamKind::kCompute) = 0;

  /// Whether the CPU can use its memory like its own.
  virtual bool is_cpu() const = 0;
  /// Whether `data` is memory of this device that the CPU cannot use.
  virtual bool IsDeviceOnly(const void* data) const = 0;
  /// Done when they return, beside whatever streams do: who wants a stream's results waits for them first.
  virtual void CopyToCpu(void* cpu, const void* device, size_t bytes) = 0;
  virtual void CopyFromCpu(void* device, const void* cpu, size_t bytes) = 0;
  /// CPU memory that copies from and to the device are fastest with.
  virtual absl::StatusOr<void*> AllocateCpu(size_t bytes) = 0;
  virtual void FreeCpu(void* data) = 0;

 private:
  MemoryAccount memory_;
};

/// CPU memory and `threads` threads per stream (0 = as many as this process may use). `arithmetic`: one that CpuHas.
std::unique_ptr<Device> MakeCpuDevice(int threads, kernels::Arithmetic arithmetic = kernels::Arithmetic::kPortable);

}  // namespace holdfast
