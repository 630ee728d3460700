#pragma once
// Devices and their streams. A device owns memory, a stream orders operations on it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/ops.h"

namespace holdfast {

/// A queue of operations on one device. On a CPU an operation has finished when its call returns.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual kernels::Ops& ops() = 0;
  virtual void Synchronize() = 0;
  /// Bytes of working memory the stream's kernels hold now.
  virtual size_t scratch_bytes() const = 0;
};

enum class StreamKind : uint8_t {
  kCompute,   // may use the whole device
  kTransfer,  // beside a compute stream: a CPU runs it on the calling thread alone
};

/// Thread-safe. Outlives its buffers and streams.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;

  /// Uninitialised memory, 64-byte aligned at least (2 MiB for large blocks). ResourceExhausted when there is no more.
  virtual absl::StatusOr<void*> Allocate(size_t bytes) = 0;
  virtual void Free(void* data, size_t bytes) = 0;

  virtual std::unique_ptr<Stream> CreateStream(StreamKind kind = StreamKind::kCompute) = 0;
  virtual void CopyToHost(void* host, const void* device, size_t bytes) = 0;
  virtual void CopyFromHost(void* device, const void* host, size_t bytes) = 0;
};

/// Host memory and `threads` threads per stream (0 = as many as this process may use).
std::unique_ptr<Device> MakeCpuDevice(int threads);

}  // namespace holdfast
