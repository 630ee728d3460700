// Flat vectors: add, zero, copy, cast, sums of squares.

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"

namespace holdfast::kernels {
namespace {

constexpr int64_t kPerThread = 4;
constexpr int64_t kPerBlock = 256 * kPerThread;

/// Calls op(i) for this thread's elements of [0, n).
template <typename Op>
__device__ __forceinline__ void ForEachElement(int64_t n, Op op) {
  const int64_t first = blockIdx.x * kPerBlock + threadIdx.x;
#pragma unroll
  for (int64_t k = 0; k < kPerThread; ++k) {
    const int64_t i = first + k * blockDim.x;
    if (i < n) op(i);
  }
}

__global__ void AddKernel(float* a, const float* b, int64_t n) {
  ForEachElement(n, [&](int64_t i) { a[i] += b[i]; });
}

__global__ void AxpbyKernel(float* out, float alpha, const float* x, float beta, const float* y, int64_t n) {
  ForEachElement(n, [&](int64_t i) { out[i] = fmaf(alpha, x[i], beta * y[i]); });
}

__global__ void CastToBf16Kernel(Bf16* out, const float* in, int64_t n) {
  ForEachElement(n, [&](int64_t i) { out[i] = FromFloat<Bf16>(in[i]); });
}

// One block a chunk: a thread adds every 256th value, then the block's sums are added.
__global__ void ChunkSumSquaresKernel(double* sums, const float* x, const int64_t* offsets) {
  const int64_t first = offsets[blockIdx.x], end = offsets[blockIdx.x + 1];
  double sum = 0;
  for (int64_t i = first + threadIdx.x; i < end; i += blockDim.x) {
    const double value = x[i];
    sum = fma(value, value, sum);
  }
  sum = BlockReduce(sum, 0.0, Plus());
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

}  // namespace

void CudaOps::Add(float* a, const float* b, int64_t n) {
  Launch(queue_, "Add", {.blocks = Blocks(n, kPerBlock)}, AddKernel, a, b, n);
}

void CudaOps::Axpby(float* out, float alpha, const float* x, float beta, const float* y, int64_t n) {
  Launch(queue_, "Axpby", {.blocks = Blocks(n, kPerBlock)}, AxpbyKernel, out, alpha, x, beta, y, n);
}

void CudaOps::CastToBf16(uint16_t* out, const float* in, int64_t n) {
  Launch(queue_, "CastToBf16", {.blocks = Blocks(n, kPerBlock)}, CastToBf16Kernel, reinterpret_cast<Bf16*>(out), in, n);
}

void CudaOps::Zero(void* data, size_t bytes) {
  const cudaError_t error = cudaMemsetAsync(data, 0, bytes, queue_.stream());
  if (error != cudaSuccess) queue_.Fail("Zero", cudaGetErrorString(error));
}

void CudaOps::Copy(void* out, const void* in, size_t bytes) {
  const cudaError_t error = cudaMemcpyAsync(out, in, bytes, cudaMemcpyDeviceToDevice, queue_.stream());
  if (error != cudaSuccess) queue_.Fail("Copy", cudaGetErrorString(error));
}

void CudaOps::ChunkSumSquares(double* sums, const float* x, const int64_t* offsets, int64_t num_chunks) {
  const size_t bytes = static_cast<size_t>(num_chunks + 1) * sizeof(int64_t);
  auto* on_device = static_cast<int64_t*>(queue_.Scratch(bytes));
  if (on_device == nullptr) return;
  const cudaError_t error = cudaMemcpyAsync(on_device, offsets, bytes, cudaMemcpyHostToDevice, queue_.stream());
  if (error != cudaSuccess) return queue_.Fail("ChunkSumSquares", cudaGetErrorString(error));
  Launch(queue_, "ChunkSumSquares", {.blocks = Blocks(num_chunks, 1)}, ChunkSumSquaresKernel, sums, x, on_device);
}

std::unique_ptr<Ops> MakeCudaOps(CudaQueue& queue, const GemmChoice& gemms) {
  return std::make_unique<CudaOps>(queue, gemms);
}

}  // namespace holdfast::kernels
