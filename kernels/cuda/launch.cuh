#pragma once
// Starting a kernel.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "kernels/cuda/cuda_queue.h"

namespace holdfast::kernels {

struct Grid {
  dim3 blocks;
  unsigned threads = 256;  // of a block, in x
  size_t shared_bytes = 0;
};

/// Blocks of `per_block` that hold `n`; 0 if there is nothing to do.
inline unsigned Blocks(int64_t n, int64_t per_block) { return static_cast<unsigned>((n + per_block - 1) / per_block); }

/// Bytes of shared memory that a block on the queue's GPU may have, in kernels that ask for it; 0 if the GPU does not
/// say.
inline size_t MaxSharedBytes(const CudaQueue& queue) {
  queue.stream();  // makes its GPU the thread's
  int device = 0, bytes = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  return static_cast<size_t>(bytes);
}

/// Of the queue's GPU.
inline int64_t Multiprocessors(const CudaQueue& queue) {
  queue.stream();  // makes its GPU the thread's
  int device = 0, count = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count;
}

/// Why a kernel that asks for so much was not started.
inline std::string LaunchFailure(const CudaQueue& queue, cudaError_t error, size_t shared_bytes) {
  const size_t most = MaxSharedBytes(queue);
  if (most == 0 || shared_bytes <= most) return cudaGetErrorString(error);
  const auto kib = [](size_t bytes) { return std::to_string((bytes + 1023) / 1024) + " KiB"; };
  return "a block of its kernel takes " + kib(shared_bytes) + " of shared memory, of which this GPU has " + kib(most);
}

/// Queues `kernel`; an empty grid is nothing to do. `operation` names it should it fail.
template <typename... Expected, typename... Actual>
void Launch(CudaQueue& queue, const char* operation, const Grid& grid, void (*kernel)(Expected...),
            Actual&&... arguments) {
  if (grid.blocks.x == 0 || grid.blocks.y == 0 || grid.blocks.z == 0) return;
  constexpr size_t kSharedWithoutAsking = 32 << 10;  // of 48 KiB, which a kernel's static memory is a part of
  cudaLaunchConfig_t config = {};
  config.stream = queue.stream();  // makes its GPU the thread's, for what is asked of the kernel, too
  cudaError_t error = cudaSuccess;
  if (grid.shared_bytes > kSharedWithoutAsking) {
    error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(grid.shared_bytes));
  }
  if (error == cudaSuccess) {
    config.gridDim = grid.blocks;
    config.blockDim = dim3(grid.threads);
    config.dynamicSmemBytes = grid.shared_bytes;
    error = cudaLaunchKernelEx(&config, kernel, std::forward<Actual>(arguments)...);
  }
  if (error == cudaSuccess) return;
  cudaGetLastError();  // is reported here, and must not be taken for a failure of what comes next
  queue.Fail(operation, LaunchFailure(queue, error, grid.shared_bytes).c_str());
}

}  // namespace holdfast::kernels
