#pragma once
// Takes the place of the CUDA toolkit's header of this name when kernels/cuda is compiled as plain C++: device code
// runs on the CPU, one block after the other, each thread of a block a fiber. Barriers and exchanges between the lanes
// of a warp mean what they mean on a GPU; between them, threads run in changing orders, so that a forgotten barrier
// shows. A barrier that not all of its threads reach ends the process with a message.
//
// Only what kernels/cuda uses is here. With the thread sanitizer (races.supp) every two accesses of a block's threads
// that no barrier orders are found. What it cannot show: memory ordering between blocks, and speed.

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include "tests/kernels/emulation/emulator.h"

#define __CUDACC_VER_MAJOR__ 0
#define __CUDACC_VER_MINOR__ 0
#define __CUDACC_VER_BUILD__ 0

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __constant__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __restrict__

struct float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }

struct dim3 {
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}  // NOLINT: as the toolkit's
  unsigned x, y, z;
};

using cudaStream_t = void*;
struct cudaLaunchConfig_t {
  dim3 gridDim;  // NOLINT: the toolkit's name
  dim3 blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  void* attrs;
  unsigned numAttrs;

  holdfast::emulation::Size grid() const { return {gridDim.x, gridDim.y, gridDim.z}; }
  holdfast::emulation::Size block() const { return {blockDim.x, blockDim.y, blockDim.z}; }
};

constexpr int warpSize = 32;

inline void __syncthreads() { holdfast::emulation::BlockBarrier(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { holdfast::emulation::WarpBarrier(mask); }

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  return holdfast::emulation::Exchange(mask, value, [&](int lane) { return (lane & -width) | (source & (width - 1)); });
}
inline uint64_t __umul64hi(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>(static_cast<Wide>(a) * b >> 64);
}
/// Byte i is the one of y:x that the i-th digit of `selector` names.
inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t selector) {
  const uint64_t bytes = x | uint64_t{y} << 32;
  uint32_t taken = 0;
  for (int i = 0; i < 4; ++i) taken |= static_cast<uint32_t>(bytes >> (selector >> i * 4 & 7) * 8 & 0xff) << i * 8;
  return taken;
}

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
  return holdfast::emulation::Exchange(mask, value, [&](int lane) {
    const int from = lane ^ lane_mask;
    return (from & -width) > (lane & -width) ? lane : from;
  });
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  return holdfast::emulation::Exchange(mask, value, [&](int lane) {
    const int from = lane + static_cast<int>(delta);
    return (from & -width) == (lane & -width) ? from : lane;
  });
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  return holdfast::emulation::Exchange(mask, value, [&](int lane) {
    const int from = lane - static_cast<int>(delta);
    return from >= (lane & -width) ? from : lane;
  });
}

inline unsigned __ballot_sync(unsigned mask, bool predicate) { return holdfast::emulation::Ballot(mask, predicate); }
/// The lanes of `mask` that have the same value.
inline unsigned __match_any_sync(unsigned mask, int value) { return holdfast::emulation::Match(mask, value); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }

// Atomic for the thread sanitizer, too.
inline int atomicAdd(int* at, int value) { return std::atomic_ref(*at).fetch_add(value, std::memory_order_relaxed); }
inline unsigned atomicAdd(unsigned* at, unsigned value) {
  return std::atomic_ref(*at).fetch_add(value, std::memory_order_relaxed);
}
inline void __threadfence() {}

inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>((uint64_t{a} * b) >> 32); }
inline uint32_t __float_as_uint(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}
inline float __uint_as_float(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}
template <typename T>
T __ldg(const T* at) {
  return *at;
}
inline void __stwb(uint4* at, uint4 value) {
  holdfast::emulation::CheckAligned(at, 16);
  std::memcpy(at, &value, sizeof(value));
}
inline void __stwb(uint2* at, uint2 value) {
  holdfast::emulation::CheckAligned(at, 8);
  std::memcpy(at, &value, sizeof(value));
}

// --- the runtime's calls ---------------------------------------------------------------------------------------------
enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorNoKernelImageForDevice = 209
};
enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16, cudaDevAttrMaxSharedMemoryPerBlockOptin = 97 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

inline const char* cudaGetErrorString(cudaError_t) { return "emulated"; }
inline cudaError_t& EmulatedLastError() {
  thread_local cudaError_t last = cudaSuccess;
  return last;
}
inline cudaError_t cudaGetLastError() { return std::exchange(EmulatedLastError(), cudaSuccess); }
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t) {
  std::memmove(to, from, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t) {
  std::memset(data, value, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrMultiProcessorCount ? holdfast::emulation::Multiprocessors()
                                                       : static_cast<int>(holdfast::emulation::MaxSharedBytes());
  return cudaSuccess;
}
/// Dynamic shared memory that a launch may say.
template <typename Kernel>
size_t& EmulatedSharedBytes(Kernel kernel) {
  thread_local std::map<const void*, size_t> of_kernels;
  const auto* const at = reinterpret_cast<const void*>(kernel);
  return of_kernels.try_emplace(at, holdfast::emulation::kSharedBytesWithoutAsking).first->second;
}
template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel kernel, cudaFuncAttribute, int shared_bytes) {
  const auto bytes = static_cast<size_t>(shared_bytes);
  if (bytes > holdfast::emulation::MaxSharedBytes()) return EmulatedLastError() = cudaErrorInvalidValue;
  EmulatedSharedBytes(kernel) = bytes;
  return cudaSuccess;
}
struct cudaFuncAttributes {};
template <typename Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, Kernel) {  // asked of kernels for Hopper only
  if (holdfast::emulation::LacksMemory()) return EmulatedLastError() = cudaErrorMemoryAllocation;
  return holdfast::emulation::IsHopper() ? cudaSuccess : cudaErrorNoKernelImageForDevice;
}

// Events have the emulated GPU's time.
struct CUevent_st {
  double ms = 0;
};
using cudaEvent_t = CUevent_st*;
inline cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new CUevent_st;
  return cudaSuccess;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  event->ms = holdfast::emulation::GpuTime().now_ms;
  return cudaSuccess;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  *ms = static_cast<float>(end->ms - begin->ms);
  return cudaSuccess;
}
template <typename... Expected, typename... Actual>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Expected...), Actual&&... arguments) {
  if (!holdfast::emulation::CanLaunch(config->grid(), config->block(), config->dynamicSmemBytes)) {
    return EmulatedLastError() = cudaErrorInvalidConfiguration;
  }
  if (config->dynamicSmemBytes > EmulatedSharedBytes(kernel)) return EmulatedLastError() = cudaErrorInvalidValue;
  const std::tuple<Expected...> values(std::forward<Actual>(arguments)...);
  holdfast::emulation::Launch(config->grid(), config->block(), config->dynamicSmemBytes,
                              [&] { std::apply(kernel, values); });
  return cudaSuccess;
}
