#pragma once
// Where CUDA kernels get their stream and working memory from, and whom they tell when something fails. Kernels create
// and wait for nothing: a call queues its work and returns.

#include <cstddef>
#include <memory>

#include "kernels/gemm_table.h"
#include "kernels/ops.h"

struct CUstream_st;

namespace holdfast::kernels {

/// Used by one thread at a time.
class CudaQueue {
 public:
  virtual ~CudaQueue() = default;

  virtual CUstream_st* stream() const = 0;

  /// At least `bytes` of device memory, 256-byte aligned, undefined, for work queued until the next call. Null, and
  /// Fail was called, if there is none; an operation then queues nothing.
  virtual void* Scratch(size_t bytes) = 0;

  /// The first failure of a queue is what Stream::Synchronize reports; later work of it counts for nothing.
  virtual void Fail(const char* operation, const char* cause) = 0;
};

/// Operations on device memory, queued on `queue` (which must outlive them, like the table of `gemms`). Beyond the
/// rules of ops.h: bits depend neither on the GPU's number of multiprocessors nor on what else it does; no operation
/// waits for the GPU.
std::unique_ptr<Ops> MakeCudaOps(CudaQueue& queue, const GemmChoice& gemms = {});

}  // namespace holdfast::kernels
