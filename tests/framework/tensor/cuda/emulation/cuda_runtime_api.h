#pragma once
// Takes the place of the CUDA toolkit's header of this name when framework/tensor/cuda is compiled for a machine
// without GPUs: only what it uses. Memory is the CPU's, and what is queued is done at once. Which GPUs a process has
// contexts on, how much memory is left, and a GPU that is lost: see EmulatedRuntime.

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2 };
enum cudaMemoryType { cudaMemoryTypeUnregistered = 0, cudaMemoryTypeHost = 1, cudaMemoryTypeDevice = 2 };
struct cudaPointerAttributes {
  cudaMemoryType type;
};
struct cudaDeviceProp {
  char name[256];
  int major, minor;
  size_t totalGlobalMem;
  size_t sharedMemPerBlockOptin;
  int multiProcessorCount;
};
struct CUstream_st {};
struct CUevent_st {};
using cudaStream_t = CUstream_st*;
using cudaEvent_t = CUevent_st*;
#define cudaStreamPerThread (reinterpret_cast<cudaStream_t>(2))
constexpr unsigned cudaStreamNonBlocking = 1, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2;

/// As the real one does, every call takes memory of the thread's current GPU, for a context, if it is the process's
/// first there; and once a GPU is lost every call gives the error that it was lost by.
struct EmulatedRuntime {
  std::mutex mutex;
  std::set<int> contexts;
  size_t free_bytes = size_t{1} << 40;      // of a GPU
  size_t shared_bytes = size_t{227} << 10;  // of a block
  cudaError_t lost = cudaSuccess;
  cudaError_t next_malloc = cudaSuccess;    // what the next cudaMalloc gives, of a GPU that is not lost
  std::map<const void*, size_t> allocated;  // bytes of GPU memory

  static EmulatedRuntime& Get() {
    static EmulatedRuntime runtime;
    return runtime;
  }
};

inline int& EmulatedCurrentGpu() {
  thread_local int current = 0;
  return current;
}
inline cudaError_t EmulatedCall() {
  EmulatedRuntime& runtime = EmulatedRuntime::Get();
  const std::lock_guard lock(runtime.mutex);
  runtime.contexts.insert(EmulatedCurrentGpu());
  return runtime.lost;
}

inline const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory"
         : error == cudaErrorIllegalAddress ? "an illegal memory access was encountered"
                                            : "another error";
}
inline const char* cudaGetErrorName(cudaError_t) { return "cudaError"; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = 4;
  return cudaSuccess;
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {"Emulated GPU", 9, 0, size_t{1} << 40, EmulatedRuntime::Get().shared_bytes, 132};
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int device) {
  EmulatedCurrentGpu() = device;
  return EmulatedCall();
}

inline cudaError_t cudaMalloc(void** data, size_t bytes) {
  if (const cudaError_t error = EmulatedCall(); error != cudaSuccess) return error;
  EmulatedRuntime& runtime = EmulatedRuntime::Get();
  const std::lock_guard lock(runtime.mutex);
  if (runtime.next_malloc != cudaSuccess) {
    const cudaError_t error = runtime.next_malloc;
    runtime.next_malloc = cudaSuccess;
    return error;
  }
  if (bytes > runtime.free_bytes) return cudaErrorMemoryAllocation;
  *data = std::malloc(1);  // no test uses more
  runtime.free_bytes -= bytes;
  runtime.allocated[*data] = bytes;
  return cudaSuccess;
}
inline cudaError_t cudaFree(void* data) {
  const cudaError_t error = EmulatedCall();
  EmulatedRuntime& runtime = EmulatedRuntime::Get();
  const std::lock_guard lock(runtime.mutex);
  const auto found = runtime.allocated.find(data);
  if (found == runtime.allocated.end()) return error;
  runtime.free_bytes += found->second;
  runtime.allocated.erase(found);
  std::free(data);
  return error;
}
inline cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = EmulatedRuntime::Get().free_bytes;
  *total = size_t{1} << 40;
  return EmulatedCall();
}
inline cudaError_t cudaMallocHost(void** data, size_t bytes) {
  if (bytes >= size_t{1} << 40) return cudaErrorMemoryAllocation;
  *data = std::malloc(bytes);
  return EmulatedCall();
}
inline cudaError_t cudaFreeHost(void* data) {
  std::free(data);
  return EmulatedCall();
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t) {
  if (const cudaError_t error = EmulatedCall(); error != cudaSuccess) return error;
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  if (const cudaError_t error = EmulatedCall(); error != cudaSuccess) return error;
  EmulatedRuntime& runtime = EmulatedRuntime::Get();
  const std::lock_guard lock(runtime.mutex);
  attributes->type = runtime.allocated.count(data) != 0 ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
  return cudaSuccess;
}

inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st;
  return EmulatedCall();
}
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return EmulatedCall();
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return EmulatedCall(); }
inline cudaError_t cudaStreamQuery(cudaStream_t) { return EmulatedCall(); }
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return EmulatedCall();
}
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return EmulatedCall(); }
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return EmulatedCall(); }
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return EmulatedCall();
}
